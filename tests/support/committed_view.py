"""What a reader of committed records sees in a partition directory, by its markers alone.

Reads the bytes of the files itself and shares no code with kcompact. `committed_view` is for batches of format 2.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.plain_records import CONTROL, HEADER, TRANSACTIONAL, Record, inflated, records_in

_ENTRY = struct.Struct(">hqqqq")


def committed_view(directory: Path) -> dict[bytes | None, bytes]:
    """Return the newest committed value of each key; keys whose newest record is a tombstone are left out."""
    waiting: dict[int, list[Record]] = {}
    newest: dict[bytes | None, tuple[int, bytes | None]] = {}

    def commit(records: list[Record]) -> None:
        for offset, key, value in records:
            if key not in newest or newest[key][0] < offset:
                newest[key] = (offset, value)

    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            fields = HEADER.unpack_from(data, at)
            end = at + 12 + fields[1]
            base_offset, attributes, producer_id, count = fields[0], fields[5], fields[9], fields[12]
            records = records_in(inflated(data[at + HEADER.size : end], attributes), base_offset, count)
            if attributes & CONTROL:
                ended = waiting.pop(producer_id, []) if records else []
                if records and _kind(records[0]) == 1:
                    commit(ended)
            elif attributes & TRANSACTIONAL:
                waiting.setdefault(producer_id, []).extend(records)
            else:
                commit(records)
            at = end
    return {key: value for key, (_, value) in newest.items() if value is not None}


def misleads(directory: Path, log_start_offset: int) -> bool:
    """Whether a `.txnindex` says something else than the markers about records from the log start on."""
    begun: dict[int, int] = {}
    ended: dict[int, int] = {}
    for path in sorted(directory.glob("*.log")):
        index = path.with_suffix(".txnindex")
        entries = list(_ENTRY.iter_unpack(index.read_bytes())) if index.exists() else []
        aborted = {last: (producer_id, first) for _, producer_id, first, last, _ in entries if last >= log_start_offset}
        data, at = path.read_bytes(), 0
        while at < len(data):
            start, at = at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if data[start + 16] < 2:
                continue
            fields = HEADER.unpack_from(data, start)
            offset, attributes, producer_id = fields[0], fields[5], fields[9]
            if offset + fields[6] < log_start_offset:
                continue
            if attributes & CONTROL:
                if not fields[12]:
                    continue
                content = inflated(data[start + HEADER.size : at], attributes)
                marker, *_ = records_in(content, offset, 1)
                first = begun.pop(producer_id, None)
                if _kind(marker) == 0:
                    entry = aborted.pop(offset, None)
                    if entry is None and first is not None:
                        return True
                    if entry is not None:
                        is_right = entry[0] == producer_id and entry[1] > ended.get(producer_id, -1)
                        if not is_right or (first is not None and entry[1] > first):
                            return True
                ended[producer_id] = offset
            elif attributes & TRANSACTIONAL and fields[12]:
                begun.setdefault(producer_id, offset)
        if aborted:
            return True
    return False


def _kind(record: Record) -> int:
    """Return the kind of a marker: 0 is ABORT, 1 is COMMIT."""
    _, key, _ = record
    assert key is not None
    return key[3]
