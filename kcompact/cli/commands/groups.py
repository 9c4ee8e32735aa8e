"""`groups`: what each group of `__consumer_offsets` has."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer
    from kcompact.questions.groups import LogGroups


@options.command("groups")
@options.paths
@options.memory(what="the batches being read")
def command(paths: tuple[Path, ...], plan_options: PlanOptions, *, memory_bytes: int | None, as_json: bool) -> int:
    """Sum up the groups of __consumer_offsets.

    Each group is shown with its type, members, live offsets, tombstones and bytes, the largest first. Other topics
    among the paths are passed over.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact groups /var/lib/kafka
      kcompact groups --json /var/lib/kafka | jq '.partitions[].groups[] | select(.members == 0).group'
    """
    from kcompact.cli.json.groups import GROUPS
    from kcompact.cli.output.entries import show_groups
    from kcompact.cli.question import Question, ask
    from kcompact.format.names import CONSUMER_OFFSETS

    question = Question(
        document=GROUPS,
        answers=partial(_groups, options.batch_memory(memory_bytes)),
        show=show_groups,
        complains_of_all=True,
        needs=f"groups needs a partition of {CONSUMER_OFFSETS}; there is none",
    )
    return ask(question, paths, plan_options, as_json=as_json)


def _groups(memory_bytes: int, directories: Sequence[Path], _: PlanOptions) -> Iterator[Answer[LogGroups]]:
    """Yield the groups of the partitions of `__consumer_offsets`."""
    from kcompact.format.names import CONSUMER_OFFSETS, parse_directory
    from kcompact.log.files import files_in
    from kcompact.plan.walk import Answer, walk_partitions
    from kcompact.questions.groups import log_groups

    def read(directory: Path) -> Answer[LogGroups]:
        return Answer(directory=directory, found=log_groups(files_in(directory), memory_bytes=memory_bytes))

    names = {directory: parse_directory(directory.name) for directory in directories}
    of_groups = [each for each, name in names.items() if name and name.topic_partition.topic == CONSUMER_OFFSETS]
    return walk_partitions(of_groups, read, Answer.failed)
