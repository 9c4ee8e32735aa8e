"""The result of a count. `docs/keys.md` defines each number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from kcompact.errors import KcompactError
from kcompact.plan.clean_plan import Role
from kcompact.values import dataclass

HASH_DIGITS = 16


def key_hash(key: bytes) -> str:
    """Return what is shown instead of a key: the beginning of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:HASH_DIGITS]


class Tally(NamedTuple):
    """How many there are, and their bytes."""

    number: int = 0
    size_bytes: int = 0


NO_TALLY = Tally()


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of some tallies."""
    summands = list(tallies)
    return Tally(sum(each.number for each in summands), sum(each.size_bytes for each in summands))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The records of a section by class; added with `+`. Each record of the log is in exactly one class.

    `live_keys` are the newest records of keys, if they have a value; the tombstones are those that are newest. The
    bytes of a record are its encoded size in the uncompressed batch, the bytes of a batch those on the disk.
    """

    live_keys: Tally = NO_TALLY
    superseded_records: Tally = NO_TALLY
    unstamped_tombstones: Tally = NO_TALLY
    waiting_tombstones: Tally = NO_TALLY
    expired_tombstones: Tally = NO_TALLY
    null_key_records: Tally = NO_TALLY
    control_records: Tally = NO_TALLY
    aborted_records: Tally = NO_TALLY
    undecided_records: Tally = NO_TALLY
    below_start_records: Tally = NO_TALLY
    empty_batches: Tally = NO_TALLY
    batches: Tally = NO_TALLY

    def __add__(self, other: KeyCounts) -> KeyCounts:
        return KeyCounts(
            **{each.name: total((getattr(self, each.name), getattr(other, each.name))) for each in fields(self)}
        )

    @classmethod
    def sum(cls, counts: Iterable[KeyCounts]) -> KeyCounts:
        """Return the sum of several sections."""
        summed_counts = cls()
        for each in counts:
            summed_counts += each
        return summed_counts

    @property
    def latest_tombstones(self) -> Tally:
        """The tombstones that are the newest records of their keys."""
        return total((self.unstamped_tombstones, self.waiting_tombstones, self.expired_tombstones))

    @property
    def data_records(self) -> Tally:
        """The records that a `read_committed` reader sees."""
        return total((self.live_keys, self.superseded_records, self.latest_tombstones, self.null_key_records))

    @property
    def records(self) -> Tally:
        """All records."""
        return total(
            (
                self.data_records,
                self.control_records,
                self.aborted_records,
                self.undecided_records,
                self.below_start_records,
            )
        )

    @property
    def duplicate_factor(self) -> float | None:
        """The records with a key for each key that a `read_committed` reader sees; None without a key."""
        keys = self.live_keys.number + self.latest_tombstones.number
        return (keys + self.superseded_records.number) / keys if keys else None


class SegmentKeys(NamedTuple):
    """The counts of one segment."""

    base_offset: int
    role: Role
    counts: KeyCounts


class NamedKey(NamedTuple):
    """A key: its newest record, and all its records that a `read_committed` reader sees."""

    key: bytes
    offset: int
    timestamp_ms: int
    is_tombstone: bool
    versions: int
    size_bytes: int
    latest_bytes: int


class VersionsBin(NamedTuple):
    """How many keys have so many versions, both limits included, and their records."""

    least: int
    most: int
    keys: int
    records: int


class AgeBin(NamedTuple):
    """Live keys by the age of their newest record. `below_ms` is None in the last bin of ages.

    `kind` is `age`, or `future` for timestamps above the time of the count, or `unknown` for records without one.
    """

    kind: str
    below_ms: int | None
    live_keys: Tally


class PrefixKeys(NamedTuple):
    """The keys with a prefix; None are the keys without the separator."""

    prefix: bytes | None
    keys: int
    records: Tally
    live_keys: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCounts:
    """The keys by prefix. `count` is the number of rows: different prefixes, and one row for the keys without any.

    Without `is_complete` there are more, and the numbers of the listed rows may be too small.
    """

    separator: bytes
    count: int
    is_complete: bool
    most_records: tuple[PrefixKeys, ...]
    most_bytes: tuple[PrefixKeys, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeys:
    """What the keys of one partition add up to.

    Readers of committed records see the log from `log_start_offset` up to `committed_end_offset`: the last stable
    offset, or less if it lies inside a batch or depends on what is damaged. `counted_to_offset` is the offset after the
    last record that was counted: the log end, or less if `problem` ended the count. `keys` are
    different keys, live ones and tombstones. `old` are the live keys that are older than asked, None if that was not
    asked; `oldest` are the oldest of them.
    """

    directory: Path
    log_start_offset: int
    committed_end_offset: int
    counted_to_offset: int
    segments: tuple[SegmentKeys, ...]
    keys: int = 0
    versions: tuple[VersionsBin, ...] = ()
    ages: tuple[AgeBin, ...] = ()
    old: Tally | None = None
    most_versions: tuple[NamedKey, ...] = ()
    most_bytes: tuple[NamedKey, ...] = ()
    oldest: tuple[NamedKey, ...] = ()
    prefixes: PrefixCounts | None = None
    problem: KcompactError | None = None

    @property
    def counts(self) -> KeyCounts:
        """The counts of the whole partition."""
        return KeyCounts.sum(each.counts for each in self.segments)

    @property
    def sections(self) -> dict[Role, KeyCounts]:
        """The counts by role of the segments."""
        return {
            role: KeyCounts.sum(each.counts for each in self.segments if each.role is role)
            for role in Role
            if any(each.role is role for each in self.segments)
        }


class SharedNamedKey(NamedTuple):
    """A key that several partitions hold: their directories, the records of the key in all of them, their bytes."""

    key: bytes
    directories: tuple[Path, ...]
    versions: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedKeys:
    """The result of a count of several partitions together.

    `failed` has the error of each partition that could not be counted at all. `distinct_keys` are the different keys of
    all partitions, `shared_keys` those that several hold, and `most_shared` the ones that most hold.
    """

    logs: tuple[LogKeys, ...] = ()
    failed: tuple[tuple[Path, KcompactError], ...] = ()
    distinct_keys: int = 0
    shared_keys: int = 0
    most_shared: tuple[SharedNamedKey, ...] = ()

    @property
    def counts(self) -> KeyCounts:
        """The sum of the counts of all partitions."""
        return KeyCounts.sum(each.counts for each in self.logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """What to count. `top` limits each list of keys; `separator` ends the prefix of a key, empty for no prefixes."""

    top: int = 10
    separator: bytes = b""
    older_than_ms: int | None = None
    memory_bytes: int | None = None
