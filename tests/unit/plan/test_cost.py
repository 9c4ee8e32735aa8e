"""`plan.cost`: what a dry run counts, and the space that a cleaning asks for, are within the bounds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kcompact.clean.groups import count_groups
from kcompact.clean.prepare import prepare_clean
from kcompact.cleaner.space import shortage
from kcompact.config.settings import TopicConfig
from kcompact.engine.in_process import InProcess
from kcompact.host.disk import Disk
from kcompact.plan.cost import broker_cost, cost_here, is_throttled
from tests.support import log_dsl
from tests.support.log_values import log_of, planned, segment
from tests.support.stages import plan_of

ROUND = "log now=5d00:00 min.cleanable.dirty.ratio=0 segment.bytes=20000"
TOMBSTONES = " ".join(f"key{number}=~" for number in range(500))
LOGS = {
    "next to nothing": [ROUND, "0: a=1", "1: a=2"],
    "tombstones, which grow": [ROUND, f"0: [{TOMBSTONES}]", f"500: [{TOMBSTONES}]", "1000: z=1"],
    "an index entry for each batch": [f"{ROUND} index.interval.bytes=0", f"0: {TOMBSTONES}", "500: z=1"],
    "many small segments": [ROUND, *(f"{number}: k{number}=1" for number in range(40))],
    "several groups": [ROUND, *(f"{base}: a=*900 b=*9000 c=*9000" for base in range(0, 30, 3)), "30: z=1"],
    "transactions": [
        ROUND,
        "0: [a=1 b=2](pid=7 txn) abort@2(pid=7) [a=3](pid=7 txn seq=2) commit@4(pid=7)",
        "5: z=1",
        "txnindex 0: pid=7 first=0 last=2 stable=3",
    ],
}


@pytest.mark.parametrize("lines", LOGS.values(), ids=LOGS.keys())
def test_what_is_counted_is_within_the_bounds(lines: list[str], tmp_path: Path) -> None:
    plan = plan_of(log_dsl.parse("\n".join(lines)), tmp_path)
    cost, broker = cost_here(plan), broker_cost(plan)
    prepared = prepare_clean(plan, InProcess())
    stats, _, sizes, _ = count_groups(prepared)
    assert stats.bytes_written <= cost.bytes_written_at_most
    assert stats.bytes_read == broker.bytes_rewritten
    assert prepared.map_keys <= broker.keys_at_most
    refused = shortage(plan, sizes, Disk(free_bytes=0, block_bytes=4096))
    assert refused is not None
    assert refused.needed_bytes <= cost.least_extra_disk_bytes <= cost.peak_extra_disk_bytes
    assert shortage(plan, sizes, Disk(free_bytes=cost.least_extra_disk_bytes, block_bytes=4096)) is None


def test_offsets_without_records_need_no_space() -> None:
    """A compacted segment has far more offsets than records."""
    plan = planned(log_of(segment(0, 7000), segment(10**9), end=10**9 + 1))
    assert broker_cost(plan).keys_at_most == 10**9
    assert cost_here(plan).bytes_written_at_most == 7000 + 10 * 1000
    assert cost_here(planned(log_of(segment(0, 7000), segment(100)))).bytes_written_at_most == 7000 + 10 * 100


def test_a_large_group_may_be_written_in_parts() -> None:
    """While a part is appended the disk holds it twice; with less space the group is written in one part."""
    small, large = (cost_here(planned(log_of(segment(0, size), segment(100)))) for size in (50_000, 5_000_000))
    assert small.peak_extra_disk_bytes == small.least_extra_disk_bytes
    assert large.peak_extra_disk_bytes - large.least_extra_disk_bytes >= large.bytes_written_at_most
    assert large.least_extra_disk_bytes < 1.1 * large.bytes_written_at_most


def test_nothing_cleanable_costs_nothing(tmp_path: Path) -> None:
    plan = plan_of(log_dsl.parse(f"{ROUND} checkpoint=1\n0: a=1\n1: a=2"), tmp_path)
    cost = cost_here(plan)
    assert (cost.log_bytes_read, cost.bytes_written_at_most, cost.peak_extra_disk_bytes) == (0, 0, 0)
    assert broker_cost(plan).seconds_throttled is None


@pytest.mark.parametrize(
    ("rate", "is_limited"), [(1.0, True), (0.0, True), (-1.0, False), (math.nan, False), (math.inf, False)]
)
def test_which_rates_slow_a_broker_down(rate: float, is_limited: bool) -> None:
    assert is_throttled(TopicConfig(log_cleaner_io_max_bytes_per_second=rate)) is is_limited
