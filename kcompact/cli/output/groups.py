"""Prints the groups of `__consumer_offsets` partitions: a table for people, fields for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kcompact import readable
from kcompact.cli.entries import GroupsEntry
from kcompact.cli.output.printer import Printer, cell
from kcompact.inspect.groups import GroupContents, GroupType, LogGroups
from kcompact.readable import counted

_COLUMNS = ("group", "type", "partition", "members", "offsets", "pending", "tombstones", "records", "size", "live")
_STYLES = {GroupType.DELETED: "dim", GroupType.UNKNOWN: "yellow"}


def show_groups(entries: Sequence[GroupsEntry]) -> None:
    """Print the groups of all partitions in one table, the largest first, and the totals."""
    read = [(entry, entry.groups) for entry in entries if entry.groups is not None]
    if not read:
        return
    printer = Printer()
    groups = [(group, entry) for entry, found in read for group in found.groups]
    groups.sort(key=lambda each: (-each[0].size_bytes, each[0].group))
    if groups:
        columns = [name for name in _COLUMNS if name != "pending" or any(group.pending_offsets for group, _ in groups)]
        printer.table(
            columns,
            [_row(group, entry) for group, entry in groups],
            numbers=_COLUMNS[3:],
            whole=("type",),
            optional=("partition", "records", "members"),
        )
        printer.line()
    printer.line(_totals([group for group, _ in groups]))
    for line in _rest([found for _, found in read]):
        printer.line(line)


def _row(group: GroupContents, entry: GroupsEntry) -> dict[str, Any]:
    style = _STYLES.get(group.type, "")
    return {
        "group": cell(group.group, style),
        "type": cell(group.type, style),
        "partition": cell(entry.directory.name.rpartition("-")[2]),
        "members": cell(group.members),
        "offsets": cell(group.offsets),
        "pending": cell(group.pending_offsets),
        "tombstones": cell(group.tombstones),
        "records": cell(group.records),
        "size": cell(readable.size(group.size_bytes)),
        "live": cell(readable.size(group.live_bytes)),
    }


def _totals(groups: Sequence[GroupContents]) -> str:
    deleted = sum(group.type is GroupType.DELETED for group in groups)
    size = readable.size(sum(group.size_bytes for group in groups))
    live = readable.size(sum(group.live_bytes for group in groups))
    return (
        f"{counted(len(groups), 'group')}, {deleted:,} of them deleted: "
        f"{counted(sum(group.offsets for group in groups), 'live offset')}, "
        f"{counted(sum(group.tombstones for group in groups), 'tombstone')}, {size}, {live} of it live"
    )


def _rest(read: Sequence[LogGroups]) -> list[str]:
    """Return a line about the records that could not be decoded, and one about bytes that belong to no group."""
    records = sum(found.undecoded_records for found in read)
    other = sum(found.other_bytes for found in read)
    lines = []
    if records:
        size = readable.size(sum(found.undecoded_bytes for found in read))
        lines.append(f"not decoded: {counted(records, 'record')}, {size}; see records --decode")
    if other:
        lines.append(f"markers and empty batches: {readable.size(other)}")
    return lines
