"""The groups of a log, counted batch by batch: the definition of `GroupCounter.add_run`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kcompact.format.batch import Batch, Record, read_records, verify_crc
from kcompact.log.markers import read_marker
from kcompact.questions.groups import RECORD_OVERHEAD_BYTES, GroupCounter


class DefinedGroups(GroupCounter):
    """Counts what groups have, batch by batch."""

    def add(self, batch: Batch, *, file: str) -> None:
        """Add the records of a batch. Raises CorruptBatchError, BatchTooLargeError."""
        header = batch.header
        verify_crc(batch, file=file)
        if header.is_control:
            self._end_transaction(header.producer_id, read_marker(batch, file=file))
            self._other_bytes += header.size_bytes
            return
        records = read_records(batch, file=file)
        if not records:
            self._other_bytes += header.size_bytes
        for record, size_bytes in zip(records, shares(header.size_bytes, records), strict=True):
            self._add_one(record, header, size_bytes)


def shares(batch_bytes: int, records: Sequence[Record]) -> list[int]:
    """Return the bytes of a batch, divided among its records by their sizes."""
    ends = list(accumulate(len(each.key or b"") + len(each.value or b"") + RECORD_OVERHEAD_BYTES for each in records))
    return [
        batch_bytes * end // ends[-1] - batch_bytes * start // ends[-1]
        for start, end in zip([0, *ends], ends, strict=False)
    ]
