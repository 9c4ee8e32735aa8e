"""`groups`: what each group of `__consumer_offsets` has."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli import options

if TYPE_CHECKING:
    from kcompact.cli.entries import GroupsEntry
    from kcompact.plan.options import PlanOptions


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
    from kcompact.cli.entries import GroupsEntry, complain_of
    from kcompact.cli.output import streams
    from kcompact.cli.question import is_file
    from kcompact.errors import RefusedError
    from kcompact.format.names import CONSUMER_OFFSETS
    from kcompact.plan.walk import gravest_exit_code, named_partitions, walk_partitions

    for_batches = options.batch_memory(memory_bytes)
    for path in paths:
        if is_file(path):
            raise RefusedError(path=path, problem="groups needs a partition directory or a log directory")
    directories, unusable = named_partitions(paths, GroupsEntry, topics=plan_options.topics)
    of_groups = [directory for directory in directories if _has_groups(directory)]
    if not of_groups and not unusable:
        raise RefusedError(path=paths[0], problem=f"groups needs a partition of {CONSUMER_OFFSETS}; there is none")
    entries = [
        *walk_partitions(of_groups, partial(_with_groups, memory_bytes=for_batches), GroupsEntry.failed),
        *unusable,
    ]
    if as_json:
        from kcompact.cli.json.groups import GROUPS

        streams.echo(GROUPS.text(now_ms=plan_options.now_ms, partitions=entries))
    else:
        from kcompact.cli.output.entries import show_groups

        show_groups(entries)
        complain_of(entries)
    return gravest_exit_code([entry.exit_code for entry in entries])


def _has_groups(directory: Path) -> bool:
    from kcompact.format.names import CONSUMER_OFFSETS, parse_directory

    parsed = parse_directory(directory.name)
    return parsed is not None and parsed.topic_partition.topic == CONSUMER_OFFSETS


def _with_groups(directory: Path, memory_bytes: int) -> GroupsEntry:
    from kcompact.cli.entries import GroupsEntry
    from kcompact.log.files import files_in
    from kcompact.questions.groups import log_groups

    return GroupsEntry(directory=directory, groups=log_groups(files_in(directory), memory_bytes=memory_bytes))
