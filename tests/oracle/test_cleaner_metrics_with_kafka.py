"""The metrics of Kafka's own cleaner, read over JMX, and those of `cleaner.metrics` after the same turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kcompact.clean.job import CleanerStats
from kcompact.cleaner.metrics import ThreadStats, cleaner_metrics, greatest_ratio
from kcompact.cleaner.partition import clean_partition
from kcompact.cleaner.service import Cleaner
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptDataError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.cost import OFFSET_MAP_ENTRY_BYTES, offset_map_slots
from kcompact.plan.partition import plan_partition
from tests.oracle.real_kafka import Json, RealKafka, copy_log_dir
from tests.support import log_dsl, log_writer
from tests.support.log_writer import LogSpec
from tests.support.patience import becomes

pytestmark = pytest.mark.oracle

SLOTS = 50
BUFFER_BYTES = 2 << 20
NOW = log_dsl.time_of("10:00")

DUPLICATES = """log name=duplicates-0 now=10:00
0: a=*100 b=*10 a=*40
3: b=*70 c=*1 [a=*9 d=*300](gzip)
7: e=1"""
TOMBSTONES = """log name=tombstones-1 now=10:00 checkpoint=2
0: a=*500 b=*20
2: a=~ b=~ c=1
5: d=1"""
BELOW_THE_RATIO = """log name=clean-0 now=10:00 checkpoint=4
0: a=*500 b=*20 c=*20 d=*400
4: a=1
5: d=1"""
LATE = """log name=late-0 now=10:00 checkpoint=4 max.compaction.lag.ms=20m
0: a=*500 b=*20 c=*20 d=*400
4: a=1^09:12:34.567
5: d=1"""
OPEN_TRANSACTION = """log name=open-0 now=10:00 max.compaction.lag.ms=1m
0: a=1 [a=*500](txn pid=7 epoch=0 seq=0)
2: d=1
snapshot 3: pid=7 last=1 open=1"""
NOT_COMPACTED = """log name=deleted-0 now=10:00 cleanup.policy=delete max.compaction.lag.ms=1m
0: a=*500 a=*10
2: a=1"""
EMPTY = "log name=empty-0 now=10:00\n0:"
ALL_CLEAN = """log name=done-0 now=10:00 checkpoint=2
0: a=1 b=1
2: c=1"""
BROKEN = """log name=broken-0 now=10:00 min.compaction.lag.ms=10m checkpoint=1
0: a=*20
1: b=*30 a=*900
3: a=*100
4: c=1"""
BROKEN_TOO = """log name=broken-1 now=10:00
0: [a=*40 b=*50]
2: c=1"""


@dataclass(slots=True)
class OurCleaner:
    """The cleaner with one thread, turn by turn, with a clock that stands still."""

    log_dir: Path
    configs: dict[str, TopicConfig]
    thread: ThreadStats
    last_run_ms: int
    dirtiest_ratio: float = 0.0
    uncleanable: list[str] = field(default_factory=list)

    def plan(self, name: str, now_ms: int) -> CleanPlan:
        return plan_partition(self.log_dir / name, self.configs[name], now_ms=now_ms)

    def turn(self, chosen: str | None, *, started_ms: int, ended_ms: int) -> None:
        """Clean the log that Kafka chose, if it is one of the dirtiest; `started_ms` and `ended_ms` are Kafka's too."""
        plans = [self.plan(name, NOW) for name in self.configs if name not in self.uncleanable]
        candidates = [plan for plan in plans if plan.config.compacts]
        eligible = {str(plan.log.topic_partition): plan for plan in candidates if plan.eligible}
        self.last_run_ms, self.dirtiest_ratio = NOW, greatest_ratio(candidates)
        assert (chosen is None) == (not eligible)
        if chosen is None:
            return
        plan = eligible[chosen]
        assert plan.cleanable_ratio == greatest_ratio(eligible.values())
        self.thread = self.thread.with_candidates(candidates)
        try:
            with log_dir_lock(self.log_dir) as lock:
                result = clean_partition(plan, InProcess(), lock=lock)
        except CorruptDataError:
            self.uncleanable.append(chosen)
            return
        self.thread = self.thread.with_cleaning(
            result.stats, map_slots=offset_map_slots(plan.config), started_ms=started_ms, ended_ms=ended_ms
        )

    def metrics(self, log_dir: Path, now_ms: int) -> dict[str, int]:
        """Return the metrics, with `log_dir` as the name of the log directory."""
        return cleaner_metrics(
            [self.thread],
            dirtiest_ratio=self.dirtiest_ratio,
            last_run_ms=self.last_run_ms,
            now_ms=now_ms,
            uncleanable={str(log_dir): [self.plan(name, now_ms).cleanable_bytes for name in self.uncleanable]},
        )


