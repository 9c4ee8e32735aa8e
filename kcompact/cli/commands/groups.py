"""`inspect --groups`: what each group of `__consumer_offsets` has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.cli.commands.single_files import is_file
from kcompact.cli.entries import GroupsEntry, complain_of
from kcompact.cli.output import streams
from kcompact.errors import KcompactError, RefusedError
from kcompact.format.names import CONSUMER_OFFSETS, parse_directory
from kcompact.plan.options import PlanOptions
from kcompact.plan.partitions import named_partitions
from kcompact.plan.planned import gravest_exit_code


def run(paths: Sequence[Path], options: PlanOptions, *, as_json: bool, memory_bytes: int) -> int:
    """Show the groups of all `__consumer_offsets` partitions among the paths and return the exit code."""
    for path in paths:
        if is_file(path):
            raise RefusedError(path=path, problem="--groups needs a partition directory or a log directory")
    directories, unusable = named_partitions(paths, topics=options.topics)
    entries = [GroupsEntry(directory=each.directory, error=each.error) for each in unusable]
    of_groups = [directory for directory in directories if _has_groups(directory)]
    if not of_groups and not entries:
        raise RefusedError(path=paths[0], problem=f"--groups needs a partition of {CONSUMER_OFFSETS}; there is none")
    entries = [*(_entry(directory, memory_bytes) for directory in of_groups), *entries]
    if as_json:
        from kcompact.cli.output.groups import groups_entry
        from kcompact.cli.output.json import document, dumps

        streams.echo(dumps(document("inspect", options.now_ms, partitions=[groups_entry(each) for each in entries])))
    else:
        from kcompact.cli.output.groups import show_groups

        show_groups(entries)
        complain_of(entries)
    return gravest_exit_code([entry.exit_code for entry in entries])


def _has_groups(directory: Path) -> bool:
    parsed = parse_directory(directory.name)
    return parsed is not None and parsed.topic_partition.topic == CONSUMER_OFFSETS


def _entry(directory: Path, memory_bytes: int) -> GroupsEntry:
    from kcompact.inspect.groups import log_groups

    try:
        groups = log_groups(directory, memory_bytes=memory_bytes)
    except KcompactError as problem:
        return GroupsEntry(directory=directory, error=problem)
    return GroupsEntry(directory=directory, groups=groups)
