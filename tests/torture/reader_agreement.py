"""Damaged batches: kcompact reads none that Kafka's own reader refuses, and the same records where both read.

`python -m tests.torture.reader_agreement SEED NUMBER` shows one mutant and both verdicts.
"""

from __future__ import annotations

import hashlib
import random
import re
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kcompact.errors import CorruptDataError, KcompactError
from tests.oracle.real_kafka import RealKafka
from tests.support.both_readers import Readers, definition, encoded
from tests.support.mutants import Batches
from tests.torture.tally import Tally

MUTANTS = 100_000
_ROUND = 4_000
_NUMBERS = re.compile(r"0x[0-9a-f]+|-?[\d,]*\d")


class Verdict(NamedTuple):
    """Why a reader refuses the bytes, "" if it reads them; how many bytes it read, and the digest of the records."""

    error: str
    read_bytes: int
    digest: bytes


def run(*, share: float, seed: int) -> Tally:
    """Compare the verdicts on `share` of MUTANTS mutants."""
    tally, readers = Tally(), Readers()
    with RealKafka() as kafka, tempfile.TemporaryDirectory() as scratch:
        for first in range(0, int(MUTANTS * share), _ROUND):
            mutants = [mutant(seed, number) for number in range(first, first + _ROUND)]
            verdicts = by_kafka(kafka, mutants, Path(scratch))
            for number, (data, theirs) in enumerate(zip(mutants, verdicts, strict=True), start=first):
                _compare(tally, readers, data, theirs, f"mutant {number} of seed {seed}")
    return tally


_POOLS: dict[int, Batches] = {}


def mutant(seed: int, number: int) -> bytes:
    """Return one mutant."""
    if seed not in _POOLS:
        _POOLS[seed] = Batches(random.Random(f"{seed} pool"))
    return _POOLS[seed].several(random.Random(f"{seed} {number}"))


def by_kcompact(data: bytes) -> Verdict:
    """Return the verdict of the definitions."""
    digest = hashlib.sha256()
    try:
        found = definition(data)
    except KcompactError as problem:
        return Verdict(problem.problem if isinstance(problem, CorruptDataError) else str(problem), 0, b"")
    for _, records in found:
        for record in records:
            digest.update(encoded(record))
    return Verdict("", len(data), digest.digest())


def by_kafka(kafka: RealKafka, mutants: list[bytes], scratch: Path) -> Iterator[Verdict]:
    """Yield Kafka's verdicts."""
    source, target = scratch / "mutants", scratch / "verdicts"
    framed = [struct.pack(">i", len(data)) + data for data in mutants]
    source.write_bytes(b"".join(framed) + struct.pack(">i", -1))
    kafka.call("mutants", input=source, output=target)
    verdicts, at = target.read_bytes(), 0
    for _ in mutants:
        (length,) = struct.unpack_from(">H", verdicts, at)
        at += 2 + length
        (read_bytes,) = struct.unpack_from(">i", verdicts, at)
        yield Verdict(verdicts[at - length : at].decode(), read_bytes, verdicts[at + 4 : at + 36])
        at += 36


def _compare(tally: Tally, readers: Readers, data: bytes, theirs: Verdict, where: str) -> None:
    ours = by_kcompact(data)
    by_kernels = readers.by_kernels(data) is not None
    if by_kernels and ours.error:
        tally.fail(f"{where}: the kernels read what the definitions refuse: {ours.error}")
    elif ours.error and theirs.error:
        tally.count("refused by both")
    elif ours.error:
        tally.count(f"stricter: {_NUMBERS.sub('N', ours.error)[:60]}")
    elif theirs.error.startswith("OutOfMemoryError"):
        tally.count("read, and Kafka allocated a declared size greater than its heap")
    elif theirs.error:
        tally.fail(f"{where}: Kafka refuses it: {theirs.error}")
    elif ours != theirs:
        tally.fail(f"{where}: other records, or {theirs.read_bytes} of {len(data)} bytes read by Kafka")
    else:
        tally.count("read alike" + (", also by the kernels" if by_kernels else ""))


def main(seed: int, number: int) -> None:
    """Print one mutant and both verdicts."""
    data = mutant(seed, number)
    with RealKafka() as kafka, tempfile.TemporaryDirectory() as scratch:
        print(data.hex(), by_kcompact(data), *by_kafka(kafka, [data], Path(scratch)), sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