def break_records(directory: Path, base_offset: int) -> None:
    """Change the length of the first record of a segment, after the 61 bytes of the first batch's header."""
    file = directory / f"{base_offset:020d}.log"
    data = bytearray(file.read_bytes())
    data[61] ^= 0x3E
    file.write_bytes(data)


GROUPS: list[tuple[list[str], list[tuple[str, int]]]] = [
    ([DUPLICATES], []),
    ([TOMBSTONES], []),
    ([EMPTY, ALL_CLEAN], []),
    ([BELOW_THE_RATIO], []),
    ([OPEN_TRANSACTION], []),
    ([LATE, BELOW_THE_RATIO, OPEN_TRANSACTION, NOT_COMPACTED], []),
    ([DUPLICATES, TOMBSTONES, LATE, BELOW_THE_RATIO, NOT_COMPACTED, EMPTY, ALL_CLEAN], []),
    ([BROKEN, TOMBSTONES], [("broken-0", 1)]),
    ([BROKEN, BROKEN_TOO, DUPLICATES, LATE], [("broken-0", 3), ("broken-1", 0)]),
]
"""Logs of one log directory, and the segments whose first record is damaged."""


@pytest.mark.parametrize(("logs", "broken"), GROUPS)
def test_the_metrics_after_each_turn(
    logs: list[str], broken: list[tuple[str, int]], kafka: RealKafka, tmp_path: Path
) -> None:
    specs = [log_dsl.parse(text) for text in logs]
    ours, theirs = write_twice(specs, broken, tmp_path)
    reply = clean_with_kafka(kafka, theirs, specs, dedupe_buffer_bytes=SLOTS * OFFSET_MAP_ENTRY_BYTES)
    before, *after_turns = reply["metrics"]
    turns = [f"{turn['topic']}-{turn['partition']}" for turn in reply["turns"]]
    assert len(after_turns) == len(turns) + 1
    configs = {spec.name: _config(spec) for spec in specs}
    cleaner = OurCleaner(ours, configs, ThreadStats(started_ms=before["started_ms"]), before["last_run_ms"])

    def ours_at(now_ms: int) -> dict[str, int]:
        return cleaner.metrics(theirs, now_ms)

    assert cleaner.thread.ended_ms == before["ended_ms"]
    compare(ours_at, before)
    for chosen, shown in zip([*turns, None], after_turns, strict=True):
        cleaner.turn(chosen, started_ms=shown["started_ms"], ended_ms=shown["ended_ms"])
        assert (cleaner.thread.started_ms, cleaner.thread.ended_ms) == (shown["started_ms"], shown["ended_ms"])
        compare(ours_at, shown)
    assert sorted(cleaner.uncleanable) == sorted(name for name, _ in broken)


@pytest.mark.parametrize(("logs", "broken"), GROUPS)
def test_the_service_ends_with_the_same_metrics(
    logs: list[str], broken: list[tuple[str, int]], kafka: RealKafka, tmp_path: Path
) -> None:
    specs = [log_dsl.parse(text) for text in logs]
    ours, theirs = write_twice(specs, broken, tmp_path)
    *_, shown = clean_with_kafka(kafka, theirs, specs, dedupe_buffer_bytes=BUFFER_BYTES)["metrics"]
    settings = {
        "cleanup.policy": "compact",
        "log.cleaner.dedupe.buffer.size": str(BUFFER_BYTES),
        "log.cleaner.backoff.ms": "20",  # It follows each failure too.
    } | {f"{spec.topic_partition.topic}:{name}": value for spec in specs for name, value in spec.settings.items()}
    by_the_clock = {"time-since-last-run-ms": 0, "max-clean-time-secs": 0}
    expected = {name.replace(str(theirs), str(ours)): value for name, value in shown["values"].items()} | by_the_clock
    with Cleaner([ours], settings, clock=lambda: NOW) as cleaner:
        assert becomes(lambda: cleaner.metrics() | by_the_clock == expected), cleaner.metrics()
        assert sorted(map(str, cleaner.uncleanable_partitions)) == sorted(name for name, _ in broken)


