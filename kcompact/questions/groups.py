"""Counts what the groups of a `__consumer_offsets` partition have: members, offsets, tombstones, bytes.

The newest record of a key holds, as for the group coordinator, which reads the partition from its start. An offset that
was committed in a transaction counts from the transaction's commit on; until then it is pending. An offset whose
record is later in the log stays, even if the transaction ends after it.
Rules: `GroupMetadataManager.replay`, `OffsetMetadataManager.replay` and `replayEndTransactionMarker`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from kcompact.errors import KcompactError, storage_errors
from kcompact.format.batch import Header, Record
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.messages.consumer_offsets import (
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_METADATA,
    GROUP_METADATA,
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    SHARE_GROUP_MEMBER_METADATA,
    SHARE_GROUP_METADATA,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_METADATA,
)
from kcompact.format.messages.coordinators import decode, decode_value
from kcompact.format.names import CONSUMER_OFFSETS, Suffix, Temporary, parse_file_name
from kcompact.kernels import Column
from kcompact.kernels import columns as c
from kcompact.log.files import Files, LogFile
from kcompact.log.markers import Marker, are_control, marker_of
from kcompact.log.records import RecordRun
from kcompact.stages.fold import Fold, fold_files
from kcompact.values import dataclass

RECORD_OVERHEAD_BYTES = 7
"""What a record has beside its key and its value, if its lengths and differences are small."""

_OFFSETS = frozenset({LEGACY_OFFSET_COMMIT.number, OFFSET_COMMIT.number})
_LEGACY_PREFIX, _OFFSET_PREFIX = (each.number.to_bytes(2, "big") for each in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT))
_MEMBERS = frozenset(
    each.number for each in (CONSUMER_GROUP_MEMBER_METADATA, SHARE_GROUP_MEMBER_METADATA, STREAMS_GROUP_MEMBER_METADATA)
)


class GroupType(StrEnum):
    """What a group is, by its newest records."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    SIMPLE = "simple"  # Offsets were committed for it, but it never had members.
    UNKNOWN = "unknown"  # It has records, but none that says what it is.
    DELETED = "deleted"  # Tombstones, and records that they have removed.


