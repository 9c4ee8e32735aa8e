"""Which records are chosen: the conditions, and the decision about one record. `record_masks` decides about runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from kcompact.format.batch import Header, Record


class Transactional(StrEnum):
    """What a record has to do with transactions. A marker belongs to the transaction that it ends."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    NONE = "none"


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