def write_twice(specs: Iterable[LogSpec], broken: Iterable[tuple[str, int]], path: Path) -> tuple[Path, Path]:
    """Write the logs into two log directories, one for each cleaner."""
    ours, theirs = path / "ours", path / "theirs"
    for spec in specs:
        log_writer.write(spec, ours)
    for name, base_offset in broken:
        break_records(ours / name, base_offset)
    return ours, copy_log_dir(ours, theirs)


def clean_with_kafka(kafka: RealKafka, log_dir: Path, specs: Iterable[LogSpec], *, dedupe_buffer_bytes: int) -> Json:
    """Clean until nothing is eligible."""
    return kafka.clean(
        log_dir,
        config={"cleanup.policy": "compact"},
        topics={spec.topic_partition.topic: dict(spec.settings) for spec in specs},
        now_ms=NOW,
        turns=0,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        metrics=True,
    )


def _config(spec: LogSpec) -> TopicConfig:
    # No broker would start with so small a buffer, nor would `topic_config` take it.
    return replace(spec.config, log_cleaner_dedupe_buffer_size=SLOTS * OFFSET_MAP_ENTRY_BYTES)


def compare(ours_at: Callable[[int], dict[str, int]], shown: Json) -> None:
    """Compare all metrics with ours, which `ours_at` returns for a time.

    The one that grows with the clock lies between the values before and after Kafka was asked.
    """
    first, last = (ours_at(now_ms) for now_ms in shown["now_ms"])
    growing = "time-since-last-run-ms"
    assert first[growing] <= shown["values"][growing] <= last[growing]
    assert {**first, growing: 0} == {**shown["values"], growing: 0}


@pytest.mark.parametrize("seed", range(40))
def test_the_formulas(seed: int, kafka: RealKafka) -> None:
    rng = random.Random(seed)
    threads = [
        _random_thread(rng, is_dead=seed % 4 == 0 and rng.random() < 0.5) for _ in range(rng.choice([0, 1, 1, 2, 5]))
    ]
    ratio = rng.choice([rng.random(), rng.randint(0, 100) / 100, 1.0])
    last_run_ms = rng.choice([0, NOW, LONG_MAX])
    shown = kafka.metrics(
        [
            {
                "started_ms": thread.started_ms,
                "ended_ms": thread.ended_ms,
                "bytes_read": thread.stats.bytes_read,
                "bytes_written": thread.stats.bytes_written,
                "keys": thread.stats.map_keys,
                "slots": thread.map_slots,
                "delay_ms": thread.max_compaction_delay_ms,
                "is_dead": thread.is_dead,
            }
            for thread in threads
        ],
        dirtiest_ratio=ratio,
        last_run_ms=last_run_ms,
    )

    def ours_at(now_ms: int) -> dict[str, int]:
        return cleaner_metrics(threads, dirtiest_ratio=ratio, last_run_ms=last_run_ms, now_ms=now_ms, uncleanable={})

    compare(ours_at, shown)


def _random_thread(rng: random.Random, *, is_dead: bool) -> ThreadStats:
    slots = rng.choice([1, 3, 100, 5_592_405])
    read = rng.choice([0, 1, rng.randint(1, 1000), rng.randint(1, 1 << 50)])
    return ThreadStats(
        started_ms=rng.choice([NOW, 1 << 50]),
        ended_ms=rng.choice([-1, NOW, NOW + rng.randint(0, 10_000), NOW + rng.randint(0, 1 << 40)]),
        stats=CleanerStats(
            bytes_read=read,
            bytes_written=rng.choice([0, read, rng.randint(0, read + 5), read * 2]),
            map_keys=rng.randint(0, slots),
        ),
        map_slots=slots,
        max_compaction_delay_ms=rng.choice([0, 999, rng.randint(0, 1 << 30), rng.randint(0, 1 << 50), LONG_MAX]),
        is_dead=is_dead,
    )