_TYPES = {
    GROUP_METADATA.number: GroupType.CLASSIC,
    CONSUMER_GROUP_METADATA.number: GroupType.CONSUMER,
    SHARE_GROUP_METADATA.number: GroupType.SHARE,
    STREAMS_GROUP_METADATA.number: GroupType.STREAMS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContents:
    """What one group has. `live_bytes` are those of the newest records, without tombstones.

    The bytes of a batch are divided among its records by their sizes, so that the groups' bytes add up to the log's.
    `members` is None if the record of a classic group cannot be decoded.
    """

    group: str
    type: GroupType
    members: int | None
    offsets: int
    pending_offsets: int
    tombstones: int
    records: int
    size_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroups:
    """The groups of a partition, the largest first, and the records and bytes that belong to none."""

    groups: tuple[GroupContents, ...]
    undecoded_records: int
    undecoded_bytes: int
    other_bytes: int
    """The bytes of markers and of empty batches."""


@dataclass(slots=True)
class _Key:
    """A key of a group, with its newest record that counts."""

    type: int
    offset: int = -1
    size_bytes: int = 0
    value: bytes | None = None
    """The value, empty if it is not a classic group's. None for a tombstone, and before the first record."""
    tombstone_offset: int = -1

    def replace_by(self, offset: int, size_bytes: int, value: bytes | None) -> None:
        """Replace the newest record by another if that is newer."""
        if offset > self.offset:
            self.offset, self.size_bytes = offset, size_bytes
            # The values of all keys would be the whole live log.
            self.value = value if value is None or self.type == GROUP_METADATA.number else b""


@dataclass(slots=True)
class _Group:
    """The keys of one group, and what all its records take."""

    keys: list[_Key] = field(default_factory=list)
    tombstones: int = 0
    records: int = 0
    size_bytes: int = 0


class GroupsFold(Fold["GroupCounter", LogGroups]):
    """The groups of a `__consumer_offsets` partition. Damage leaves none."""

    def zero(self) -> GroupCounter:
        return GroupCounter()

    def add(self, state: GroupCounter, run: RecordRun, file: LogFile) -> GroupCounter:
        state.add_run(run, file=str(file))
        return state

    def finish(self, state: GroupCounter, damage: KcompactError | None) -> LogGroups:
        if damage is not None:
            raise damage
        return state.contents()


def log_groups(files: Files, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> LogGroups:
    """Return the groups of a `__consumer_offsets` partition. Reads every record of its `.log` files, and nothing else.

    Raises CorruptBatchError, BatchTooLargeError, StorageError.
    """
    return fold_files(GroupsFold(), ((file, None) for file in _log_files(files)), memory_bytes=memory_bytes)


def _log_files(files: Files) -> list[LogFile]:
    """Return the `.log` files of a partition in the order of their base offsets. Raises StorageError."""
    with storage_errors(files.directory):
        names = {name: parse_file_name(name) for name in files.names()}
    base_offsets = {
        files.file(text): name.base_offset
        for text, name in names.items()
        if name is not None and name.suffix is Suffix.LOG and name.temporary is Temporary.NO
    }
    return sorted(base_offsets, key=lambda file: base_offsets[file])


class _KeyRecords(NamedTuple):
    """Records with one key, none of them in a transaction."""

    records: int
    tombstones: int
    size_bytes: int
    """The bytes of the batches that these records take."""
    newest_offset: int
    newest_bytes: int
    newest_value: bytes | None
    tombstone_offset: int
    """The offset of the newest tombstone, -1 if there is none."""


class GroupCounter:
    """Counts what groups have, batch by batch.

    The batches of a producer's transactions come in the order of the log. All others may come in any order.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._keys: dict[bytes, tuple[_Group, _Key] | None] = {}
        """Each key with its group; None for a key that cannot be decoded."""
        self._pending: dict[int, dict[bytes, tuple[int, int]]] = {}
        """By producer id and key the offset and the bytes of the newest record of an open transaction."""
        self._undecoded_records = self._undecoded_bytes = self._other_bytes = 0

    def add_run(self, run: RecordRun, *, file: str) -> None:
        """Add the records of verified batches. Raises CorruptBatchError."""
        is_control, sizes = are_control(run.table), _shares_of_run(run)
        is_plain = run.table[:, c.ATTRIBUTES] & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT) == 0
        self._other_bytes += int(run.table[is_control | (run.table[:, c.RECORDS_COUNT] == 0), c.SIZE].sum())
        for key, records in _by_key(run, np.flatnonzero(is_plain[run.batch]), sizes).items():
            self._add_records(key, records)
        for number in np.flatnonzero(~is_plain).tolist():
            first, end = np.searchsorted(run.batch, (number, number + 1)).tolist()
            header, position = run.header(number)
            if header.is_control:
                marker = marker_of(run.record(first), header, position, file=file) if first < end else None
                self._end_transaction(header.producer_id, marker)
                continue
            for row, size_bytes in zip(range(first, end), sizes[first:end].tolist(), strict=True):
                self._add_one(run.record(row), header, size_bytes)

    def _add_one(self, record: Record, header: Header, size_bytes: int) -> None:
        """Add a record of a data batch."""
        if header.is_transactional and record.value is not None:
            self._add_pending(record.key, header.producer_id, record.offset, size_bytes)
            return
        tombstone_offset = record.offset if record.value is None else -1
        newest = (record.offset, size_bytes, record.value)
        self._add_records(record.key, _KeyRecords(1, int(record.value is None), size_bytes, *newest, tombstone_offset))

    def _add_records(self, key: bytes | None, records: _KeyRecords) -> None:
        group_and_key = self._count(key, records.records, records.size_bytes)
        if group_and_key is None:
            return
        group, counted = group_and_key
        group.tombstones += records.tombstones
        counted.tombstone_offset = max(counted.tombstone_offset, records.tombstone_offset)
        counted.replace_by(records.newest_offset, records.newest_bytes, records.newest_value)

    def _add_pending(self, key: bytes | None, producer_id: int, offset: int, size_bytes: int) -> None:
        if self._count(key, 1, size_bytes) is not None:
            self._pending.setdefault(producer_id, {})[_normalized(key)] = offset, size_bytes

    def _count(self, key: bytes | None, records: int, size_bytes: int) -> tuple[_Group, _Key] | None:
        """Count records and return their key with its group, or None if it cannot be decoded."""
        name = _normalized(key)
        if name not in self._keys:
            self._keys[name] = self._new(name)
        group_and_key = self._keys[name]
        if group_and_key is None:
            self._undecoded_records += records
            self._undecoded_bytes += size_bytes
            return None
        group_and_key[0].records += records
        group_and_key[0].size_bytes += size_bytes
        return group_and_key

    def _new(self, name: bytes) -> tuple[_Group, _Key] | None:
        """Return a new key with its group, or None if it cannot be decoded."""
        try:
            decoded = decode(CONSUMER_OFFSETS, name, None)
        except ValueError:
            return None
        group = self._groups.setdefault(str(decoded.key.get("group", decoded.key.get("groupId"))), _Group())
        group.keys.append(new := _Key(decoded.type.number))
        return group, new

    def _end_transaction(self, producer_id: int, marker: Marker | None) -> None:
        pending = self._pending.pop(producer_id, {})
        if marker is not None and marker.kind == c.COMMIT:
            for name, (offset, size_bytes) in pending.items():
                group_and_key = self._keys[name]
                assert group_and_key is not None
                group_and_key[1].replace_by(offset, size_bytes, b"")

    def contents(self) -> LogGroups:
        """Return what has been counted."""
        pending = {
            name
            for keys in self._pending.values()
            for name, (offset, _) in keys.items()
            # A tombstone also removes what is pending before it.
            if (group_and_key := self._keys[name]) and offset > group_and_key[1].tombstone_offset
        }
        pending_offsets = Counter(id(group_and_key[0]) for name in pending if (group_and_key := self._keys[name]))
        groups = [_contents(name, group, pending_offsets[id(group)]) for name, group in self._groups.items()]
        return LogGroups(
            groups=tuple(sorted(groups, key=lambda each: (-each.size_bytes, each.group))),
            undecoded_records=self._undecoded_records,
            undecoded_bytes=self._undecoded_bytes,
            other_bytes=self._other_bytes,
        )


def _contents(name: str, group: _Group, pending_offsets: int) -> GroupContents:
    live = [key for key in group.keys if key.value is not None]
    offsets = sum(key.type in _OFFSETS for key in live)
    described = max((key for key in live if key.type in _TYPES), key=lambda key: key.offset, default=None)
    if described is not None:
        kind = _TYPES[described.type]
    elif offsets or pending_offsets:
        kind = GroupType.SIMPLE
    else:
        kind = GroupType.UNKNOWN if live else GroupType.DELETED
    members: int | None = sum(key.type in _MEMBERS for key in live)
    if described is not None and kind is GroupType.CLASSIC:
        members = _classic_members(described.value)
    return GroupContents(
        group=name,
        type=kind,
        members=members,
        offsets=offsets,
        pending_offsets=pending_offsets,
        tombstones=group.tombstones,
        records=group.records,
        size_bytes=group.size_bytes,
        live_bytes=sum(key.size_bytes for key in live),
    )


def _classic_members(value: bytes | None) -> int | None:
    """Return the number of members in the record of a classic group, None if it cannot be decoded."""
    try:
        members = decode_value(GROUP_METADATA, value or b"")[1]["members"]
    except ValueError:
        return None
    return len(members) if isinstance(members, list) else None


def _normalized(key: bytes | None) -> bytes:
    """Return the key under which a record is found, empty for a record without one.

    The two types of keys of offsets differ only in the number.
    """
    if key is not None and key.startswith(_LEGACY_PREFIX):
        return _OFFSET_PREFIX + key[len(_LEGACY_PREFIX) :]
    return key or b""


def _shares_of_run(run: RecordRun) -> Column:
    """Return the bytes of its batch that each record takes: in proportion to their sizes."""
    weights = np.maximum(run.key_size, 0) + np.maximum(run.value_size, 0) + RECORD_OVERHEAD_BYTES
    total, batch = np.concatenate(([0], np.cumsum(weights))), run.batch
    first, end = np.searchsorted(batch, batch), np.searchsorted(batch, batch, side="right")
    size, of_batch = run.batch_column(c.SIZE), total[end] - total[first]
    starts, ends = total[:-1] - total[first], total[1:] - total[first]
    share_bytes: Column = size * ends // of_batch - size * starts // of_batch
    return share_bytes


def _by_key(run: RecordRun, rows: Column, sizes: Column) -> dict[bytes, _KeyRecords]:
    """Return some records of a run by key. Only the keys, and the newest value of each, become Python objects."""
    if not len(rows):
        return {}
    data = run.data.data
    numbers: dict[bytes, int] = {}
    starts, ends = run.key_start[rows], run.key_start[rows] + np.maximum(run.key_size[rows], 0)
    key = np.array(
        [
            numbers.setdefault(bytes(data[start:end]), len(numbers))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
    )
    keys, offset, is_tombstone = len(numbers), run.offset[rows], run.value_size[rows] < 0
    key_bytes, newest, newest_tombstone = np.zeros(keys, np.int64), np.full(keys, -1), np.full(keys, -1)
    np.add.at(key_bytes, key, sizes[rows])
    np.maximum.at(newest, key, offset)
    np.maximum.at(newest_tombstone, key[is_tombstone], offset[is_tombstone])
    newest_row = np.empty(keys, np.int64)
    is_newest = offset == newest[key]
    newest_row[key[is_newest]] = rows[is_newest]
    columns = (
        np.bincount(key, minlength=keys).tolist(),
        np.bincount(key[is_tombstone], minlength=keys).tolist(),
        key_bytes.tolist(),
        newest.tolist(),
        sizes[newest_row].tolist(),
        [run.value(row) for row in newest_row.tolist()],
        newest_tombstone.tolist(),
    )
    return {name: _KeyRecords(*counts) for name, *counts in zip(numbers, *columns, strict=True)}
