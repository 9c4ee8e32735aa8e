"""Stage 2: from all rows of a bucket to sums, histograms and the keys to name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.format.block import unpack_table
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.questions.keys.job import CountedSplit, KeysJob
from kcompact.questions.keys.rows import Merger
from kcompact.questions.keys.scan import scan_keys
from kcompact.stages.executor import Stages

KINDS = 4
POWERS = 64
DAY_MS = 86_400_000
AGE_LIMITS_MS = (3_600_000, DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 90 * DAY_MS, 365 * DAY_MS)
"""The limits of the histogram of ages: an hour, a day, a week, 30 days, 90 days, a year."""
FUTURE, UNKNOWN = len(AGE_LIMITS_MS) + 1, len(AGE_LIMITS_MS) + 2
"""After the row for keys that are older than all limits: newer than the time of the count; without a timestamp."""
AGES = UNKNOWN + 1
MOST_PREFIXES = 100_000
"""With more prefixes, those that hold the fewest bytes are left out."""

PREFIX, PREFIX_REF, PREFIX_KEYS, PREFIX_RECORDS, PREFIX_BYTES, PREFIX_LIVE, PREFIX_LIVE_BYTES = range(7)
"""The columns of a table of prefixes. `PREFIX_REF` is the first of the newest records of their keys."""

NONE: Table = np.empty((0, c.KEY_COLUMNS), np.int64)


class Prefixes(NamedTuple):
    """A table of prefixes, and whether it has all of them."""

    table: Table
    is_complete: bool


class LogRows(NamedTuple):
    """What the keys of one log in a bucket add up to.

    `splits` names the splits that hold newest records, `latest` i64[n, 4, 2] for each of them the number and the bytes
    by kind. `versions` i64[64, 2] has keys and records by power of two, `ages` i64[9, 2] live keys and their bytes.
    `old` i64[2] counts the live keys that are older than asked. The tables have the rows of keys to name.
    """

    keys: int
    records: int
    record_bytes: int
    splits: Column
    latest: npt.NDArray[np.int64]
    versions: Table
    ages: Table
    old: Column
    most_versions: Table
    most_bytes: Table
    oldest: Table
    prefixes: Prefixes


class SharedKey(NamedTuple):
    """A key that several logs hold: the logs, and the record reference of its newest record in each."""

    logs: tuple[int, ...]
    refs: tuple[int, ...]
    versions: int
    size_bytes: int


class BucketRows(NamedTuple):
    """What the keys of a bucket add up to: by number of the log, and the keys that several logs hold."""

    logs: dict[int, LogRows]
    distinct: int
    shared: int
    most_shared: list[SharedKey]


def reduce_keys(job: KeysJob, blocks: Iterable[bytes]) -> BucketRows:
    """Return what the keys of one bucket add up to, from all its blocks in any order."""
    parts: dict[int, list[Table]] = {}
    for number, table in map(unpack_table, blocks):
        parts.setdefault(number, []).append(table)
    merger = Merger()
    logs, all_keys = {}, []
    for number in sorted(parts):
        keys = np.concatenate(parts.pop(number))
        keys = keys[: merger.merge(keys, order_bits=0, used_bits=job.bucket_bits)]
        logs[number] = rows_of_log(job, keys)
        all_keys.append(keys)
    if len(all_keys) < 2:
        return BucketRows(logs, sum(each.keys for each in logs.values()), 0, [])
    distinct, several = _in_several(all_keys, merger, job.bucket_bits)
    return BucketRows(logs, distinct, len(several), _most_shared(job, several, dict(zip(logs, all_keys, strict=True))))


COUNTING: Stages[KeysJob, CountedSplit, BucketRows] = Stages(scan_keys, reduce_keys)
"""The two stages of a count."""


def rows_of_log(job: KeysJob, keys: Table) -> LogRows:
    """Return what the keys of one log add up to."""
    is_live = keys[:, c.KEY_REF] & c.KEY_KIND_MASK == c.VALUE
    live = keys[is_live]
    splits, latest = _by_split(keys)
    old = live[_is_old(job, live)]
    return LogRows(
        keys=len(keys),
        records=int(keys[:, c.KEY_VERSIONS].sum()),
        record_bytes=int(keys[:, c.KEY_BYTES].sum()),
        splits=splits,
        latest=latest,
        versions=_by_power(keys[:, c.KEY_VERSIONS]),
        ages=_by_age(live, job.now_ms),
        old=np.array([len(old), old[:, c.KEY_LATEST_BYTES].sum()], np.int64),
        most_versions=top_rows(keys, c.KEY_VERSIONS, job.top),
        most_bytes=top_rows(keys, c.KEY_BYTES, job.top),
        oldest=top_rows(old, c.KEY_TIMESTAMP, job.top, largest=False),
        prefixes=_by_prefix(keys, is_live) if job.separator else Prefixes(NONE, True),
    )


def top_rows(keys: Table, column: int, count: int, *, largest: bool = True) -> Table:
    """Return the rows with the largest or the smallest values of a column, the first of them first.

    Of equal ones those count whose newest record is the older one: so the choice does not depend on their hashes.
    """
    values = -keys[:, column] if largest else keys[:, column]
    if len(keys) > count > 0:
        limit = np.partition(values, count - 1)[count - 1]
        better, equal = keys[values < limit], keys[values == limit]
        if len(equal) > count - len(better):
            left = count - len(better)
            refs = np.partition(equal[:, c.KEY_REF], left - 1)
            equal = equal[equal[:, c.KEY_REF] <= refs[left - 1]]
        keys = np.concatenate((better, equal))
        values = -keys[:, column] if largest else keys[:, column]
    chosen_rows: Table = keys[np.lexsort((keys[:, c.KEY_REF], values))][:count]
    return chosen_rows


def _by_split(keys: Table) -> tuple[Column, npt.NDArray[np.int64]]:
    """Return the splits of the newest records, and for each the number and the bytes by kind."""
    numbers = keys[:, c.KEY_REF] >> c.KEY_REF_SPLIT_SHIFT
    first = int(numbers.min(initial=1 << 62))
    occurs = np.bincount(numbers - first) > 0
    splits = np.flatnonzero(occurs) + first
    cells = (np.cumsum(occurs) - 1)[numbers - first] * KINDS + (keys[:, c.KEY_REF] & c.KEY_KIND_MASK)
    return splits, _sums(cells, keys[:, c.KEY_LATEST_BYTES], len(splits) * KINDS).reshape(-1, KINDS, 2)


def _sums(cells: Column, sizes: Column, count: int) -> Table:
    """Return for each cell how often it occurs, and the sum of its sizes."""
    cell_sums = np.zeros((count, 2), np.int64)
    cell_sums[:, 0] = np.bincount(cells, minlength=count)
    np.add.at(cell_sums[:, 1], cells, sizes)
    return cell_sums


def _by_power(versions: Column) -> Table:
    """Return keys and records by the greatest power of two that is not above their number of versions."""
    powers = np.frexp(np.maximum(versions, 1).astype(np.float64))[1].astype(np.int64) - 1
    return _sums(powers, versions, POWERS)


def _by_age(live: Table, now_ms: int) -> Table:
    """Return live keys and the bytes of their newest records by age."""
    timestamps = live[:, c.KEY_TIMESTAMP]
    # A timestamp may be any number of 64 bits, so it is compared with limits, not subtracted from.
    limits = np.array([now_ms - limit for limit in reversed(AGE_LIMITS_MS)], np.int64)
    cells = len(limits) - np.searchsorted(limits, timestamps, side="left")
    cells[timestamps > now_ms] = FUTURE
    cells[timestamps < 0] = UNKNOWN
    return _sums(cells, live[:, c.KEY_LATEST_BYTES], AGES)


def _is_old(job: KeysJob, live: Table) -> npt.NDArray[np.bool_]:
    """Return which of these keys are older than asked. A record without a timestamp is not."""
    timestamps = live[:, c.KEY_TIMESTAMP]
    if job.older_than_ms is None:
        return np.zeros(len(live), np.bool_)
    return (timestamps >= 0) & (timestamps < job.now_ms - job.older_than_ms)


# Prefixes


def _by_prefix(keys: Table, is_live: npt.NDArray[np.bool_]) -> Prefixes:
    live_bytes = np.where(is_live, keys[:, c.KEY_LATEST_BYTES], 0)
    return _limited(
        added_prefixes(
            np.column_stack(
                (
                    *(keys[:, c.KEY_PREFIX], keys[:, c.KEY_REF], np.ones(len(keys), np.int64)),
                    *(keys[:, c.KEY_VERSIONS], keys[:, c.KEY_BYTES], is_live.astype(np.int64), live_bytes),
                )
            )
        )
    )


def added_prefixes(rows: Table) -> Table:
    """Return one row for each prefix: the sums of the rows."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows[:, PREFIX_REF], rows[:, PREFIX]))]
    starts = np.flatnonzero(np.concatenate(([True], rows[1:, PREFIX] != rows[:-1, PREFIX])))
    prefix_sums: Table = np.add.reduceat(rows, starts)
    prefix_sums[:, [PREFIX, PREFIX_REF]] = rows[starts][:, [PREFIX, PREFIX_REF]]
    return prefix_sums


