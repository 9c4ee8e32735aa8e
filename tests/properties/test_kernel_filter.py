"""The kernel that filters batches, compared with `filter.clean_batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.clean import split_kernels
from kcompact.clean.filter import FilteredRun
from kcompact.clean.job import CleanerStats, CleanJob, RecordCounts
from kcompact.clean.write import _clean_split
from kcompact.errors import KcompactError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Record, parse_batches, read_records, sealed
from kcompact.kernels import (
    HEADER_BYTES,
    Bytes,
)
from kcompact.log import inflate
from kcompact.log.files import LogFile
from kcompact.log.inflate import Buffers
from kcompact.log.producer_state import LastRecord
from kcompact.stages.job import Split
from tests.support import strategies
from tests.support.jobs import JOB
from tests.support.kernel_inputs import LOG_NAME, array, is_readable, odd_batches, same_offsets
from tests.support.parameters import few_examples
from tests.support.strategies import HOUR, NOW


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which each example writes the same file."""
    return tmp_path_factory.mktemp("kernels")


@st.composite
def control_batches(draw: st.DrawFn) -> bytes:
    """A marker, with or without a horizon, or one that has been emptied."""
    kind = draw(st.sampled_from([0, 1, 4]))
    data = batch_format.build(
        [Record(0, draw(strategies.near_timestamps), bytes([0, 0, 0, kind]), bytes(6))],
        producer_id=draw(st.integers(0, 3)),
        producer_epoch=draw(st.integers(0, 1)),
        transactional=True,
        control=True,
    )
    (one,) = parse_batches(data, file="")
    state = draw(st.sampled_from(["plain", "plain", "horizon", "emptied"]))
    if state == "emptied":
        return batch_format.empty(one.header)
    horizon = NOW + draw(st.sampled_from([-HOUR, 0, HOUR])) if state == "horizon" else None
    return batch_format.rebuild(one.header, read_records(one, file=""), delete_horizon_ms=horizon)


@st.composite
def transactional_batches(draw: st.DrawFn) -> bytes:
    data: bytes = draw(strategies.batches(fresh=True))
    (one,) = parse_batches(data, file="")
    producer_id = draw(st.integers(-1, 3))
    attributes = one.header.attributes | kernels.TRANSACTIONAL_BIT
    return sealed(one.header._replace(attributes=attributes, producer_id=producer_id), data[HEADER_BYTES:])


@st.composite
def with_odd_header(draw: st.DrawFn, data: bytes) -> bytes:
    """Batches that Kafka reads and does not write."""
    (one,) = parse_batches(data, file="")
    changes = {
        "base_sequence": st.sampled_from([-1, 3]),
        "producer_epoch": st.sampled_from([-1, 0]),
        "producer_id": st.sampled_from([-2, -1, 0, 1]),
        "base_timestamp": st.sampled_from([-5, -1, 0, 2**63 - 1]),
        "attributes": st.sampled_from([one.header.attributes | kernels.DELETE_HORIZON_BIT]),
    }
    name = draw(st.sampled_from(sorted(changes)))
    return sealed(one.header._replace(**{name: draw(changes[name])}), data[HEADER_BYTES:])


sound_batches = st.lists(
    st.one_of(
        strategies.batches(),
        strategies.batches(keys=strategies.SMALL_KEYS),
        strategies.batches(keys=st.none() | strategies.SMALL_KEYS),
        control_batches(),
        transactional_batches(),
        strategies.batches().flatmap(with_odd_header),
    ),
    min_size=1,
    max_size=4,
)
readable_odd_batches = (
    st.lists(odd_batches(), min_size=1, max_size=7)
    .map(lambda drawn: [data for data in drawn if is_readable(data)][:4])
    .filter(bool)
)


def special_in(batches: list[Batch]) -> int:
    return sum(
        record.key is None or record.value is None
        for one in batches
        if not one.header.is_control
        for record in read_records(one, file="f")
    )


def all_of(run: Callable[[], Iterator[FilteredRun]]) -> object:
    """Return the result of a filter, or its error, in a form that can be compared."""
    data = b""
    columns: list[list[int]] = [[], [], []]
    stats, counts = CleanerStats(), RecordCounts()
    try:
        for part in run():
            data += b"".join(part.pieces)
            for column, values in zip(columns, part[1:4], strict=True):
                column += values.tolist()
            stats += part.stats
            counts += part.counts
    except KcompactError as problem:
        return type(problem), str(problem)
    return data, columns, stats, counts


