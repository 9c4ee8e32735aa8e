"""Scans and filters whole splits with the kernels: reads a split, builds the table of its batches, runs the kernels.

Each function equals a readable definition: `scan.read_split`, `write._clean_split`. If a
kernel rejects a split (a batch of magic 0 or 1, damaged bytes), the function returns None, and the caller uses the
definition. If a kernel rejects a single batch, the definition cleans that batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.clean.batch_fates import BatchFates, Fate, decide_batch_fates, is_past_horizon
from kcompact.clean.filter import CleanedBatch, FilteredRun, apply_fate
from kcompact.clean.growth import most_bytes_of_table
from kcompact.clean.job import CleanerStats, CleanJob, RecordCounts, SplitSummary
from kcompact.clean.offset_map import SPLIT_SHIFT, KeyCollector, bits
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, read_header, sealed
from kcompact.format.codec import Codec, compress, most_compressed_bytes
from kcompact.kernels import Bytes, Column, Table
from kcompact.kernels import columns as c
from kcompact.log.inflate import Buffers, inflated_runs
from kcompact.log.markers import are_control
from kcompact.log.segment_reader import VerifiedRun
from kcompact.log.transactions import PackedTable, find_transactions
from kcompact.stages.job import Split
from kcompact.stages.splits import wrong_index


def load(split: Split, buffers: Buffers) -> VerifiedRun | None:
    """Return a split with its batches verified, None if the kernel rejects it."""
    buffer = buffers.bytes_of("source", split.size_bytes)
    table = buffers.table("batches", split.size_bytes // c.HEADER_BYTES + 1, c.COLUMNS)
    with split.log.open(identity=split.identity) as opened:
        count, _, code = kernels.read_batches(
            opened.descriptor_of(split.start_position, split.start_position + split.size_bytes),
            split.start_position,
            split.size_bytes,
            split.base_offset,
            split.end_offset,
            -1,
            buffer,
            table,
        )
    if code != c.DONE:
        return None
    table = table[:count]
    for flag, offsets in ((c.EXCLUDED_FROM_MAP, split.excluded_from_map), (c.DISCARDABLE, split.discardable)):
        if len(offsets):
            flagged = np.minimum(np.searchsorted(table[:, c.BASE_OFFSET], offsets), count - 1)
            table[flagged[table[flagged, c.BASE_OFFSET] == offsets], c.FLAGS] |= flag
    return VerifiedRun(buffer, table, split.start_position, int(table[:, c.EPOCH].max(initial=-1)))


def is_possible(table: Table, first: int, end: int) -> bool:
    """Return whether the inflated section of each batch is large enough for its number of records."""
    part = table[first:end]
    return bool(
        np.all(part[:, c.RECORDS_COUNT] * c.MIN_RECORD_BYTES <= part[:, c.SECTION_END] - part[:, c.SECTION_START])
    )


# Scan


def scan_split(job: CleanJob, split: Split, collector: KeyCollector, buffers: Buffers) -> SplitSummary | None:
    """Return what `scan.read_split` returns, or None if the kernel rejects the split.

    In that case the collector may already have some of the split's keys.
    """
    loaded = load(split, buffers)
    if loaded is None or wrong_index(split, loaded.table) is not None:
        return None
    table = loaded.table
    k0, k1 = np.frombuffer(job.hash_key, "<u8")
    keyed = unkeyed = tombstones = control = most_bytes = 0
    try:
        for first, end, inflated in inflated_runs(
            loaded.buffer, table, buffers, file=str(split.log), start_position=split.start_position
        ):
            code = c.DAMAGED
            if is_possible(table, first, end):
                records = int(table[end - 1, c.ROW] + table[end - 1, c.RECORDS_COUNT] - table[first, c.ROW])
                entries, *others, header_bytes, code = kernels.scan_records(
                    loaded.buffer, inflated, table, first, end, job.first_dirty_offset, split.number << SPLIT_SHIFT,
                    k0, k1, *collector.reserve(records),
                )  # fmt: skip
            if code != c.DONE:
                return None
            keyed += entries
            unkeyed, tombstones, control = unkeyed + others[0], tombstones + others[1], control + others[2]
            most_bytes += most_bytes_of_table(table[first:end], header_bytes)
            collector.commit(split.number, loaded.records, entries)
        transactional = find_transactions(loaded, split.log)
    except CorruptBatchError:
        return None
    counts = (loaded.records, keyed, unkeyed, tombstones, control)
    return SplitSummary.of(counts, table, PackedTable.of(transactional), most_bytes)


# Filter


def filter_split(
    job: CleanJob, split: Split, survivors: Bytes, unkeyed_or_tombstones: int, buffers: Buffers
) -> Iterator[FilteredRun] | None:
    """Return what remains of a split, run by run, or None if the kernel rejects the split.

    `survivors` are the bits of its records. With `unkeyed_or_tombstones` 0, bits alone decide about whole batches.
    Raises CorruptBatchError, RefusedError.
    """
    loaded = load(split, buffers)
    if loaded is None or loaded.records > 8 * len(survivors):
        return None
    table = loaded.table
    has_discardable = bool(np.any(table[:, c.FLAGS] & c.DISCARDABLE))
    latest_counts = _latest_counts(table, survivors) if has_discardable or not unkeyed_or_tombstones else None
    fates = decide_batch_fates(table, job, None if unkeyed_or_tombstones else latest_counts)
    return _filter(_Filtering(job, split, loaded, survivors, fates, latest_counts), buffers)


def _latest_counts(table: Table, survivors: Bytes) -> Column:
    before = np.concatenate(([0], np.cumsum(np.unpackbits(survivors, bitorder="little"), dtype=np.int64)))
    counts: Column = before[table[:, c.ROW] + table[:, c.RECORDS_COUNT]] - before[table[:, c.ROW]]
    return counts


class _Filtering(NamedTuple):
    """A split, its survivors and the fates of its batches: the input of the filter.

    `latest_counts` is the number of survivor bits of each batch, None if no batch is discardable and no fate needs it.
    """

    job: CleanJob
    split: Split
    loaded: VerifiedRun
    survivors: Bytes
    fates: BatchFates
    latest_counts: Column | None

    def batch(self, number: int) -> Batch:
        return self.loaded.batch(number, self.split.log)


def _filter(filtering: _Filtering, buffers: Buffers) -> Iterator[FilteredRun]:
    job, split, loaded, survivors, (fates, _), _ = filtering
    table = loaded.table
    is_filtered = fates == Fate.FILTER
    table[~is_filtered, c.FLAGS] |= c.DECIDED
    horizon = job.new_horizon_ms
    outcomes = buffers.table("outcomes", len(table), c.OUTCOMES)
    for first, end, inflated in inflated_runs(
        loaded.buffer,
        table,
        buffers,
        file=str(filtering.split.log),
        start_position=split.start_position,
        wanted=is_filtered,
    ):
        part = table[first:end][is_filtered[first:end]]
        sections = part[:, c.SECTION_END] - part[:, c.SECTION_START]
        possible = np.minimum(part[:, c.RECORDS_COUNT], sections // c.MIN_RECORD_BYTES)
        out = buffers.bytes_of("out", int(sections.sum() + c.RECORD_GROWTH_BYTES * possible.sum()) + 61 * len(part))
        scratch = buffers.table("scratch", int(possible.max(initial=0)) + 1, 4)
        _apply_known_fates(fates[first:end], table[first:end], outcomes[first:end])
        kernels.filter_batches(
            loaded.buffer, inflated, table, first, end, survivors, job.upper_bound_offset,
            job.expires_ms, c.MAX_OFFSET if job.held_back_from_offset is None else job.held_back_from_offset,
            -1 if horizon is None or horizon < 0 else horizon, scratch, out, 0, outcomes,
        )  # fmt: skip
        sealed_batches = _sealed(filtering, out, outcomes, first, end, buffers)
        yield _assembled(filtering, out, sealed_batches, outcomes, first, end, buffers)


def _sealed(filtering: _Filtering, out: Bytes, outcomes: Table, first: int, end: int, buffers: Buffers) -> Bytes:
    """Compress the encoded batches of the run [first, end), write the headers that stay; return the array with them."""
    table, outcome = filtering.loaded.table, outcomes[first:end]
    keeps_header = filtering.fates.keeps_header
    codecs = table[first:end, c.ATTRIBUTES] & c.CODEC_MASK
    is_compressed = (outcome[:, c.ACTION] == c.ENCODED) & (codecs != 0)
    is_empty = (outcome[:, c.ACTION] == c.EMPTIED) & keeps_header[first:end]
    records_bytes = (outcome[:, c.OUT_END] - outcome[:, c.OUT_START])[is_compressed]
    headers_bytes = c.HEADER_BYTES * int(np.count_nonzero(is_compressed | is_empty))
    array = buffers.bytes_of("sealed", int(most_compressed_bytes(records_bytes).sum()) + headers_bytes)
    kernels.seal_batches(
        filtering.loaded.buffer, out, table, keeps_header.view(np.uint8), first, end,
        buffers.codecs(np.unique(codecs[is_compressed]).tolist()), array, outcomes,
    )  # fmt: skip
    assert not (outcome[is_empty, c.ACTION] == c.EMPTIED).any(), "a header that stays must fit"
    return array


def _apply_known_fates(fates: npt.NDArray[np.uint8], table: Table, outcomes: Table) -> None:
    """Fill the outcomes of the batches whose records are not read."""
    for fate, action in ((Fate.DROP, c.EMPTIED), (Fate.CLEAR, c.EMPTIED), (Fate.COPY, c.COPIED)):
        rows = fates == fate
        outcomes[rows] = 0
        outcomes[rows, c.ACTION] = action
    is_copied, is_superseded = fates == Fate.COPY, (fates == Fate.CLEAR) & (table[:, c.FLAGS] & c.DISCARDABLE == 0)
    outcomes[is_copied, c.MESSAGES_WRITTEN] = outcomes[is_copied, c.KEPT_LATEST] = table[is_copied, c.RECORDS_COUNT]
    outcomes[is_superseded, c.SUPERSEDED] = table[is_superseded, c.RECORDS_COUNT]


def _assembled(
    filtering: _Filtering, out: Bytes, sealed_batches: Bytes, outcomes: Table, first: int, end: int, buffers: Buffers
) -> FilteredRun:
    """Return the run of batches [first, end). The definition cleans the batches that the kernel marked UNKNOWN."""
    table, outcome = filtering.loaded.table[first:end], outcomes[first:end]
    action = outcome[:, c.ACTION].copy()
    is_new = (action == c.ENCODED) | (action == c.SEALED)
    max_timestamps = np.where(is_new, outcome[:, c.NEW_MAX_TIMESTAMP], table[:, c.MAX_TIMESTAMP])
    last_offsets = table[:, c.LAST_OFFSET].copy()
    is_counted = (action != c.UNKNOWN) & (filtering.fates.fates[first:end] != Fate.DROP)
    stats = CleanerStats(
        bytes_read=int(table[:, c.SIZE].sum()),
        messages_read=int(table[is_counted, c.RECORDS_COUNT].sum()),
        messages_written=int(outcome[is_counted, c.MESSAGES_WRITTEN].sum()),
        invalid_messages=int(outcome[is_counted, c.INVALID_MESSAGES].sum()),
    )
    counts = _counts(filtering, outcome, first, end)
    others: dict[int, bytes | memoryview] = {}
    for number in np.flatnonzero(action == c.UNKNOWN).tolist():
        cleaned = _clean_by_definition(filtering, first + number)
        stats, counts = stats + cleaned.stats, counts + cleaned.counts
        if cleaned.data is None:
            action[number] = c.EMPTIED
            continue
        others[number] = cleaned.data
        header = read_header(cleaned.data, file=str(filtering.split.log), position=0)
        max_timestamps[number], last_offsets[number] = header.max_timestamp, header.last_offset
    is_compressed = table[:, c.ATTRIBUTES] & c.CODEC_MASK != 0
    for number in np.flatnonzero((action == c.ENCODED) & is_compressed).tolist():
        others[number] = _compressed(filtering.batch(first + number).header, outcome[number], out)
    action[list(others)] = c.UNKNOWN

    is_copied = action == c.COPIED
    starts = np.where(is_copied, table[:, c.POSITION], outcome[:, c.OUT_START])
    ends = np.where(is_copied, table[:, c.POSITION] + table[:, c.SIZE], outcome[:, c.OUT_END])
    for number, data in others.items():
        starts[number], ends[number] = 0, len(data)
    written = np.flatnonzero(action != c.EMPTIED)
    sizes = (ends - starts)[written]
    return FilteredRun(
        pieces=_pieces(written, action, starts, ends, filtering.loaded.buffer, out, sealed_batches, others, buffers),
        last_offsets=last_offsets[written],
        max_timestamps=max_timestamps[written],
        sizes=sizes,
        stats=stats + CleanerStats(bytes_written=int(sizes.sum())),
        counts=counts,
    )


def _counts(filtering: _Filtering, outcome: Table, first: int, end: int) -> RecordCounts:
    """Return what becomes of the records of the batches [first, end), without the batches that are marked UNKNOWN."""
    table, fates = filtering.loaded.table[first:end], filtering.fates.fates[first:end]
    is_known = outcome[:, c.ACTION] != c.UNKNOWN
    is_discardable = table[:, c.FLAGS] & c.DISCARDABLE != 0
    is_discarded = is_discardable & (fates <= Fate.CLEAR)
    known, is_control = outcome[is_known], are_control(table)[is_known]
    action = outcome[:, c.ACTION]
    is_new = ((action == c.ENCODED) | (action == c.SEALED)) & (table[:, c.ATTRIBUTES] & c.CONTROL_BIT == 0)
    # Past its horizon only a hold keeps the marker of a transaction without a batch.
    is_held = is_known & is_discardable & (fates == Fate.FILTER) & is_past_horizon(table, filtering.job.expires_ms)
    has_new_horizon = is_new & (outcome[:, c.NEW_ATTRIBUTES] & ~table[:, c.ATTRIBUTES] & c.DELETE_HORIZON_BIT != 0)
    return RecordCounts(
        read=int(table[is_known, c.RECORDS_COUNT].sum()),
        kept=int(known[:, c.MESSAGES_WRITTEN].sum()),
        superseded=int(known[:, c.SUPERSEDED].sum()),
        expired=int(known[:, c.EXPIRED].sum()),
        unkeyed=int(known[:, c.INVALID_MESSAGES].sum()),
        discarded=int(table[is_discarded, c.RECORDS_COUNT].sum()),
        kept_latest=int(known[:, c.KEPT_LATEST].sum()),
        kept_control=int(known[is_control, c.MESSAGES_WRITTEN].sum()),
        discarded_latest=(
            0 if filtering.latest_counts is None else int(filtering.latest_counts[first:end][is_discarded].sum())
        ),
        new_horizons=int(np.count_nonzero(has_new_horizon)),
        held_tombstones=int(known[:, c.HELD_TOMBSTONES].sum()),
        held_markers=int(outcome[is_held, c.MESSAGES_WRITTEN].sum()),
    )


def _pieces(
    written: Column,
    action: Column,
    starts: Column,
    ends: Column,
    buffer: Bytes,
    out: Bytes,
    sealed_batches: Bytes,
    others: dict[int, bytes | memoryview],
    buffers: Buffers,
) -> list[bytes | memoryview]:
    """Return the bytes of the written batches in order; adjacent batches are one piece, and so are many small ones."""
    if not len(written):
        return []
    kind, start, end = action[written], starts[written], ends[written]
    breaks = (kind[1:] != kind[:-1]) | (start[1:] != end[:-1]) | (kind[1:] == c.UNKNOWN)
    firsts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    lasts = np.concatenate((firsts[1:] - 1, [len(written) - 1]))
    total_bytes = int((end - start).sum())
    is_small = len(firsts) >= MANY_PIECES and total_bytes <= len(firsts) * SMALL_PIECE_BYTES
    if is_small and not others and not (kind == c.SEALED).any():
        joined = buffers.bytes_of("joined", total_bytes)
        ranges = np.column_stack((kind[firsts] == c.ENCODED, start[firsts], end[lasts])).astype(np.int64)
        return [joined.data[: kernels.join_pieces(buffer, out, ranges, joined)]]
    sources = {c.COPIED: buffer.data, c.ENCODED: out.data, c.SEALED: sealed_batches.data}
    return [
        others[int(written[first])] if kind[first] == c.UNKNOWN else sources[int(kind[first])][start[first] : end[last]]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
    ]


MANY_PIECES = 1024
SMALL_PIECE_BYTES = 2048
"""So many pieces of a run, as small as this on average, are copied to one: writing each takes longer."""


def _clean_by_definition(filtering: _Filtering, number: int) -> CleanedBatch:
    job, split, loaded, survivors, fates, _ = filtering
    batch = filtering.batch(number)
    fate, keeps_header = fates.of(number)
    return apply_fate(
        batch,
        job,
        bits(survivors, int(loaded.table[number, c.ROW]), batch.header.records_count),
        fate,
        keeps_header=keeps_header,
        is_discardable=bool(loaded.table[number, c.FLAGS] & c.DISCARDABLE),
        keeps_legacy_tombstones=split.keeps_legacy_tombstones,
        file=str(filtering.split.log),
    )


def _compressed(header: Header, outcome: Column, out: Bytes) -> bytes:
    """Return a batch whose records the kernel has encoded, compressed by the definition of its codec."""
    records = out.data[int(outcome[c.OUT_START]) : int(outcome[c.OUT_END])]
    section = compress(Codec(header.codec_id), records)
    return sealed(
        header._replace(
            length=c.HEADER_BYTES - 12 + len(section),
            attributes=int(outcome[c.NEW_ATTRIBUTES]),
            base_timestamp=int(outcome[c.NEW_BASE_TIMESTAMP]),
            max_timestamp=int(outcome[c.NEW_MAX_TIMESTAMP]),
            records_count=int(outcome[c.MESSAGES_WRITTEN]),
        ),
        section,
    )
