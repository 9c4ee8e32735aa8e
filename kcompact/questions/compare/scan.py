"""Stage 1 of a comparison: reads the same offsets of all replicas, compares batches and contents, collects keys.

A batch with the same checksum in all replicas that have it is the same there, so its records are collected once, for
all of them. The records of other batches are compared by offset, and collected for each replica. What a replica lacks
is judged by key, in the second stage (`questions.compare.judge`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kcompact.errors import KcompactError
from kcompact.format.batch import Record
from kcompact.host.throttle import Pace
from kcompact.kernels import KEY_COLUMNS, Column, Mask, Table
from kcompact.kernels import columns as c
from kcompact.log.past_damage import Unreadable
from kcompact.log.records import RecordRun, record_parts
from kcompact.questions.compare.contents import content_hashes, key_hashes, same_content
from kcompact.questions.compare.epochs import NO_EPOCH
from kcompact.questions.compare.job import REF_SHIFT, TOMBSTONE, TRANSACTIONAL, ComparedSplit, CompareJob, overlap
from kcompact.questions.compare.windows import Part, Window, windows_of
from kcompact.questions.keys.rows import RowCollector
from kcompact.stages.job import Split
from kcompact.values import dataclass

MOST_LISTED = 64
"""So many offsets are kept of each kind of contradiction; all are counted."""


class Damaged(NamedTuple):
    """What of a replica cannot be read: bytes of a file, which may have held the offsets below `end_offset`."""

    replica: int
    file: str
    position: int
    first_offset: int
    end_offset: int
    problem: KcompactError


@dataclass(slots=True)
class Offsets:
    """Offsets at which something is wrong: how many, the first of them, and the mask of the replicas of all."""

    count: int = 0
    first: list[int] = field(default_factory=list)
    replicas: int = 0

    def add(self, offset: int, replicas: int) -> None:
        """Add an offset. They must rise."""
        self.join(Offsets(1, [offset], replicas))

    def join(self, later: Offsets) -> None:
        """Add those of a later range."""
        self.count += later.count
        self.first = (self.first + later.first)[:MOST_LISTED]
        self.replicas |= later.replicas


@dataclass(slots=True, kw_only=True)
class ComparedRange:
    """What a range of offsets has shown.

    `batches` i64[replicas, 2] counts batches and their bytes, `records` the records. `holes` i64[bands] has for each
    band the last offset without a record in any replica, -1 for none. Of batches that several replicas have, `equal`
    have the same bytes, `rebuilt` the same content and other bytes, by what differs. `alone` counts for each replica
    the batches that another one lacks. `contents`: a record is not the one that most have at its offset; `divided`:
    records with the same offset differ, and none is that of most; `headers`: batches with the same last offset differ
    in epoch, producer or sequence; `unsealed`: the same, but their checksums are equal; `overlaps`: batches of
    different replicas overlap.
    """

    batches: Table
    records: Column
    alone: Column
    holes: Column
    equal: int = 0
    rebuilt: dict[str, int] = field(default_factory=dict)
    contents: Offsets = field(default_factory=Offsets)
    divided: Offsets = field(default_factory=Offsets)
    headers: Offsets = field(default_factory=Offsets)
    unsealed: Offsets = field(default_factory=Offsets)
    overlaps: Offsets = field(default_factory=Offsets)
    damage: list[Damaged] = field(default_factory=list)

    def join(self, later: ComparedRange) -> None:
        """Add what a later range has shown."""
        self.batches += later.batches
        self.records += later.records
        self.alone += later.alone
        self.holes = np.maximum(self.holes, later.holes)
        self.equal += later.equal
        for why, count in later.rebuilt.items():
            self.rebuilt[why] = self.rebuilt.get(why, 0) + count
        self.contents.join(later.contents)
        self.divided.join(later.divided)
        self.headers.join(later.headers)
        self.unsealed.join(later.unsealed)
        self.overlaps.join(later.overlaps)
        self.damage += later.damage


def scan_replicas(
    job: CompareJob, splits: Sequence[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[tuple[int, ComparedRange]]]:
    """Yield (bucket, block of keys) for the splits of a task, group by group.

    Return the number of each group, and what it has shown.

    Raises RefusedError, StorageError.
    """
    compared_ranges = []
    collectors: dict[int, RowCollector] = {}
    compared = (split for split in splits if isinstance(split, ComparedSplit))
    for number, members in groupby(compared, key=attrgetter("group")):
        group = list(members)
        for split in group:
            pace.take(split.size_bytes)
        compared_ranges.append((number, _Comparison(job, group, collectors).run()))
        for collector in collectors.values():
            yield from collector.blocks()
        for split in group:
            pace.done(split.size_bytes)
    for collector in collectors.values():
        yield from collector.finish()
    return compared_ranges


class _Comparison:
    """The comparison of one group of splits."""

    def __init__(self, job: CompareJob, splits: Sequence[ComparedSplit], collectors: dict[int, RowCollector]) -> None:
        self._job = job
        self._collectors = collectors
        self._splits = [[split for split in splits if split.replica == replica] for replica in range(len(job.replicas))]
        self._offsets = range(splits[0].first_offset, splits[0].limit_offset)
        self._excluded = [_joined(split.excluded_from_map for split in own) for own in self._splits]
        self._unknown = [_joined(split.unknown for split in own) for own in self._splits]
        self._last_offset, self._last_holders = -1, 0
        self._in_doubt = np.empty(0, np.int64)
        self._compared = {number for number, log in enumerate(job.replicas) if self._offsets.start < log.fork_offset}
        self._bands = np.array(job.bands, np.int64)
        replicas = len(job.replicas)
        self._found = ComparedRange(
            batches=np.zeros((replicas, 2), np.int64),
            records=np.zeros(replicas, np.int64),
            alone=np.zeros(replicas, np.int64),
            holes=np.full(len(job.bands), -1, np.int64),
        )

    def run(self) -> ComparedRange:
        """Compare them."""
        for window in windows_of([chain.from_iterable(map(self._runs, own)) for own in self._splits], self._offsets):
            self._compare(window)
        return self._found

    def _runs(self, split: ComparedSplit) -> Iterator[RecordRun]:
        """Yield the readable records of a split, and note what is not readable."""
        next_offset, unread = split.base_offset, list[Unreadable]()
        for part in record_parts(
            split.log,
            start_position=split.start_position,
            end_position=split.end_position,
            memory_bytes=self._job.memory_bytes,
        ):
            if isinstance(part, Unreadable):
                unread.append(part)
                continue
            self._note_damage(split, unread, next_offset, int(part.table[0, c.BASE_OFFSET]))
            unread, next_offset = [], part.last_offset + 1
            yield part
        self._note_damage(split, unread, next_offset, split.end_offset)

    def _note_damage(self, split: ComparedSplit, unread: Sequence[Unreadable], first: int, end: int) -> None:
        self._found.damage += [
            Damaged(split.replica, str(split.log), part.position, first, max(first, end), part.problem)
            for part in unread
        ]

    # A window

    def _compare(self, window: Window) -> None:
        parts, compared_range = window.parts, self._found
        for replica, part in parts.items():
            compared_range.batches[replica] += len(part.table), int(part.table[:, c.SIZE].sum())
            compared_range.records[replica] += len(part.rows)
        for replica in parts.keys() - self._compared:
            self._collect(parts[replica], replica, np.full(len(parts[replica].table), 1 << replica, np.int64))
        parts = {replica: part for replica, part in parts.items() if replica in self._compared}
        if len(parts) == len(self._compared) and _are_equal(list(parts.values())):
            replica, part = next(iter(parts.items()))
            compared_range.equal += len(part.table) if len(parts) > 1 else 0
            mask = sum(1 << each for each in parts)
            self._collect(part, replica, np.full(len(part.table), mask, np.int64))
            self._note_holes(window, dict.fromkeys(parts, part))
            self._end_at(int(part.table[-1, c.LAST_OFFSET]), mask)
            return
        self._note_holes(window, parts)
        if parts:
            self._compare_batches(parts)

    def _compare_batches(self, parts: dict[int, Part]) -> None:
        batches = _Batches.of(parts)
        held = batches.held
        holders = held.sum(axis=1)
        overlap = self._note_overlaps(batches)
        for column, replica in enumerate(batches.replicas):
            self._found.alone[replica] += np.count_nonzero(held[:, column] & (holders < len(self._compared)))
        differs, contradicts = np.zeros(len(held), np.bool_), np.zeros(len(held), np.bool_)
        shared = np.flatnonzero(holders > 1)
        if len(shared):
            differs[shared], contradicts[shared] = self._compare_shared(batches.chosen(shared))
        # A cleaner gives an old batch another last offset, so the others of the window may have the same records.
        is_alone = holders < len(parts)
        to_compare = differs & ~contradicts
        if (is_alone & ~batches.are_new).any():
            to_compare |= is_alone
        if to_compare.any():
            self._compare_contents(parts, batches.chosen(np.flatnonzero(to_compare)))
        contradicts |= overlap
        masks = held @ (1 << np.array(batches.replicas))
        is_first = held & (np.cumsum(held, axis=1) == 1)
        for column, replica in enumerate(batches.replicas):
            own = np.flatnonzero(held[:, column] & (is_first[:, column] | differs | contradicts))
            to_collect = np.zeros(len(parts[replica].table), np.int64)
            its_masks = np.where(differs[own], 1 << replica, masks[own])
            to_collect[batches.rows[own, column]] = np.where(contradicts[own], self._job.unknown_mask, its_masks)
            self._collect(parts[replica], replica, to_collect)
        self._in_doubt = self._in_doubt[:0]

    def _compare_shared(self, batches: _Batches) -> tuple[Mask, Mask]:
        """Compare batches that several replicas have, and return which of them have other bytes, and which contradict.

        Whose record is wrong is not known where records contradict. So such records are no replica's.
        """
        compared_range = self._found
        differs = batches.differ(batches.crc)
        contradicts = batches.contradict() & ~self._is_tainted(batches.lasts)
        for number in np.flatnonzero(contradicts).tolist():
            where = compared_range.headers if differs[number] else compared_range.unsealed
            where.add(int(batches.lasts[number]), batches.mask(number))
        compared_range.equal += int(np.count_nonzero(~differs))
        rebuilt = np.flatnonzero(differs & ~contradicts)
        if len(rebuilt):
            chosen = batches.chosen(rebuilt)
            for why, is_so in chosen.reasons():
                compared_range.rebuilt[why] = compared_range.rebuilt.get(why, 0) + int(np.count_nonzero(is_so))
        return differs, contradicts

    def _is_tainted(self, offsets: Column) -> Mask:
        """Return which offsets are damaged in a replica."""
        return overlap(np.concatenate([log.tainted for log in self._job.replicas]), offsets, offsets + 1)

    def _note_overlaps(self, batches: _Batches) -> Mask:
        """Note the batches that overlap earlier ones, and return both."""
        is_overlapping = np.zeros(len(batches.lasts), np.bool_)
        before = np.concatenate(([self._last_offset], batches.lasts[:-1]))
        least = batches.least(c.BASE_OFFSET)
        overlapping = np.flatnonzero(least <= before)
        for number in overlapping[batches.chosen(overlapping).are_new].tolist():
            both = slice(int(np.searchsorted(batches.lasts, least[number])), number + 1)
            if not self._is_tainted(batches.lasts[both]).any():
                replicas = self._last_holders if least[number] <= self._last_offset else 0
                for each in range(both.start, both.stop):
                    replicas |= batches.mask(each)
                self._found.overlaps.add(int(batches.lasts[number]), replicas)
            is_overlapping[both] = True
        self._end_at(int(batches.lasts[-1]), batches.mask(-1))
        return is_overlapping

    def _end_at(self, last_offset: int, holders: int) -> None:
        """Keep the last offset so far, and the replicas that have its batch."""
        if last_offset > self._last_offset:
            self._last_offset, self._last_holders = last_offset, holders

    def _compare_contents(self, parts: dict[int, Part], batches: _Batches) -> None:
        """Compare the records that several replicas have in batches with other bytes, by offset."""
        record_columns: list[tuple[Column, Column, Column]] = []
        for column, replica in enumerate(batches.replicas):
            part = parts[replica]
            is_meant = np.zeros(len(part.run.table), np.bool_)
            its_rows = batches.rows[:, column]
            is_meant[part.first + its_rows[its_rows >= 0]] = True
            rows = part.rows.start + np.flatnonzero(is_meant[part.run.batch[part.rows.start : part.rows.stop]])
            record_columns.append((part.run.offset[rows], np.full(len(rows), replica), rows))
        offsets, replicas, rows = (np.concatenate(each) for each in zip(*record_columns, strict=True))
        order = np.argsort(offsets, kind="stable")
        offsets, replicas, rows = offsets[order], replicas[order], rows[order]
        is_next = offsets[1:] == offsets[:-1]
        shared = np.flatnonzero(np.append(is_next, False) | np.append(False, is_next))
        offsets, replicas, rows = offsets[shared], replicas[shared], rows[shared]
        hashes = np.zeros(len(shared), np.int64)
        for replica in batches.replicas:
            own = np.flatnonzero(replicas == replica)
            hashes[own] = content_hashes(self._job, parts[replica].run, rows[own])
        is_other = (offsets[1:] == offsets[:-1]) & (hashes[1:] != hashes[:-1])
        in_doubt = []
        for offset in np.unique(offsets[1:][is_other]).tolist():
            holders = range(*np.searchsorted(offsets, (offset, offset + 1)).tolist())
            there = [
                (replica, parts[replica].run.record(int(rows[each])))
                for each in holders
                if not overlap(self._job.replicas[replica := int(replicas[each])].tainted, offset, offset + 1)
            ]
            groups = _alike(there)
            if len(groups) > 1:
                largest = max(groups, key=len)
                is_majority = 2 * len(largest) > len(there)
                odd = sum(1 << replica for replica, _ in there if not (is_majority and replica in largest))
                (self._found.contents if is_majority else self._found.divided).add(offset, odd)
                in_doubt.append(offset)
        self._in_doubt = np.array(in_doubt, np.int64)

    # Keys

    def _collect(self, part: Part, replica: int, masks: Column) -> None:
        """Collect the keys of a part. `masks` has for each batch the replicas that have its records, 0 for none."""
        run, table = part.run, part.table
        is_damaged = overlap(self._job.replicas[replica].tainted, table[:, c.BASE_OFFSET], table[:, c.LAST_OFFSET] + 1)
        masks = np.where(is_damaged & (masks != 0), self._job.unknown_mask, masks)
        is_read = (masks != 0) & (table[:, c.ATTRIBUTES] & c.CONTROL_BIT == 0)
        excluded, unknown = self._excluded[replica], self._unknown[replica]
        if len(excluded):
            is_read &= ~np.isin(table[:, c.BASE_OFFSET], excluded)
        if len(unknown):
            masks = np.where(np.isin(table[:, c.BASE_OFFSET], unknown), self._job.unknown_mask, masks)
        there = slice(part.rows.start, part.rows.stop)
        rows = np.arange(there.start, there.stop)
        batch, offsets, value_size = run.batch[there] - part.first, run.offset[there], run.value_size[there]
        is_meant = is_read[batch] & (run.key_size[there] >= 0)
        if not is_meant.all():
            rows, batch, offsets, value_size = rows[is_meant], batch[is_meant], offsets[is_meant], value_size[is_meant]
        refs = (offsets - self._job.first_offset) << REF_SHIFT
        refs[value_size < 0] |= TOMBSTONE
        is_transactional = table[:, c.ATTRIBUTES] & c.TRANSACTIONAL_BIT != 0
        if is_transactional.any():
            refs[is_transactional[batch]] |= TRANSACTIONAL
        of_batch, starts = masks[batch], np.searchsorted(offsets, self._bands).tolist()
        if len(self._in_doubt):
            of_batch[np.isin(offsets, self._in_doubt)] = self._job.unknown_mask
        for band, (start, end) in enumerate(pairwise([0, *starts])):
            some = of_batch[start:end]
            is_one = start < end and some[0] == some.min() == some.max()
            for mask in [int(some[0])] if is_one else np.flatnonzero(np.bincount(some)).tolist():
                if visible := mask & (self._job.visible[band] | self._job.unknown_mask):
                    chosen = slice(start, end) if is_one else start + np.flatnonzero(some == mask)
                    self._add(visible * len(self._bands) + band, run, rows[chosen], refs[chosen])

    def _add(self, number: int, run: RecordRun, rows: Column, refs: Column) -> None:
        collector = self._collectors.get(number)
        if collector is None:
            collector = RowCollector(
                number, columns=KEY_COLUMNS, bucket_bits=self._job.bucket_bits, limit_bytes=self._job.table_bytes
            )
            self._collectors[number] = collector
        (keys,) = collector.reserve(len(rows))
        keys[:] = 0
        key_hashes(self._job, run, rows, keys)
        keys[:, c.KEY_REF] = refs
        collector.commit(len(rows))

    # Holes

    def _note_holes(self, window: Window, parts: Mapping[int, Part]) -> None:
        """Note the last offset of each band that no replica has a record at.

        What a replica has below its log start is not judged, so it fills no hole either.
        """
        holes = self._found.holes
        known: dict[frozenset[int], tuple[Column, Column]] = {}
        for band, (start, end) in enumerate(zip((0, *self._job.bands), self._job.bands, strict=False)):
            if start >= window.end_offset or end <= window.first_offset:
                continue
            seen = frozenset(replica for replica in parts if self._job.visible[band] >> replica & 1)
            if seen not in known:
                known[seen] = _gaps_in(window, [parts[replica] for replica in sorted(seen)])
            firsts, lasts = known[seen]
            reached = np.flatnonzero((firsts < end) & (lasts >= start))
            if len(reached):
                holes[band] = max(holes[band], min(int(lasts[reached[-1]]), end - 1))


def _gaps_in(window: Window, parts: Sequence[Part]) -> tuple[Column, Column]:
    """Return the first and the last offsets of the gaps between the records of some parts."""
    different = {id(part): part for part in parts}.values()
    columns = [part.run.offset[part.rows.start : part.rows.stop] for part in different]
    offsets = columns[0] if len(columns) == 1 else _union_of(columns)
    around = np.concatenate(([window.first_offset - 1], offsets, [window.end_offset]))
    gaps = np.flatnonzero(around[1:] - around[:-1] > 1)
    return around[gaps] + 1, around[gaps + 1] - 1


def _joined(columns: Iterable[Column]) -> Column:
    return np.concatenate([np.empty(0, np.int64), *columns])


def _alike(there: Sequence[tuple[int, Record]]) -> list[list[int]]:
    """Return the replicas in groups whose records have the same content."""
    groups: list[tuple[Record, list[int]]] = []
    for replica, record in there:
        group = next((members for known, members in groups if same_content(known, record)), None)
        if group is None:
            groups.append((record, [replica]))
        else:
            group.append(replica)
    return [members for _, members in groups]


def _union_of(columns: Sequence[Column]) -> Column:
    """Return the numbers of some columns, each of them ascending, each number once.

    `numpy.unique` hashes them, which takes ten times as long as sorting what is nearly sorted.
    """
    numbers = np.sort(np.concatenate([np.empty(0, np.int64), *columns]), kind="stable")
    is_new = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_new[1:])
    unique_numbers: Column = numbers[is_new]
    return unique_numbers


def _are_equal(parts: Sequence[Part]) -> bool:
    """Return whether the parts have the same batches. Offsets and epochs are not in the checksum."""
    first = parts[0]
    return all(
        len(part.table) == len(first.table)
        and np.array_equal(part.crc, first.crc)
        and np.array_equal(part.table[:, _UNSEALED], first.table[:, _UNSEALED])
        for part in parts[1:]
    )


_UNSEALED = [c.BASE_OFFSET, c.LAST_OFFSET, c.EPOCH, c.ATTRIBUTES]
_CONTRADICTORY = [c.EPOCH, c.PRODUCER_ID, c.PRODUCER_EPOCH, c.BASE_SEQUENCE]
"""What no cleaner changes, apart from offsets."""
_KIND_BITS = c.TRANSACTIONAL_BIT | c.CONTROL_BIT


class _Batches(NamedTuple):
    """The batches of a window by last offset.

    `rows[i, k]` is the row of batch i in the part of the k-th replica, -1 if it has none.
    """

    replicas: list[int]
    parts: list[Part]
    lasts: Column
    rows: Table

    @classmethod
    def of(cls, parts: dict[int, Part]) -> _Batches:
        lasts = _union_of([part.table[:, c.LAST_OFFSET] for part in parts.values()])
        rows = np.full((len(lasts), len(parts)), -1, np.int64)
        for column, part in enumerate(parts.values()):
            rows[np.searchsorted(lasts, part.table[:, c.LAST_OFFSET]), column] = np.arange(len(part.table))
        return cls(list(parts), list(parts.values()), lasts, rows)

    @property
    def held(self) -> Mask:
        """Which replicas have a batch, bool[batches, replicas]."""
        is_held: Mask = self.rows >= 0
        return is_held

    def chosen(self, numbers: Column) -> _Batches:
        """Return some of the batches."""
        return self._replace(lasts=self.lasts[numbers], rows=self.rows[numbers])

    def least(self, column: int) -> Column:
        """Return the least value of a column that any replica has, for each batch."""
        minima = np.full(len(self.rows), np.iinfo(np.int64).max)
        for number, part in enumerate(self.parts):
            held = np.flatnonzero(self.rows[:, number] >= 0)
            minima[held] = np.minimum(minima[held], part.table[self.rows[held, number], column])
        return minima

    def values(self, column: int) -> Table:
        """Return a column of the tables for each batch and replica; what a replica lacks is that of another."""
        return self._filled([part.table[:, column] for part in self.parts])

    @property
    def crc(self) -> Table:
        return self._filled([part.crc for part in self.parts])

    @property
    def are_new(self) -> Mask:
        """Which batches were written in format 2: they keep their offsets.

        A cleaner turns an older one into a batch from the first to the last record that it keeps, without an epoch.
        """
        magic = self._filled([part.magic for part in self.parts])
        is_new: Mask = ((magic == 2) & (self.values(c.EPOCH) != NO_EPOCH)).all(axis=1)
        return is_new

    def _filled(self, columns: Sequence[Column]) -> Table:
        held = self.held
        by_replica = np.column_stack([column[self.rows[:, number]] for number, column in enumerate(columns)])
        if held.all():
            return by_replica
        some = by_replica[np.arange(len(by_replica)), held.argmax(axis=1)]
        filled: Table = np.where(held, by_replica, some[:, None])
        return filled

    @staticmethod
    def differ(values: Table) -> Mask:
        """Return for which batches the replicas have different values."""
        is_different: Mask = (values != values[:, :1]).any(axis=1)
        return is_different

    def contradict(self) -> Mask:
        """Return which batches differ in what no cleaner changes."""
        is_contradictory = self.differ(self.values(c.BASE_OFFSET)) | self.differ(self.values(c.ATTRIBUTES) & _KIND_BITS)
        for column in _CONTRADICTORY:
            is_contradictory |= self.differ(self.values(column))
        return is_contradictory & self.are_new

    def reasons(self) -> Iterator[tuple[str, Mask]]:
        """Yield what differs in batches with the same content, and in which of them."""
        attributes = self.values(c.ATTRIBUTES)
        magic = self._filled([part.magic for part in self.parts])
        count = self.values(c.RECORDS_COUNT)
        yield "format", self.differ(magic)
        yield "codec", self.differ(attributes & c.CODEC_MASK)
        yield (
            "delete-horizon",
            self.differ(attributes & c.DELETE_HORIZON_BIT)
            | self.differ(np.where(attributes & c.DELETE_HORIZON_BIT != 0, self.values(c.BASE_TIMESTAMP), 0)),
        )
        yield "records", self.differ(count)

    def mask(self, number: int) -> int:
        """Return the mask of the replicas that have a batch."""
        return sum(1 << replica for replica, row in zip(self.replicas, self.rows[number], strict=True) if row >= 0)
