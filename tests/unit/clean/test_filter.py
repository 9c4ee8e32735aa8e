"""`clean.filter`: what Kafka reads and does not write, and horizons before 1970."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.clean.filter import clean_batch
from kcompact.clean.job import RecordCounts
from kcompact.errors import RefusedError
from kcompact.format.batch import DELETE_HORIZON_BIT, parse_batches, read_header
from kcompact.release import release_of
from tests.support import log_dsl
from tests.support.mutants import legacy_entry
from tests.support.parts import job_of


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ("[a=1^-2 b=1]", "the timestamp -2"),
        ("[a=1 b=1](txn)", "a transaction but no producer id"),
        ("[a=1 b=1](pid=7 epoch=-1)", "no producer epoch"),
        ("[a=1 b=1](pid=7 epoch=0 seq=-1)", "no sequence number"),
    ],
)
def test_what_kafka_reads_and_does_not_write(tmp_path: Path, staging: Path, batch: str, problem: str) -> None:
    (data,) = log_dsl.parse(f"log\n0: {batch}").segments[0].batches
    (source,) = parse_batches(data, file="f")
    job = job_of(tmp_path)
    assert clean_batch(source, job, [True, True], file="f").data == data
    with pytest.raises(RefusedError, match=problem):
        clean_batch(source, job, [True, False], file="f")


def test_a_negative_horizon_counts_and_is_not_written_again(tmp_path: Path) -> None:
    (data,) = log_dsl.parse("log\n0: [a=1 b=~ c=1]").segments[0].batches
    (source,) = parse_batches(data, file="f")
    header = source.header._replace(attributes=DELETE_HORIZON_BIT, base_timestamp=-1)
    cleaned = clean_batch(source._replace(header=header), job_of(tmp_path), [True, True, False], file="f")
    assert cleaned.data is not None
    assert cleaned.counts == RecordCounts(read=3, kept=1, superseded=1, expired=1, kept_latest=1)
    assert (cleaned.stats.messages_read, cleaned.stats.messages_written) == (3, 1)
    assert read_header(cleaned.data, file="f", position=0).delete_horizon_ms is None


@pytest.mark.parametrize(
    ("keeps_legacy_tombstones", "keep_tombstones", "replica_end", "counts"),
    [
        (True, False, None, RecordCounts(read=1, kept=1, kept_latest=1, new_horizons=1)),
        (False, False, None, RecordCounts(read=1, expired=1)),
        (False, False, 6, RecordCounts(read=1, expired=1)),
        (False, False, 5, RecordCounts(read=1, kept=1, kept_latest=1, new_horizons=1, held_tombstones=1)),
        (False, True, 5, RecordCounts(read=1, kept=1, kept_latest=1, new_horizons=1)),
        (True, False, 5, RecordCounts(read=1, kept=1, kept_latest=1, new_horizons=1)),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_tombstones_of_old_formats_are_held_back_too(
    tmp_path: Path,
    magic: int,
    keeps_legacy_tombstones: bool,
    keep_tombstones: bool,
    replica_end: int | None,
    counts: RecordCounts,
) -> None:
    """They have no horizon: the age of the segment decides. What stays becomes a batch of today's format with one."""
    (source,) = parse_batches(legacy_entry(5, b"a", None, magic=magic), file="f")
    job = replace(job_of(tmp_path), keep_tombstones=keep_tombstones, held_back_from_offset=replica_end)
    cleaned = clean_batch(source, job, [True], keeps_legacy_tombstones=keeps_legacy_tombstones, file="f")
    assert cleaned.counts == counts
    assert (cleaned.data is None) == (counts.kept == 0)
    if cleaned.data is not None:
        assert read_header(cleaned.data, file="f", position=0).delete_horizon_ms == job.new_horizon_ms


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("version", "goes_before"), [("4.3", False), ("4.0", False), ("3.9", True), ("3.8", None), ("2.8", True)]
)
def test_old_formats_have_no_empty_batch(tmp_path: Path, magic: int, version: str, goes_before: bool | None) -> None:
    """None: the last batch of a round goes."""
    (source,) = parse_batches(legacy_entry(5, b"a", b"1", magic=magic), file="f")
    release = release_of(version)
    job = replace(job_of(tmp_path), release=release, upper_bound_offset=6)
    if goes_before is None:
        assert clean_batch(source, job, [False], file="f").data is None
        return
    with pytest.raises(RefusedError, match=rf"cleaner of Kafka {release.version} stops here too") as refused:
        clean_batch(source, job, [False], file="f")
    assert ("Before 3.9.2 the batch goes" in str(refused.value)) == goes_before
