"""The indexes of a segment, compared with the batches of its log.

Sparse, dense or padded indexes are never damage: old releases of Kafka wrote entries by other rules, and the index of
an active segment is allocated at full size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kcompact.errors import CorruptDataError
from kcompact.format import index
from kcompact.format.names import FileName, Suffix
from kcompact.inspect.contents import Tally
from kcompact.inspect.findings import Finding, Severity, of_error
from kcompact.log.files import read_file

# Indexes


def verify_indexes(
    directory: Path,
    tally: Tally,
    names: set[str],
    *,
    is_active: bool,
    interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
    broken: bool = False,
) -> Iterator[Finding]:
    """Yield what is wrong with the indexes of a segment whose batches `tally` has counted.

    `broken`: the walk stopped early, so entries beyond it prove nothing.
    """
    base = tally.base_offset
    checks: tuple[tuple[Suffix, Callable[[], Iterator[Finding]]], ...] = (
        (Suffix.INDEX, lambda: _offset_index(directory, tally, is_active, interval_bytes, broken)),
        (Suffix.TIME_INDEX, lambda: _time_index(directory, tally, is_active, broken)),
        (Suffix.TXN_INDEX, lambda: _txn_index(directory, tally, broken)),
    )
    for suffix, check in checks:
        name = str(FileName(base_offset=base, suffix=suffix))
        if name in names:
            try:
                yield from check()
            except CorruptDataError as problem:
                yield of_error(problem)
        elif suffix is not Suffix.TXN_INDEX:
            yield Finding(
                severity=Severity.WARNING, file=name, problem="missing; a broker makes it anew from the batches"
            )


def _offset_index(
    directory: Path, tally: Tally, is_active: bool, interval_bytes: int, broken: bool
) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.INDEX))
    data = read_file(directory / name)
    entries = index.parse_offset_index(data, base_offset=tally.base_offset, file=name)
    for number, (relative_offset, position) in enumerate(() if _agree(tally, entries) else entries):
        offset = tally.base_offset + relative_offset
        if broken and position >= tally.walked_bytes:
            break
        there = tally.last_offset_at.get(position)
        if there == offset:
            continue
        problem = f"entry {number} (offset {offset}, position {position}): " + (
            "no batch starts there" if there is None else f"the batch there ends at offset {there}"
        )
        at = number * index.OFFSET_ENTRY_BYTES
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=offset, problem=problem)
    if is_active:
        return
    yield from _padding(name, len(data) - len(entries) * index.OFFSET_ENTRY_BYTES)
    due = _entries_due(tally, interval_bytes)
    if not broken and due != len(entries):
        problem = (
            f"{len(entries)} entries; index.interval.bytes {interval_bytes} asks for {due}. "
            "Other settings and older releases index otherwise: lookups stay right"
        )
        yield Finding(severity=Severity.INFO, file=name, problem=problem)


def _agree(tally: Tally, entries: Sequence[index.OffsetEntry]) -> bool:
    """Whether a large index is seen at a glance to be right."""
    ends = tally.last_offset_at
    if isinstance(ends, dict) or not isinstance(entries, index.EntryColumns):
        return False
    return ends.agree_with(entries, tally.base_offset)


def _entries_due(tally: Tally, interval_bytes: int) -> int:
    """Return how many entries the rule of `IndexBuilder` gives for these batches."""
    count, last = 0, 0
    for position in tally.last_offset_at:
        if position - last > interval_bytes:
            count, last = count + 1, position
    return count


def _padding(name: str, padding_bytes: int) -> Iterator[Finding]:
    if padding_bytes > 0:
        problem = (
            f"{padding_bytes:,} zero bytes after the last entry; untrimmed, it counts in full when segments are grouped"
        )
        yield Finding(severity=Severity.INFO, file=name, problem=problem)


def _time_index(directory: Path, tally: Tally, is_active: bool, broken: bool) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.TIME_INDEX))
    data = read_file(directory / name)
    entries = index.parse_time_index(data, base_offset=tally.base_offset, file=name)
    greatest = tally.largest_timestamp_ms
    if not is_active:
        yield from _padding(name, len(data) - len(entries) * index.TIME_ENTRY_BYTES)
    if broken:
        return
    if not len(entries):
        if not is_active and greatest is not None and greatest >= 0:
            yield Finding(
                severity=Severity.INFO,
                file=name,
                problem="no entries, so the planner takes the time that the log file was last modified",
            )
        return
    last = index.last_time_entry(entries, base_offset=tally.base_offset)
    at = (len(entries) - 1) * index.TIME_ENTRY_BYTES
    if greatest is None or last.timestamp > greatest or (last.timestamp < greatest and not is_active):
        problem = f"ends with timestamp {last.timestamp}, the greatest in the log is {greatest}"
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=last.offset, problem=problem)
    elif tally.last_offset is not None and last.offset > tally.last_offset:
        problem = f"the last entry is for offset {last.offset}, the log ends at {tally.last_offset}"
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=last.offset, problem=problem)


def _txn_index(directory: Path, tally: Tally, broken: bool) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.TXN_INDEX))
    data = read_file(directory / name)
    for number, aborted in enumerate(index.parse_txn_index(data, base_offset=tally.base_offset, file=name)):
        if not broken and (tally.last_offset is None or aborted.last_offset > tally.last_offset):
            yield Finding(
                severity=Severity.DAMAGE,
                file=name,
                position=number * index.TXN_ENTRY_BYTES,
                offset=aborted.last_offset,
                problem=f"entry {number}: its marker, offset {aborted.last_offset}, lies beyond the segment",
            )
    if rest := len(data) % index.TXN_ENTRY_BYTES:
        yield Finding(
            severity=Severity.WARNING,
            file=name,
            position=len(data) - rest,
            problem=f"{rest} bytes after the last entry are no whole entry; a broker ignores them",
        )
