"""`gaps`: where offsets are missing, and what that proves about compaction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli import options

if TYPE_CHECKING:
    from kcompact.log.directory import LogDir
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer
    from kcompact.questions.gaps.walks import Gaps


@options.command("gaps")
@options.paths
@options.unclean
@options.memory(what="the batches being read")
def command(paths: tuple[Path, ...], plan_options: PlanOptions, *, memory_bytes: int | None, as_json: bool) -> int:
    """Show missing offsets, and what they prove about compaction.

    Offsets are missing between batches, inside of batches, and in batches that lost all records. The facts that follow
    are proofs or hints: whether, when and up to which offset the partition was compacted.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact gaps /var/lib/kafka/orders-0
      kcompact gaps --json /var/lib/kafka | jq '.partitions[].gaps.evidence[].text'
    """
    from kcompact.cli.json.gaps import GAPS
    from kcompact.cli.output.entries import show_sections
    from kcompact.cli.question import Question, ask, each_partition
    from kcompact.plan.run_notes import option_notes
    from kcompact.views.gaps import gaps_section

    question = Question(
        document=GAPS,
        answers=each_partition(partial(with_gaps, options.batch_memory(memory_bytes))),
        show=partial(show_sections, gaps_section),
        notes=partial(option_notes, explains=True),
    )
    return ask(question, paths, plan_options, as_json=as_json)


def with_gaps(memory_bytes: int, answer: Answer[Any], log_dir: LogDir) -> Answer[Gaps]:
    """Return a partition with its gaps. Raises StorageError."""
    from kcompact.cli.output.progress import bar_of
    from kcompact.cli.question import inspected
    from kcompact.questions.gaps.answer import log_gaps

    headers = inspected(answer, log_dir)
    plan = headers.plan
    assert plan is not None
    assert headers.found is not None
    with bar_of(answer.directory, plan.log.size_bytes) as advance:
        gaps = log_gaps(plan, contents=headers.found.contents, memory_bytes=memory_bytes, advance=advance)
    return replace(answer, found=gaps, error=headers.error or gaps.damage)
