"""A log with aborted transactions in all positions, and the ways in which its `.txnindex` files can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import log_dsl

SPEC = log_dsl.parse(
    """log lone now=10:00 min.cleanable.dirty.ratio=0 min.compaction.lag.ms=15m
    0: a=1 b=1 c=1(pid=7 txn) d=1(pid=8 txn) commit(pid=7) e=1 abort(pid=8)
    7: a=2(pid=7 txn) b=2(pid=9 txn) c=2 abort(pid=7) d=2(pid=7 txn)
    12: e=2(pid=9 txn) commit(pid=7) b=3(pid=10 txn)
    15: f=1^09:50 abort^09:50(pid=9) abort^09:50(pid=7)
    18: g=1^09:55 abort^09:55(pid=10) h=1^09:55(pid=7 txn)
    txnindex 0: pid=8 first=3 last=6 stable=7
    txnindex 7: pid=7 first=7 last=10 stable=8
    txnindex 15: pid=9 first=8 last=16 stable=14
    txnindex 18: pid=10 first=14 last=19 stable=20
    """
)
"""The segments up to offset 14 are cleaned. That at 15 is too young, the last one active; both end a transaction that
begins in the cleaned range. The marker at 17 ends a transaction without a batch."""

ENTRY = struct.Struct(">hqqqq")
VERSION, PRODUCER, FIRST, LAST, STABLE = range(5)
Entries = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong index: the base offset of its segment, the change, and words of the message.

    With `is_harmless` nothing is refused: kcompact reads on behind every last stable offset.
    """

    base_offset: int
    change: Callable[[bytes], bytes | None]
    message: str
    is_harmless: bool = False

    def apply(self, directory: Path) -> Path:
        """Change the index in a directory and return its path."""
        path = directory / f"{self.base_offset:020d}.txnindex"
        data = self.change(path.read_bytes() if path.exists() else b"")
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        return path


def field(name: int, value: int, number: int = 0) -> Callable[[bytes], bytes]:
    """Return a change of one field of an entry."""

    def change(data: bytes) -> bytes:
        entries = [list(entry) for entry in ENTRY.iter_unpack(data)]
        entries[number][name] = value
        return b"".join(ENTRY.pack(*entry) for entry in entries)

    return change


def added(*fields: int) -> Callable[[bytes], bytes]:
    """Return a change that adds an entry in the place of its last offset."""

    def change(data: bytes) -> bytes:
        entries = sorted([*ENTRY.iter_unpack(data), fields], key=lambda entry: entry[LAST])
        return b"".join(ENTRY.pack(*entry) for entry in entries)

    return change


WRONG: dict[str, Wrong] = {
    "flipped bit in a producer id": Wrong(0, field(PRODUCER, 8 ^ 1), "is of producer 9, but the ABORT marker"),
    "another producer that has data": Wrong(0, field(PRODUCER, 7), "is of producer 7, but the ABORT marker"),
    "missing file": Wrong(7, lambda _: None, "has no entry for the ABORT marker at offset 10"),
    "empty file": Wrong(7, lambda _: b"", "has no entry for the ABORT marker at offset 10"),
    "torn entry": Wrong(7, lambda data: data[:-1], "has no entry for the ABORT marker at offset 10"),
    "first offset too low": Wrong(7, field(FIRST, 2), "is not above the marker at offset 4"),
    "first offset of the marker before": Wrong(7, field(FIRST, 4), "is not above the marker at offset 4"),
    "first offset too high": Wrong(7, field(FIRST, 9), "is above the transaction's first record, in the batch at 7"),
    "first offset low, nothing before": Wrong(0, field(FIRST, 0), "", is_harmless=True),
    "last offset without a batch": Wrong(0, field(LAST, 9), "has no entry for the ABORT marker at offset 6"),
    "last offset of a data batch": Wrong(0, field(LAST, 5), "no ABORT marker of producer 8 at its last offset 5"),
    "last offset of a commit marker": Wrong(0, field(LAST, 4), "no ABORT marker of producer 8 at its last offset 4"),
    "stable offset hides another": Wrong(0, field(STABLE, 8), "", is_harmless=True),
    "stable offset beyond the log": Wrong(0, field(STABLE, 1 << 40), "", is_harmless=True),
    "negative stable offset": Wrong(0, field(STABLE, -1), "", is_harmless=True),
    "stable offset too low": Wrong(7, field(STABLE, 0), "", is_harmless=True),
    "an entry too many": Wrong(7, added(0, 7, 11, 11, 12), "no ABORT marker of producer 7 at its last offset 11"),
    "an entry for a commit": Wrong(12, added(0, 7, 11, 13, 14), "no ABORT marker of producer 7 at its last offset 13"),
    "an entry twice": Wrong(7, lambda data: data * 2, "does not rise above"),
    "an unknown version": Wrong(7, field(VERSION, 1), "version 1 is unknown"),
    "garbage": Wrong(0, lambda _: bytes(range(1, 35)), "is unknown"),
    "zeros": Wrong(0, lambda _: bytes(34), "no ABORT marker of producer 0 at its last offset 0"),
    "zeros added": Wrong(0, lambda data: data + bytes(34), "does not rise above"),
    "young segment: missing file": Wrong(15, lambda _: None, "has no entry for the ABORT marker at offset 16"),
    "young segment: producer id": Wrong(15, field(PRODUCER, 7), "is of producer 7, but the ABORT marker"),
    "young segment: first offset": Wrong(
        15, field(FIRST, 10), "is above the transaction's first record, in the batch at 8"
    ),
    "young segment: last offset": Wrong(15, field(LAST, 15), "no ABORT marker of producer 9 at its last offset 15"),
    "young segment: of an empty transaction": Wrong(
        15, added(0, 7, 12, 17, 18), "is not above the marker at offset 13"
    ),
    "active segment: missing file": Wrong(18, lambda _: None, "has no entry for the ABORT marker at offset 19"),
    "active segment: producer id": Wrong(18, field(PRODUCER, 9), "is of producer 9, but the ABORT marker"),
    "active segment: first offset": Wrong(
        18, field(FIRST, 15), "is above the transaction's first record, in the batch at 14"
    ),
    "active segment: entry too many": Wrong(18, added(0, 7, 11, 20, 21), "no ABORT marker of producer 7 at its last"),
}
"""Every way, by name. The entry of the empty transaction that ends at 17 is wrong only because it begins too early."""
