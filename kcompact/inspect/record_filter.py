"""Which records are chosen: the conditions, and the decision about one record, or about a run of records by columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kcompact.format.batch import Header, Record
from kcompact.kernels import columns as c
from kcompact.log.transactions import Outcome

if TYPE_CHECKING:
    from kcompact.kernels import Column
    from kcompact.log.records import Mask, RecordRun
    from kcompact.log.transactions import TransactionEnds


class Transactional(StrEnum):
    """What a record has to do with transactions. A marker belongs to the transaction that it ends."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    NONE = "none"


_OUTCOMES = {
    Transactional.COMMITTED: Outcome.COMMITTED,
    Transactional.ABORTED: Outcome.ABORTED,
    Transactional.OPEN: Outcome.OPEN,
    Transactional.NONE: Outcome.NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """The conditions that a record must all fulfil. One with several values is fulfilled by any of them.

    `from_offset` and `since_ms` are the first that are chosen, `until_offset` and `until_ms` the first that are not.
    A marker has no key, and is no tombstone.
    """

    offsets: tuple[int, ...] = ()
    from_offset: int | None = None
    until_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    keys: tuple[bytes, ...] = ()
    key_prefixes: tuple[bytes, ...] = ()
    key_hashes: tuple[str, ...] = ()
    """The first hexadecimal digits of the SHA-256 of a key."""
    producer_ids: tuple[int, ...] = ()
    leader_epochs: tuple[int, ...] = ()
    transactions: tuple[Transactional, ...] = ()
    tombstones: bool = False

    @property
    def first_offset(self) -> int:
        """No record below this offset is chosen."""
        return max(self.from_offset or 0, min(self.offsets, default=0))

    @property
    def end_offset(self) -> int | None:
        """No record from this offset on is chosen. None: there is no limit."""
        ends = [] if self.until_offset is None else [self.until_offset]
        ends += [max(self.offsets) + 1] if self.offsets else []
        return min(ends, default=None)

    def contradiction(self) -> str:
        """Return why no record of any log is chosen, "" if one may be. The words are those of the options."""
        if self.until_offset == 0:
            return "no offset is below 0"
        if self.end_offset is not None and self.end_offset <= self.first_offset:
            return "the offsets exclude each other"
        if self.since_ms is not None and self.until_ms is not None and self.until_ms <= self.since_ms:
            return "--until is not after --since"
        if self.key_prefixes and self.keys and not any(key.startswith(self.key_prefixes) for key in self.keys):
            return "no --key has the --key-prefix"
        return ""

    def chooses(self, header: Header, record: Record) -> bool:
        """Return whether a record of a batch is chosen, whatever became of its transaction."""
        return (
            (not self.offsets or record.offset in self.offsets)
            and (self.from_offset is None or record.offset >= self.from_offset)
            and (self.until_offset is None or record.offset < self.until_offset)
            and (self.since_ms is None or record.timestamp >= self.since_ms)
            and (self.until_ms is None or record.timestamp < self.until_ms)
            and (not self.producer_ids or header.producer_id in self.producer_ids)
            and (not self.leader_epochs or header.partition_leader_epoch in self.leader_epochs)
            and (not self._is_about_keys or self._chooses_key(None if header.is_control else record.key))
            and (not self.tombstones or record.value is None)
        )

    @property
    def _is_about_keys(self) -> bool:
        return bool(self.keys or self.key_prefixes or self.key_hashes or self.tombstones)

    def _chooses_key(self, key: bytes | None) -> bool:
        return (
            key is not None
            and (not self.keys or key in self.keys)
            and (not self.key_prefixes or key.startswith(self.key_prefixes))
            and (not self.key_hashes or hashlib.sha256(key).hexdigest().startswith(self.key_hashes))
        )

    # Runs of records

    def mask_of(self, run: RecordRun, outcomes: TransactionEnds | None = None) -> Mask:
        """Return which records of a run are chosen. `outcomes` are needed for a condition on transactions."""
        import numpy as np

        batches = self._batches(run, outcomes)
        mask = np.ones(len(run), bool) if batches.all() else batches[run.batch]
        if self.offsets:
            mask &= np.isin(run.offset, self.offsets)
        for column, least, end in (
            (run.offset, self.from_offset, self.until_offset),
            (run.timestamp, self.since_ms, self.until_ms),
        ):
            if least is not None:
                mask &= column >= least
            if end is not None:
                mask &= column < end
        if self.tombstones:
            mask &= (run.value_size < 0) & (run.key_size >= 0) & ~_is_control(run)
        if self.keys or self.key_prefixes or self.key_hashes:
            self._choose_keys(run, mask)
        return mask

    def _batches(self, run: RecordRun, outcomes: TransactionEnds | None) -> Mask:
        """Return which batches of a run may have chosen records."""
        import numpy as np

        table = run.table
        mask = np.ones(len(table), bool)
        if self.producer_ids:
            mask &= np.isin(table[:, c.PRODUCER_ID], self.producer_ids)
        if self.leader_epochs:
            mask &= np.isin(table[:, c.EPOCH], self.leader_epochs)
        if self.transactions:
            assert outcomes is not None, "the outcomes of the transactions"
            mask &= np.isin(outcomes.of(table), [_OUTCOMES[one] for one in self.transactions])
        return mask

    def _choose_keys(self, run: RecordRun, mask: Mask) -> None:
        """Clear the records whose keys are not chosen."""
        import numpy as np

        mask &= (run.key_size >= 0) & ~_is_control(run)
        rows = np.flatnonzero(mask)
        mask[:] = False
        if self.keys:
            rows = _any_of([_with_prefix(run, rows[run.key_size[rows] == len(key)], key) for key in self.keys])
        if self.key_prefixes:
            rows = _any_of([_with_prefix(run, rows, prefix) for prefix in self.key_prefixes])
        if self.key_hashes:
            data, starts = run.data.data, run.key_start[rows]
            spans = zip(starts.tolist(), (starts + run.key_size[rows]).tolist(), strict=True)
            hashes = (hashlib.sha256(data[start:end]).hexdigest() for start, end in spans)
            rows = rows[np.fromiter((digits.startswith(self.key_hashes) for digits in hashes), bool, len(rows))]
        mask[rows] = True


def _any_of(found: Sequence[Column]) -> Column:
    import numpy as np

    rows: Column = np.unique(np.concatenate(found)) if len(found) > 1 else found[0]
    return rows


def _with_prefix(run: RecordRun, rows: Column, prefix: bytes) -> Column:
    """Return those of the rows whose keys begin with these bytes."""
    rows = rows[run.key_size[rows] >= len(prefix)]
    for at, byte in enumerate(prefix):
        if not len(rows):
            break
        rows = rows[run.data[run.key_start[rows] + at] == byte]
    return rows


def _is_control(run: RecordRun) -> Mask:
    is_control: Mask = run.batch_column(c.ATTRIBUTES) & c.CONTROL_BIT != 0
    return is_control
