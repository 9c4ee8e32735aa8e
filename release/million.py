"""The log of a million records with which the promised processor time and memory are measured.

No codec, batches as a producer with the default `batch.size` fills them, one segment behind the active one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from kcompact.format.batch import Record, build
from tests.support import log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec

RECORDS = 1_000_000
KEYS = 100_000
BATCH_RECORDS = 130
VALUE_BYTES = 98
"""With a key of 9 bytes, the log has 117 MB."""
_VALUES = 1_000


def write(log_dir: Path) -> Path:
    """Write the log into a new log directory, always the same bytes, in a few seconds; return the log directory."""
    active = build([Record(RECORDS, DEFAULT_TIME, b"active", b"")])
    directory = log_writer.write(LogSpec(segments=(SegmentSpec(base_offset=RECORDS, batches=(active,)),)), log_dir)
    log_writer.write_segment(directory, 0, _batches())
    return log_dir


def _batches() -> Iterator[bytes]:
    """Yield the batches of the segment that is cleaned. Each key comes ten times on average, in random order."""
    chance = random.Random(1)
    values = [chance.randbytes(VALUE_BYTES) for _ in range(_VALUES)]
    for base in range(0, RECORDS, BATCH_RECORDS):
        offsets = range(base, min(base + BATCH_RECORDS, RECORDS))
        yield build(
            [
                Record(offset, DEFAULT_TIME, b"key%06d" % chance.randrange(KEYS), chance.choice(values))
                for offset in offsets
            ]
        )
