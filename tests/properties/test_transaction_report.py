"""`questions.transactions.answer` against a plain reading of every batch, with kernels and without."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kcompact.format.batch import Header, parse_batches, read_records
from kcompact.log import batch_headers, records, segment_reader
from kcompact.log.markers import Marker, read_marker
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.transactions.answer import (
    TransactionEnding,
    TransactionReport,
    log_transaction_report,
)
from tests.support.damage import flip_a_bit
from tests.support.history_logs import plan_of
from tests.support.machine_code import switched

LOGS = 30

pytestmark = pytest.mark.long


class Plain:
    """The transactions of a log, as a person would follow them."""

    def __init__(self, plan: CleanPlan) -> None:
        self.plan = plan
        self.ended: list[dict[str, Any]] = []
        self.opened: dict[int, dict[str, Any]] = {}
        self.below_start: set[int] = set()
        self.markers: Counter[str] = Counter()
        self.tombstones: Counter[str] = Counter()
        self.kept_for_producers = 0
        for segment in plan.log.segments:
            for batch in parse_batches((plan.log.directory / segment.log_name).read_bytes(), file=""):
                found = read_records(batch, file="")
                header = batch.header
                if header.last_offset < plan.log.log_start_offset:
                    self._pass_below_the_start(header)
                    continue
                if header.is_control:
                    self._end(header, read_marker(batch, file=""))
                    continue
                self._count_tombstones(header, [each.offset for each in found if each.value is None])
                if header.is_transactional:
                    self._go_on(header, [each.timestamp for each in found])

    def _pass_below_the_start(self, header: Header) -> None:
        if header.is_control and header.records_count:
            self.below_start.discard(header.producer_id)
        elif header.is_transactional and not header.is_control:
            self.below_start.add(header.producer_id)

    def _go_on(self, header: Header, times: list[int]) -> None:
        known = self.opened.setdefault(
            header.producer_id,
            {
                "first_offset": header.base_offset,
                "first_timestamp_ms": -1,
                "last_timestamp_ms": -1,
                "batches": 0,
                "records": 0,
                "size_bytes": 0,
            },
        )
        if not known["records"] and times:
            known["first_timestamp_ms"] = times[0]
        known["last_offset"] = header.last_offset
        known["last_timestamp_ms"] = max(known["last_timestamp_ms"], header.max_timestamp)
        known["batches"] += 1
        known["records"] += len(times)
        known["size_bytes"] += header.size_bytes

    def _end(self, header: Header, marker: Marker | None) -> None:
        if marker is None:
            self.markers["emptied"] += 1
            return
        data = self.opened.pop(header.producer_id, None)
        self.ended.append(
            {
                **(data or {}),
                "committed": marker.kind == 1,
                "coordinator_epoch": marker.coordinator_epoch,
                "ended": marker.timestamp,
            }
        )
        horizon = header.delete_horizon_ms
        is_below = header.producer_id in self.below_start
        self.below_start.discard(header.producer_id)
        if data is not None or is_below:
            self.markers["with_data"] += 1
            return
        self.markers[self._waits(horizon, header.last_offset)] += 1
        last = self.plan.producers.get(header.producer_id)
        if last is not None and last.last_data_offset is None and last.epoch == header.producer_epoch:
            self.kept_for_producers += 1

    def _count_tombstones(self, header: Header, offsets: list[int]) -> None:
        for offset in offsets:
            if offset >= self.plan.log.log_start_offset:
                self.tombstones[self._waits(header.delete_horizon_ms, offset)] += 1

    def _waits(self, horizon: int | None, offset: int) -> str:
        if horizon is None:
            return "unstamped" if offset < self.plan.first_uncleanable_offset else "uncleanable"
        return "waiting" if horizon > self.plan.now_ms else "expired"


def by_definition(plan: CleanPlan) -> TransactionReport:
    with switched(compiled=False):
        return log_transaction_report(plan)


def by_kernels(plan: CleanPlan, *, rows: int) -> TransactionReport:
    with (
        mock.patch.object(segment_reader, "WINDOW_BYTES", 200 * rows),
        mock.patch.object(batch_headers, "TABLE_ROWS", rows),
        mock.patch.object(records, "RUN_RECORDS", rows),
    ):
        return log_transaction_report(plan)


def described(report: TransactionReport) -> dict[str, Any]:
    return asdict(report) | {"damage": repr(report.damage)}


def states(plain: Plain) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in plain.ended:
        if "batches" not in each:
            found["gone"] += 1
        elif not each["records"]:
            found["emptied"] += 1
        else:
            found["committed" if each["committed"] else "aborted"] += 1
    return found


def test_any_log_is_reported_as_a_person_would(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(LOGS):
        plan = plan_of(seed, tmp_path)
        report, plain = by_definition(plan), Plain(plan)
        expected = states(plain)
        totals = report.totals
        assert {state: each.transactions for state, each in totals.items() if state is not TransactionEnding.OPEN} == {
            state: expected[state] for state in TransactionEnding if state is not TransactionEnding.OPEN
        }, seed
        for field in ("batches", "records", "size_bytes"):
            assert sum(
                getattr(each, field) for state, each in totals.items() if state is not TransactionEnding.OPEN
            ) == sum(each.get(field, 0) for each in plain.ended), seed
        check_open(plan, report, plain)
        counts = report.markers
        assert {name: getattr(counts, name) for name in plain.markers} == plain.markers, seed
        assert counts.kept_for_producers == plain.kept_for_producers, seed
        assert {name: getattr(report.tombstones, name) for name in plain.tombstones} == plain.tombstones, seed
        assert report.tombstones.total == plain.tombstones.total()
        longest = [each["ended"] - each["first_timestamp_ms"] for each in plain.ended if each.get("records")]
        assert [each.duration_ms for each in report.longest] == sorted(longest, reverse=True)[:10], seed
        seen += expected + Counter(open=len(report.open)) + plain.markers + plain.tombstones
    assert {"gone", "emptied", "committed", "aborted", "open", "with_data", "waiting", "expired"} <= {*seen}


def check_open(plan: CleanPlan, report: TransactionReport, plain: Plain) -> None:
    known = {each.producer_id for each in plan.producers.values() if each.transaction_first_offset is not None}
    assert {each.producer_id for each in report.open} == {*plain.opened, *known}
    for each in report.open:
        data = plain.opened.get(each.producer_id)
        assert (each.batches, each.records) == ((data["batches"], data["records"]) if data else (0, 0))
        assert each.is_known_to_broker == (each.producer_id in known)
        if each.is_known_to_broker:
            state = plan.producers[each.producer_id]
            assert (each.first_offset, each.producer_epoch) == (state.transaction_first_offset, state.epoch)
            assert each.is_hanging == (plan.now_ms - state.last_timestamp > 900_000)
        else:
            assert not each.is_hanging


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_the_kernels_find_the_same(rows: int, tmp_path: Path) -> None:
    for seed in range(rows % 2, LOGS, 4):
        plan = plan_of(seed, tmp_path)
        assert described(by_kernels(plan, rows=rows)) == described(by_definition(plan)), seed


def test_damage_ends_the_reading_the_same_way(tmp_path: Path) -> None:
    damaged = 0
    for seed in range(LOGS):
        plan = plan_of(seed, tmp_path)
        if not flip_a_bit(plan.log.directory, seed):
            continue
        found = by_definition(plan)
        assert described(by_kernels(plan, rows=5)) == described(found), seed
        damaged += found.damage is not None
        assert found.damage is not None or found.counted_to_offset == plan.log.log_end_offset
    assert damaged > LOGS // 2
