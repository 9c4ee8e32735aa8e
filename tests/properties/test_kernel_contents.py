"""`questions.compare.contents`: records have the same hash if and only if a reader sees the same in them."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.format.batch import Record, build
from kcompact.format.codec import Codec
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun, record_runs
from kcompact.questions.compare.contents import content_hashes, key_hashes
from kcompact.stages.job import ScanJob
from tests.support.kernel_inputs import LOG_NAME

field = st.none() | st.sampled_from([b"", b"a", b"ab", b"b"]) | st.binary(max_size=20)
header = st.tuples(st.sampled_from([b"", b"a", b"ab"]), field)
fields = st.tuples(st.sampled_from([0, 5, 2**62]), field, field, st.lists(header, max_size=2).map(tuple))
KEY = bytes(range(16))
JOB = cast(ScanJob, SimpleNamespace(hash_key=KEY))


def runs_of(records: list[tuple[Any, ...]], codec: Codec) -> list[RecordRun]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / LOG_NAME
        path.write_bytes(build([Record(number, *each) for number, each in enumerate(records)], codec=codec))
        return list(record_runs(LogFile.at(path)))


@given(st.lists(fields, min_size=1, max_size=6), st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_hashes_are_equal_where_the_content_is(records: list[tuple[Any, ...]], codec: Codec) -> None:
    (run,) = runs_of(records, codec)
    rows = np.arange(len(run))
    hashes = content_hashes(JOB, run, rows).tolist()
    keys = np.zeros((len(rows), 2), np.int64)
    keyed = np.flatnonzero(run.key_size >= 0)
    key_hashes(JOB, run, keyed, keys)
    for one, other in itertools.combinations(range(len(records)), 2):
        assert (hashes[one] == hashes[other]) == (records[one] == records[other])
    for one, other in itertools.combinations(range(len(keyed)), 2):
        same = records[keyed[one]][1] == records[keyed[other]][1]
        assert (keys[one].tolist() == keys[other].tolist()) == same


@given(st.lists(fields, min_size=1, max_size=6))
def test_the_hash_of_a_key_is_that_of_its_bytes(records: list[tuple[Any, ...]]) -> None:
    (run,) = runs_of(records, Codec.NONE)
    keyed = np.flatnonzero(run.key_size >= 0)
    keys = np.zeros((len(keyed), 2), np.int64)
    key_hashes(JOB, run, keyed, keys)
    low, high = np.frombuffer(KEY, "<u8").tolist()
    for found, row in zip(keys.tolist(), keyed.tolist(), strict=True):
        key = np.frombuffer(run.key(row) or b"", np.uint8)
        expected = kernels.siphash128(key, 0, len(key), low, high, 1, 3)
        assert found == np.frombuffer(expected, "<i8")[::-1].tolist()
