"""One replica of a partition: its files, and what their headers say, before any record is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kcompact.errors import CorruptDataError, StorageError
from kcompact.format.batch import Batch
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix
from kcompact.format.producer_snapshot import parse_snapshot
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import HeaderTable, header_tables
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.past_damage import readable_batches
from kcompact.log.segments import Segment
from kcompact.log.transaction_index import Transactions, read_transaction_index
from kcompact.log.transactions import readable_transactions
from kcompact.questions.compare.epochs import EpochRun, add_epochs, out_of_order
from kcompact.questions.compare.producer_epochs import UnendedBatches
from kcompact.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica of a partition, with its epochs and its transactional and control batches.

    `wrong_epochs` are those that contradict the epochs around them, `wrong_offsets` where batches have offsets that
    contradict their neighbours or their segment: both what they say, and where they should be. `unended` are the base
    offsets of data batches that the next marker does not end.
    """

    log: PartitionLog
    epochs: list[EpochRun]
    wrong_epochs: Sequence[EpochRun]
    wrong_offsets: Sequence[range]
    transactions: Table
    unended: Column

    @classmethod
    def read(cls, log: PartitionLog) -> Replica:
        """Read the headers of a log. Raises RefusedError, StorageError."""
        epochs, unended, wrong_offsets = list[EpochRun](), UnendedBatches(), list[range]()
        last_offset = -1
        for segment, file in zip(log.segments, files_of(log), strict=True):
            bounds = range(segment.base_offset, log.end_of(segment))
            for table in _readable_headers(*file):
                is_misplaced, offsets = _misplaced(table, last_offset, bounds)
                add_epochs(epochs, table[~is_misplaced] if offsets else table)
                unended.add(table)
                wrong_offsets += offsets
                last_offset = max(last_offset, int(table[:, c.LAST_OFFSET].max()))
        wrong = out_of_order(epochs)
        return cls(
            log=log,
            epochs=[run for run in epochs if run not in wrong],
            wrong_epochs=wrong,
            wrong_offsets=wrong_offsets,
            transactions=readable_transactions(files_of(log)),
            unended=unended.offsets,
        )

    def transactions_below(self, end_offset: int) -> Table:
        """Return the transactional and control batches that end below an offset."""
        below: Table = self.transactions[self.transactions[:, c.TXN_LAST_OFFSET] < end_offset]
        return below

    def is_empty_at(self, offset: int) -> bool:
        """Return whether the segment of an offset is an empty file."""
        segment = self.log.segment_at(offset) or self.log.segments[0]
        return not segment.size_bytes

    @property
    def high_watermark(self) -> int:
        """That of its broker's checkpoint, 0 without one."""
        return (self.log.log_dir.high_watermarks or {}).get(self.log.topic_partition, 0)

    @property
    def committed_offset(self) -> int:
        """The offset below which the replica has had all records, by its high watermark and its recovery point."""
        return max(self.high_watermark, (self.log.log_dir.recovery_points or {}).get(self.log.topic_partition, 0))

    @property
    def known_offset(self) -> int:
        """The offset up to which the replica has had records once, at least: the log end, or above it.

        A truncation to an offset can leave a log that ends below it, because a cleaning had removed what lies between.
        A checkpoint or a snapshot still names the greater offset.
        """
        log, partition = self.log, self.log.topic_partition
        checkpoints = (log.log_dir.cleaner_offsets, log.log_dir.recovery_points, log.log_dir.high_watermarks)
        known = [offsets[partition] for offsets in checkpoints if offsets and partition in offsets]
        return max((log.log_end_offset, *known, *log.snapshots))

    @cached_property
    def open_producers(self) -> frozenset[int] | None:
        """The producers with an open transaction, by the snapshot at the log end; None without one that is sound.

        Without it a broker replays the log. Raises RefusedError, StorageError.
        """
        identity = self.log.snapshots.get(self.log.log_end_offset)
        if identity is None:
            return None
        file = self.log.file(identity.name)
        try:
            entries = parse_snapshot(file.read(), file=str(file))
        except CorruptDataError:
            return None
        return frozenset(entry.producer_id for entry in entries if entry.current_txn_first_offset >= 0)

    def is_open(self, producer_id: int) -> bool:
        """Return whether a broker takes a transaction for open that has no marker in the log."""
        return self.open_producers is None or producer_id in self.open_producers

    def unindexed_aborts(self) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions whose entry is missing in the `.txnindex` of the segment with their marker.

        An index that cannot be read does not count, and none of a segment that a broker recovers: it makes those anew
        when it starts. Raises StorageError.
        """
        expected = Transactions().entries([self.transactions])
        indexes = dict[int, frozenset[tuple[int, int]] | None]()
        for entry in expected:
            segment = self.log.segment_at(entry.last_offset) or self.log.segments[0]
            if segment.base_offset not in indexes:
                indexes[segment.base_offset] = self._indexed(segment)
            known = indexes[segment.base_offset]
            if known is not None and (entry.producer_id, entry.last_offset) not in known:
                yield entry

    def _indexed(self, segment: Segment) -> frozenset[tuple[int, int]] | None:
        """Return the producers and the markers that the `.txnindex` of a segment has, None if it cannot be read."""
        if self.log.recovers(segment):
            return None
        if not segment.has(Suffix.TXN_INDEX):
            return frozenset()
        try:
            entries = read_transaction_index(self.log.file(segment.log_name).with_suffix(Suffix.TXN_INDEX))
        except CorruptDataError:
            return None
        return frozenset((entry.producer_id, entry.last_offset) for entry in entries)


def _readable_headers(file: LogFile, end_position: int) -> Iterator[Table]:
    """Yield tables i64[n, COLUMNS] of the readable batches of a log file. Raises RefusedError, StorageError."""
    position, last_offset = 0, -1
    try:
        for table in header_tables(file, end_position=end_position):
            position, last_offset = int(table[-1, c.POSITION] + table[-1, c.SIZE]), int(table[-1, c.LAST_OFFSET])
            yield table
    except (CorruptDataError, StorageError):
        rest = readable_batches(file, start_position=position, after_offset=last_offset, end_position=end_position)
        headers = HeaderTable()
        for each in rest:
            if isinstance(each, Batch):
                headers.append(each.position, each.header)
        if len(headers):
            yield headers.table()


def _misplaced(table: Table, last_offset: int, bounds: range) -> tuple[npt.NDArray[np.bool_], list[range]]:
    """Return which batches do not follow `last_offset` or lie outside of their segment, and the offsets around each.

    The checksum does not cover the base offset.
    """
    bases, lasts = table[:, c.BASE_OFFSET], table[:, c.LAST_OFFSET]
    before = np.concatenate(([last_offset], np.maximum.accumulate(lasts)[:-1]))
    is_wrong = (bases <= before) | (bases < bounds.start) | (lasts >= bounds.stop)
    offset_ranges = []
    for row in np.flatnonzero(is_wrong).tolist():
        expected = int(before[row]) + 1, int(bases[row + 1]) if row + 1 < len(bases) else bounds.stop
        offset_ranges.append(range(min(expected[0], int(bases[row])), max(expected[1], int(lasts[row]) + 1)))
    return is_wrong, offset_ranges


def files_of(log: PartitionLog) -> list[tuple[LogFile, int]]:
    """Return the log files of a partition, each with the size up to which it counts."""
    return [(log.file(segment.log_name), segment.size_bytes) for segment in log.segments]