class Filtering(NamedTuple):
    job: CleanJob
    split: Split
    survivors: Bytes
    unkeyed_or_tombstones: int


@st.composite
def filterings(draw: st.DrawFn, batches: st.SearchStrategy[list[bytes]]) -> tuple[bytes, Filtering]:
    """A log and the inputs of a cleaning: survivors, discardable batches, horizons."""
    data = same_offsets(draw(batches))
    found = list(parse_batches(data, file=""))
    end_offset = found[-1].header.next_offset
    marked = [one.header.base_offset for one in found if one.header.is_control or one.header.is_transactional]
    job = replace(
        JOB,
        upper_bound_offset=draw(st.sampled_from([end_offset, end_offset, end_offset + 9, end_offset // 2])),
        now_ms=NOW,
        delete_retention_ms=draw(st.sampled_from([0, 1, HOUR, 2**63 - 1])),
        keep_tombstones=draw(st.booleans()),
        held_back_from_offset=draw(st.none() | st.integers(0, end_offset + 1)),
        last_records={
            producer_id: LastRecord(data_offset=draw(st.none() | offsets), producer_epoch=draw(st.integers(0, 1)))
            for producer_id in draw(st.sets(st.integers(0, 3)))
            for offsets in [st.sampled_from([one.header.last_offset for one in found])]
        },
    )
    split = Split(
        log=LogFile.at(LOG_NAME),
        start_position=0,
        end_position=len(data),
        base_offset=0,
        end_offset=end_offset,
        discardable=np.array(sorted(draw(st.sets(st.sampled_from(marked)))) if marked else [], np.int64),
    )
    records = sum(one.header.records_count for one in found)
    survivors = draw(
        st.binary(min_size=(records + 7) // 8, max_size=(records + 7) // 8)
        | st.sampled_from([b"\0", b"\xff"]).map(lambda byte: byte * ((records + 7) // 8))
    )
    return data, Filtering(job, split, array(survivors), special_in(found))


def assert_same_outcome(directory: Path, data: bytes, filtering: Filtering) -> None:
    job, split, survivors, unkeyed_or_tombstones = filtering
    (directory / LOG_NAME).write_bytes(data)
    split = replace(split, log=LogFile.at(directory / LOG_NAME))
    found = split_kernels.filter_split(job, split, survivors, unkeyed_or_tombstones, Buffers())
    assert found is not None
    assert all_of(lambda: found) == all_of(lambda: _clean_split(job, split, survivors))


@pytest.mark.long
@given(filterings(sound_batches))
def test_filter_is_clean_batch(scratch: Path, given_: tuple[bytes, Filtering]) -> None:
    assert_same_outcome(scratch, *given_)


@pytest.mark.long
@few_examples()
@given(filterings(readable_odd_batches))
def test_filter_of_what_kafka_would_write_otherwise(scratch: Path, given_: tuple[bytes, Filtering]) -> None:
    """Only batches that a scan has accepted are filtered."""
    assert_same_outcome(scratch, *given_)


@given(filterings(sound_batches), st.sampled_from([1, 40]))
def test_how_much_is_inflated_at_once_changes_nothing(
    scratch: Path, given_: tuple[bytes, Filtering], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflate, "INFLATED_BYTES", size)
        patch.setattr(inflate, "RUN_RECORDS", 1 if size == 1 else 4)
        assert_same_outcome(scratch, *given_)


def test_filter_leaves_other_splits_alone(scratch: Path) -> None:
    (scratch / LOG_NAME).write_bytes(batch_format.build([Record(0, 0, b"a", b"b"), Record(1, 0, b"a", b"b")]))
    size = (scratch / LOG_NAME).stat().st_size
    split = Split(log=LogFile.at(scratch / LOG_NAME), start_position=0, end_position=size, base_offset=0, end_offset=2)
    job = replace(JOB, directory=str(scratch), upper_bound_offset=2)
    # Fewer bits than records: the file has changed since the scan.
    assert split_kernels.filter_split(job, split, array(b""), 0, Buffers()) is None
    # The file is shorter than it was.
    longer = replace(split, end_position=size + 1)
    assert split_kernels.filter_split(job, longer, array(b"\3"), 0, Buffers()) is None
