"""Indexes that lie: what to write into the `.index` and `.timeindex` files of a log."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

Entries = list[tuple[int, int]]


def changed(change: Callable[[Entries], Iterable[tuple[int, int]]]) -> Callable[[Path], bytes]:
    """Return a lie that changes the entries; the fields of an entry are in file order."""

    def lie(path: Path) -> bytes:
        entry = struct.Struct(">ii" if path.suffix == ".index" else ">qi")
        return b"".join(entry.pack(*fields) for fields in change(list(entry.iter_unpack(path.read_bytes()))))

    return lie


def another_first_field(path: Path) -> bytes:
    """Return lower offsets, or later timestamps: a higher offset or an earlier timestamp may be true."""
    step = -1 if path.suffix == ".index" else 1
    return changed(lambda entries: [(first + step, second) for first, second in entries])(path)


LIES: dict[str, Callable[[Path], bytes]] = {
    "another first field": another_first_field,
    "another second field": changed(lambda entries: [(first, second + 1) for first, second in entries]),
    "beyond the end": changed(lambda entries: [(first, second + (1 << 20)) for first, second in entries]),
    "reversed": changed(lambda entries: reversed(entries)),
    "shifted": changed(lambda entries: [(first, other) for (first, _), (_, other) in itertools.pairwise(entries)]),
    "one more entry": changed(lambda entries: [*entries, (2**31 - 1, 2**31 - 1)]),
    "all zero": lambda path: bytes(path.stat().st_size),
    "a long run of zeros": lambda path: bytes(4800),
    "one entry of zeros": lambda path: bytes(8 if path.suffix == ".index" else 12),
    "random bytes": lambda path: random.Random(7).randbytes(48),
    "incomplete": lambda path: path.read_bytes() + b"\x01",
    "empty": lambda path: b"",
}


def tell(lie: str, directory: Path, suffixes: Iterable[str] = (".index", ".timeindex")) -> None:
    """Write a lie into all indexes of these kinds."""
    for suffix in suffixes:
        for path in directory.glob(f"*{suffix}"):
            path.write_bytes(LIES[lie](path))