def _limited(table: Table) -> Prefixes:
    if len(table) <= MOST_PREFIXES:
        return Prefixes(table, True)
    return Prefixes(table[np.argsort(-table[:, PREFIX_BYTES], kind="stable")[:MOST_PREFIXES]], False)


def join_prefixes(parts: Sequence[Prefixes]) -> Prefixes:
    """Return the sums of several tables of prefixes."""
    joined = Prefixes(np.empty((0, PREFIX_LIVE_BYTES + 1), np.int64), True)
    for part in parts:
        if len(part.table):
            more = _limited(added_prefixes(np.concatenate((joined.table, part.table))))
            joined = Prefixes(more.table, joined.is_complete and part.is_complete and more.is_complete)
    return joined


# Keys in several logs


def _in_several(all_keys: Sequence[Table], merger: Merger, used_bits: int) -> tuple[int, Table]:
    """Return the number of different keys in several logs, and the rows of those that are in more than one.

    Their number of versions is the number of logs.
    """
    keys = np.concatenate(all_keys)
    keys[:, c.KEY_VERSIONS] = 1
    keys = keys[: merger.merge(keys, order_bits=0, used_bits=used_bits)]
    return len(keys), keys[keys[:, c.KEY_VERSIONS] > 1]


def _most_shared(job: KeysJob, several: Table, keys_of: dict[int, Table]) -> list[SharedKey]:
    """Return the keys that most logs hold."""
    shared_keys = []
    for row in top_rows(several, c.KEY_VERSIONS, job.top):
        rows = {
            number: keys[(keys[:, c.KEY_LOW] == row[c.KEY_LOW]) & (keys[:, c.KEY_HIGH] == row[c.KEY_HIGH])]
            for number, keys in keys_of.items()
        }
        held = {number: its_rows[0] for number, its_rows in rows.items() if len(its_rows)}
        shared_keys.append(
            SharedKey(
                logs=tuple(held),
                refs=tuple(int(each[c.KEY_REF]) for each in held.values()),
                versions=sum(int(each[c.KEY_VERSIONS]) for each in held.values()),
                size_bytes=sum(int(each[c.KEY_BYTES]) for each in held.values()),
            )
        )
    return shared_keys
