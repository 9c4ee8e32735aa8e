"""Hashes of records: of the key, and of all that a reader sees. Records with the same content have the same hash.

The kernels hash the fields where they lie. Java writes header names anew as UTF-8, so two replicas can have other bytes
for the same name: `same_content` decides about records whose hashes differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact import kernels
from kcompact.format.batch import Record

if TYPE_CHECKING:
    from kcompact.kernels import Column, Table
    from kcompact.log.records import RecordRun
    from kcompact.stages.job import ScanJob


def key_hashes(job: ScanJob, run: RecordRun, rows: Column, keys: Table) -> None:
    """Write the hashes of the keys of some records into the first two columns of a table, the high half first."""
    kernels.hash_record_keys(run.data, run.columns, rows, *_halves(job), keys)


def content_hashes(job: ScanJob, run: RecordRun, rows: Column) -> Column:
    """Return a hash of timestamp, key, value and headers of some records."""
    hashes = np.empty(len(rows), np.int64)
    kernels.hash_record_contents(run.data, run.columns, rows, *_halves(job), hashes)
    return hashes


def same_content(one: Record, other: Record) -> bool:
    """Return whether a reader sees the same in two records, with header names as Java reads them."""
    return _as_read(one) == _as_read(other)


def _as_read(record: Record) -> tuple[object, ...]:
    headers = tuple((name.decode("utf-8", "replace"), value) for name, value in record.headers)
    return record.timestamp, record.key, record.value, headers


def _halves(job: ScanJob) -> tuple[int, int]:
    k0, k1 = np.frombuffer(job.hash_key, "<u8").tolist()
    return k0, k1
