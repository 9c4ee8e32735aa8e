"""Producer snapshots: the producer state of a partition at an offset of its log.

A broker writes one when it rolls a segment and at a clean shutdown. At startup it reads the latest snapshot and only
the log behind it, instead of the whole log.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kcompact.errors import CorruptCheckpointError
from kcompact.format.checksum import crc32c
from kcompact.format.text_lines import NEWER_FILE

SNAPSHOT_VERSION = 1
SNAPSHOT_HEADER_STRUCT = struct.Struct(">hIi")
PRODUCER_ENTRY_STRUCT = struct.Struct(">qhiqiqiq")
HEADER_BYTES = 10
ENTRY_BYTES = 46

_CRC_START = 6


class ProducerEntry(NamedTuple):
    """The state of one producer, fields in stored order.

    `last_sequence`, `last_offset` and `offset_delta` are those of its last data batch, or -1, -1 and 0 without one.
    `timestamp` is in Unix milliseconds. `current_txn_first_offset` is -1 when no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def parse_snapshot(data: bytes, *, file: str) -> tuple[ProducerEntry, ...]:
    """Return the producers of a `.snapshot`, in file order. The order has no meaning.

    Raises CorruptCheckpointError for a version other than 1, a wrong length or checksum, or a repeated producer id.
    Rule: ProducerStateManager.readSnapshot.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptCheckpointError(
            file=file, problem=f"a producer snapshot of {len(data)} bytes is too short", position=len(data)
        )
    version, crc, count = SNAPSHOT_HEADER_STRUCT.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        problem = f"snapshot version {version} is unknown"
        raise CorruptCheckpointError(file=file, problem=problem, position=0, hint=NEWER_FILE)
    if count < 0 or len(data) != HEADER_BYTES + count * ENTRY_BYTES:
        problem = f"{count} producers declared in a snapshot of {len(data):,} bytes"
        raise CorruptCheckpointError(file=file, problem=problem, position=_CRC_START)
    computed = crc32c(data[_CRC_START:])
    if crc != computed:
        raise CorruptCheckpointError(file=file, problem=f"checksum {computed:#010x}, stored {crc:#010x}", position=2)
    entries = tuple(map(ProducerEntry._make, PRODUCER_ENTRY_STRUCT.iter_unpack(memoryview(data)[HEADER_BYTES:])))
    if len({entry.producer_id for entry in entries}) < len(entries):
        raise CorruptCheckpointError(file=file, problem="a producer id is repeated", position=HEADER_BYTES)
    return entries
