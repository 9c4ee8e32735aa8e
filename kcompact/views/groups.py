"""The groups of `__consumer_offsets` partitions, and what they take."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.questions.groups import GroupContents, GroupType, LogGroups
from kcompact.readable import counted
from kcompact.views.parts import Cell, Part, Table, Tone, lines, row

_COLUMNS = ("group", "type", "partition", "members", "offsets", "pending", "tombstones", "records", "size", "live")
_TONES = {GroupType.DELETED: Tone.MUTED, GroupType.UNKNOWN: Tone.CAUTION}


def groups_parts(read: Sequence[tuple[str, LogGroups]]) -> list[Part]:
    """Return the groups of partitions, given with their numbers, in one table, the largest first, and the totals."""
    groups = [(group, number) for number, log_groups in read for group in log_groups.groups]
    groups.sort(key=lambda each: (-each[0].size_bytes, each[0].group))
    parts: list[Part] = []
    if groups:
        table = Table(
            caption="Groups",
            columns=_COLUMNS,
            rows=tuple(_row(group, number) for group, number in groups),
            numbers=_COLUMNS[3:],
            whole=("type",),
            optional=("partition", "records", "members"),
        )
        parts.append(table if any(group.pending_offsets for group, _ in groups) else table.without("pending"))
    totals = [_totals([group for group, _ in groups]), *_rest([log_groups for _, log_groups in read])]
    return [*parts, lines(*totals, is_indented=False)]


def _row(group: GroupContents, partition: str) -> tuple[Cell, ...]:
    tone = _TONES.get(group.type)
    return row(
        Cell(text=group.group, tone=tone),
        Cell(text=group.type, tone=tone),
        partition,
        group.members,
        group.offsets,
        group.pending_offsets,
        group.tombstones,
        group.records,
        readable.size(group.size_bytes),
        readable.size(group.live_bytes),
    )


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
    records = sum(log_groups.undecoded_records for log_groups in read)
    other = sum(log_groups.other_bytes for log_groups in read)
    lines = []
    if records:
        size = readable.size(sum(log_groups.undecoded_bytes for log_groups in read))
        lines.append(f"not decoded: {counted(records, 'record')}, {size}; see records --decode")
    if other:
        lines.append(f"markers and empty batches: {readable.size(other)}")
    return lines
