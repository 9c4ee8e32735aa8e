"""Damage to single files of a log directory: each way in which a file can be wrong, for files of every kind.

for kind, paths in files_of(log_dir).items():
    damage(rng.choice(paths), "cut", rng)
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY

ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
TEXTS = ("-checkpoint", ".metadata", "quorum-state", "meta.properties", ".kafka_cleanshutdown")


def files_of(log_dir: Path) -> dict[str, list[Path]]:
    """Return the files of a log directory and its partitions by kind: the suffix of a segment's file, or the name.

    Those of the metadata log are kinds of their own: a broker reads its files otherwise, and writes other ones each
    time. Of its snapshots the newest is one, because it is the first that is read.
    """
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted([*log_dir.glob("*"), *log_dir.glob("*/*")]):
        if path.is_file() and path.name != ".lock":
            kind = path.suffix if path.name[0].isdigit() else path.name
            if path.parent.name == METADATA_DIRECTORY and kind == path.suffix:
                kind = f"metadata{kind}"
            found[kind].append(path)
    if len(snapshots := found.get("metadata.checkpoint", [])) > 1:
        found["metadata.checkpoint (newest)"] = [snapshots.pop()]
    return dict(found)


def damage(path: Path, kind: str, rng: random.Random) -> str:
    """Damage one file in a way of `DAMAGES`; return what was done."""
    status = path.stat()
    done = DAMAGES[kind](path, rng)
    if path.exists() and kind != "time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"{path.parent.name}/{path.name} {kind}: {done}"


def _lost(path: Path, _: random.Random) -> str:
    path.unlink()
    return "removed"


def _emptied(path: Path, _: random.Random) -> str:
    path.write_bytes(b"")
    return "no bytes"


def _cut(path: Path, rng: random.Random) -> str:
    data = path.read_bytes()
    entry = ENTRY_BYTES.get(path.suffix, 1)
    length = rng.randrange(max(len(data), 1))
    if rng.random() < 0.5:
        length = length // entry * entry
    path.write_bytes(data[:length])
    return f"{length} of {len(data)} bytes"


def _flipped(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    flips = [(rng.randrange(len(data)), rng.randrange(8)) for _ in range(rng.choice([1, 1, 4]))] if data else []
    for position, bit in flips:
        data[position] ^= 1 << bit
    path.write_bytes(data)
    return f"bits {flips} of {len(data)} bytes"


def _repeated(path: Path, rng: random.Random) -> str:
    data = path.read_bytes()
    if path.name.endswith(TEXTS):
        lines = data.splitlines(keepends=True)
        number = rng.randrange(len(lines)) if lines else 0
        lines[number:number] = lines[number : number + 1]
        if len(lines) > 3 and number >= 2:  # One more entry is declared too.
            lines[1] = b"%d\n" % (len(lines) - 2)
        path.write_bytes(b"".join(lines))
        return f"line {number + 1}"
    entry = ENTRY_BYTES.get(path.suffix, 1)
    start = rng.randrange(max(len(data), 1)) // entry * entry
    end = min(len(data), start + entry * rng.randint(1, 40))
    path.write_bytes(data[:end] + data[start:])
    return f"bytes {start} to {end}"


def _of_another_version(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if path.name.endswith(TEXTS):
        written = bytes(data).replace(b"0", b"%d" % rng.choice([1, 2, 7]), 1)
        path.write_bytes(written)
        return f"begins with {written[:20]!r}"
    place = {".log": 16, ".snapshot": 1, ".txnindex": rng.choice([0, 1])}.get(path.suffix, 0)
    if place < len(data):
        data[place] = rng.choice([0, 1, 2, 3, 7, 255])
    path.write_bytes(data)
    return f"byte {place} is {data[place] if place < len(data) else None}"


def _mistyped(path: Path, rng: random.Random) -> str:
    """In a text a letter for a digit of the last line, elsewhere another byte for one."""
    data = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit() or not path.name.endswith(TEXTS)]
    last_line = bytes(data).rstrip(b"\n").rfind(b"\n") if path.name.endswith(TEXTS) else -1
    digits = [place for place in digits if place > last_line]
    if not digits:
        return "no digit"
    place = rng.choice(digits)
    data[place] = ord("x")
    path.write_bytes(data)
    return f"x at {place}"


def _padded(path: Path, rng: random.Random) -> str:
    size = rng.choice([1, 12, 24, 100, 4096]) * rng.choice([1, ENTRY_BYTES.get(path.suffix, 1)])
    path.write_bytes(path.read_bytes() + bytes(size))
    return f"{size} zero bytes"


def _zeroed(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    start = rng.randrange(max(len(data), 1))
    end = rng.choice([len(data), min(len(data), start + rng.randint(1, 100))])
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"zeros from {start} to {end} of {len(data)}"


def _of_another_time(path: Path, rng: random.Random) -> str:
    days = rng.choice([-4000, -30, -1, 1, 30])
    changed = path.stat().st_mtime + days * 86_400
    os.utime(path, (changed, changed))
    return f"{days} days"


def _of_another_file(path: Path, rng: random.Random) -> str:
    others = [each for each in sorted(path.parent.parent.glob(f"*/*{path.suffix}")) if each != path and path.suffix]
    if not others:
        return "none"
    other = rng.choice(others)
    shutil.copyfile(other, path)
    return f"the bytes of {other.parent.name}/{other.name}"


DAMAGES: dict[str, Callable[[Path, random.Random], str]] = {
    "lost": _lost,
    "empty": _emptied,
    "cut": _cut,
    "flipped": _flipped,
    "repeated": _repeated,
    "version": _of_another_version,
    "mistyped": _mistyped,
    "padded": _padded,
    "zeroed": _zeroed,
    "time": _of_another_time,
    "swapped": _of_another_file,
}
