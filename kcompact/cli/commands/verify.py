"""`verify`: reads and checks every byte."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli import options

if TYPE_CHECKING:
    from kcompact.cli.entries import Inspected
    from kcompact.log.directory import LogDir
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer


@options.command("verify")
@options.paths
@options.unclean
@options.memory(what="the batches being read")
def command(paths: tuple[Path, ...], plan_options: PlanOptions, *, memory_bytes: int | None, as_json: bool) -> int:
    """Read and check every byte.

    Batches, records, indexes, snapshots and checkpoints are checked, and that they agree. Each finding is shown with
    its file, position and offset, below the segments of its partition. PATH may also be a single file.

    Changes nothing and takes no lock. The exit code is 3 if something is damaged.

    \b
    Examples:
      kcompact verify /var/lib/kafka
      kcompact verify --json /var/lib/kafka | jq '.partitions[].findings[]'
      kcompact verify /var/lib/kafka/orders-0/00000000000000000000.log
    """
    from kcompact.cli.json.inspect import VERIFY
    from kcompact.cli.output.entries import show_inspected
    from kcompact.cli.question import Question, ask, each_partition, file_entry

    for_batches = options.batch_memory(memory_bytes)
    question = Question(
        document=VERIFY,
        answers=each_partition(partial(_verified, for_batches)),
        show=show_inspected,
        read_file=partial(file_entry, verify=True, memory_bytes=for_batches),
    )
    return ask(question, paths, plan_options, as_json=as_json)


def _verified(memory_bytes: int, answer: Answer[Any], log_dir: LogDir) -> Answer[Inspected]:
    """Return a partition with all findings."""
    from kcompact.cli.entries import Inspected
    from kcompact.questions.verify.findings import first_error, of_error
    from kcompact.questions.verify.log import verify_log
    from kcompact.questions.verify.small_files import log_dir_findings

    plan = answer.plan
    assert plan is not None
    contents = verify_log(plan.log, index_interval_bytes=plan.config.index_interval_bytes, memory_bytes=memory_bytes)
    findings = (*map(of_error, answer.damage_outside), *contents.findings, *log_dir_findings(log_dir))
    error = answer.error or first_error(contents.findings)
    if error is None:
        error = next((each.damage for each in contents.segments if each.damage is not None), None)
    return replace(answer, error=error, found=Inspected(contents, findings))
