"""Which records are chosen: the conditions, and the decision about a run of records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels import columns as c
from kcompact.log.transactions import Outcome
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.kernels import Column, Mask
    from kcompact.log.records import RecordRun
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

    def mask_of(self, run: RecordRun, outcomes: TransactionEnds | None = None) -> Mask:
        """Return which records of a run are chosen. `outcomes` are needed for a condition on transactions."""
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


def _any_of(row_numbers: Sequence[Column]) -> Column:
    rows: Column = np.unique(np.concatenate(row_numbers)) if len(row_numbers) > 1 else row_numbers[0]
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
