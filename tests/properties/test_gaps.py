"""`questions.gaps.answer` against a plain walk over every record, and the kernels against the definition."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from kcompact.format.batch import parse_batches, read_records
from kcompact.log import batch_headers, inflate, segment_reader
from kcompact.log.markers import read_marker
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.gaps import batches as gap_batches
from kcompact.questions.gaps.answer import log_gaps
from kcompact.questions.gaps.walks import Gaps, GapWalk
from tests.support.damage import flip_a_bit
from tests.support.history_logs import plan_of
from tests.support.machine_code import switched

LOGS = 24

pytestmark = pytest.mark.long


class Seen(NamedTuple):
    """A record on the disk."""

    offset: int
    timestamp: int
    is_control: bool
    is_aborted: bool


class Plain(NamedTuple):
    """A walk, as a person would write it down."""

    rows: int
    gaps: int
    first_gap_offset: int | None
    last_gap: tuple[int, int, int] | None
    last_offset: int | None


def records_of(plan: CleanPlan) -> list[Seen]:
    """Return the records of a log from its start on."""
    log, found = plan.log, []
    ended: list[tuple[int, int, int]] = []
    opened: dict[int, int] = {}
    for segment in log.segments:
        for batch in parse_batches((log.directory / segment.log_name).read_bytes(), file=""):
            header = batch.header
            if header.is_control:
                marker = read_marker(batch, file="")
                first = opened.pop(header.producer_id, None) if marker is not None else None
                if marker is not None and marker.kind == 0 and first is not None:
                    ended.append((header.producer_id, first, header.last_offset))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
            found += [(header, record) for record in read_records(batch, file="")]
    return [
        Seen(
            record.offset,
            record.timestamp,
            header.is_control,
            header.is_transactional
            and any(pid == header.producer_id and first <= record.offset < last for pid, first, last in ended),
        )
        for header, record in found
        if record.offset >= log.log_start_offset
    ]


def plain_walk(rows: list[Seen], *, ignored: set[int]) -> Plain:
    """Return the article's loop over some rows. Offsets in `ignored` are not missing."""
    previous = first_gap = last_gap = None
    gaps = 0
    for number, row in enumerate(rows, start=1):
        if previous is not None and any(each not in ignored for each in range(previous + 1, row.offset)):
            gaps += 1
            first_gap = row.offset if first_gap is None else first_gap
            last_gap = (row.offset, number, row.timestamp)
        previous = row.offset
    return Plain(len(rows), gaps, first_gap, last_gap, previous)


def as_plain(walk: GapWalk) -> Plain:
    last_gap = None
    if walk.last_gap_offset is not None:
        assert walk.last_gap_row is not None
        assert walk.last_gap_timestamp_ms is not None
        last_gap = (walk.last_gap_offset, walk.last_gap_row, walk.last_gap_timestamp_ms)
        assert walk.contiguous_rows_since_gap == walk.rows - walk.last_gap_row
    return Plain(walk.rows, walk.gaps, walk.first_gap_offset, last_gap, walk.last_offset)


def described(found: Gaps) -> dict[str, Any]:
    return asdict(found) | {"damage": repr(found.damage)}


def by_definition(plan: CleanPlan) -> Gaps:
    with switched(compiled=False):
        return log_gaps(plan)


def by_kernels(plan: CleanPlan, *, rows: int) -> Gaps:
    with (
        mock.patch.object(gap_batches, "_HOLE_BYTES", 100 * rows),
        mock.patch.object(segment_reader, "WINDOW_BYTES", 200 * rows),
        mock.patch.object(batch_headers, "TABLE_ROWS", rows),
        mock.patch.multiple(inflate, INFLATED_BYTES=300),
    ):
        return log_gaps(plan)


def test_any_log_is_walked_as_a_person_would(tmp_path: Path) -> None:
    seen_gaps = 0
    for seed in range(LOGS):
        plan = plan_of(seed, tmp_path)
        assert not plan.log.damage, seed
        found = by_definition(plan)
        records = records_of(plan)
        data = [row for row in records if not row.is_control]
        control = {row.offset for row in records if row.is_control}
        committed = [row for row in data if not row.is_aborted and row.offset < plan.last_stable_offset]
        assert as_plain(found.on_disk) == plain_walk(data, ignored=control), seed
        assert as_plain(found.read_uncommitted) == plain_walk(data, ignored=set()), seed
        assert as_plain(found.read_committed) == plain_walk(committed, ignored=set()), seed
        check_counts(plan, found, records)
        seen_gaps += found.on_disk.gaps
    assert seen_gaps > LOGS


def check_counts(plan: CleanPlan, found: Gaps, records: list[Seen]) -> None:
    log, counts = plan.log, found.counts
    offsets = {row.offset for row in records}
    missing = [each for each in range(log.log_start_offset, log.log_end_offset) if each not in offsets]
    assert (counts.data_offsets, counts.control_offsets, counts.aborted_offsets) == (
        sum(not row.is_control for row in records),
        sum(row.is_control for row in records),
        sum(row.is_aborted and not row.is_control for row in records),
    )
    assert counts.missing == len(missing)
    assert counts.missing_to == max(missing, default=-1)
    assert found.dirty.missing == sum(each >= found.first_dirty_offset for each in missing)
    assert sum(each.counts.missing for each in found.segments) == counts.missing
    tails = emptied = inside = 0
    for segment in log.segments:
        for batch in parse_batches((log.directory / segment.log_name).read_bytes(), file=""):
            kept = [record.offset for record in read_records(batch, file="")]
            header = batch.header
            lost = [
                each
                for each in range(max(header.base_offset, log.log_start_offset), header.last_offset + 1)
                if each not in kept
            ]
            if not kept:
                emptied += len(lost)
            else:
                tails += sum(each > kept[-1] for each in lost)
                inside += sum(each < kept[-1] for each in lost)
    assert (counts.in_empty_batches, counts.in_lost_tails, counts.inside_batches) == (emptied, tails, inside)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_kernels_find_the_same(rows: int, tmp_path: Path) -> None:
    for seed in range(rows % 2, LOGS, 4):
        plan = plan_of(seed, tmp_path)
        assert described(by_kernels(plan, rows=rows)) == described(by_definition(plan)), seed


def test_damage_ends_the_count_the_same_way(tmp_path: Path) -> None:
    damaged = 0
    for seed in range(LOGS):
        plan = plan_of(seed, tmp_path)
        if not flip_a_bit(plan.log.directory, seed):
            continue
        found = by_definition(plan)
        assert described(by_kernels(plan, rows=5)) == described(found), seed
        damaged += found.damage is not None
        assert found.damage is not None or found.counted_to_offset == plan.log.log_end_offset
    assert damaged > LOGS // 12
