"""`plan.deletion`: which segments a broker would delete, and that `--apply-retention` deletes exactly these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.retention import apply_retention, make_space
from kcompact.config.broker_config import BrokerConfig
from kcompact.engine.in_process import InProcess
from kcompact.errors import LogChangedError, RefusedError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import (
    assumed_settings,
    due_now,
    expired_segments,
    plan_forecast,
    reason_to_roll,
)
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer

SEGMENTS = """\
0: a=*1000
10: b=*1000
20: c=*1000
30: d=*1000
"""


def plan_of(settings: str, directory: Path, *, segments: str = SEGMENTS) -> CleanPlan:
    spec = log_dsl.parse(f"log now=10:00 {settings}\n{segments.strip()}")
    return plan_partition(log_writer.write(spec, directory), spec.config, now_ms=spec.now_ms)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("cleanup.policy=compact retention.ms=1 retention.bytes=0", []),
        ("cleanup.policy=compact start=9", []),
        ("cleanup.policy=compact start=10", [(0, "log-start-offset")]),
        ("cleanup.policy=compact start=25", [(0, "log-start-offset"), (10, "log-start-offset")]),
        ("cleanup.policy=compact,delete retention.ms=-1 start=10", [(0, "log-start-offset")]),
        ("cleanup.policy=compact,delete retention.ms=3600000", []),
        (
            "cleanup.policy=compact,delete retention.ms=3599999",
            [(0, "retention.ms"), (10, "retention.ms"), (20, "retention.ms")],
        ),
        ("cleanup.policy=compact,delete retention.ms=-1", []),
        ("cleanup.policy=compact,delete retention.ms=-1 retention.bytes=100000", []),
        ("cleanup.policy=compact,delete retention.ms=-1 retention.bytes=3200", [(0, "retention.bytes")]),
        (
            "cleanup.policy=compact,delete retention.ms=-1 retention.bytes=0",
            [(0, "retention.bytes"), (10, "retention.bytes"), (20, "retention.bytes")],
        ),
        ("cleanup.policy=compact,delete retention.ms=1 hw=15", [(0, "retention.ms")]),
        ("cleanup.policy=delete retention.ms=1 hw=9", []),
        ("cleanup.policy=delete retention.ms=1 hw=15", [(0, "retention.ms")]),
        ("cleanup.policy=delete retention.ms=-1 retention.bytes=3200", [(0, "retention.bytes")]),
    ],
)
def test_expired_segments(settings: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    plan = plan_of(settings, tmp_path)
    found = expired_segments(plan.log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)
    assert [(one.segment.base_offset, str(one.reason)) for one in found] == expected


ALL = "cleanup.policy=delete retention.ms=1"


@pytest.mark.parametrize(
    ("settings", "segments", "expected"),
    [
        (ALL, SEGMENTS, "retention.ms"),
        ("cleanup.policy=compact,delete retention.ms=1", SEGMENTS, "retention.ms"),
        ("cleanup.policy=delete retention.ms=-1 retention.bytes=0", SEGMENTS, "retention.bytes"),
        (f"{ALL} hw=30", SEGMENTS, None),
        ("cleanup.policy=delete retention.ms=-1 retention.bytes=1", SEGMENTS, None),
        ("cleanup.policy=delete retention.ms=3600000", SEGMENTS, None),
        (ALL, "0: a=*1000\n1: b=1^11:00", None),
        (ALL, "0: a=*1000^11:00\n1: b=1", None),
        (ALL, "0: a=*1000\n1:", None),
        ("cleanup.policy=compact start=31", SEGMENTS, None),
        (f"{ALL} unclean", SEGMENTS, None),
        (f"{ALL} name=__share_group_state-0", SEGMENTS, None),
    ],
)
def test_a_broker_rolls_what_it_would_delete_entirely(
    settings: str, segments: str, expected: str | None, tmp_path: Path
) -> None:
    plan = plan_of(settings, tmp_path, segments=segments)
    assert reason_to_roll(plan) == expected
    assert plan.log.active_segment not in [due.segment for due in due_now(plan)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ALL, [0, 10, 20]),
        ("cleanup.policy=compact min.cleanable.dirty.ratio=1 start=10", [0]),
        (f"{ALL} unclean", []),
        (f"{ALL} name=__share_group_state-0", []),
        (f"{ALL} remote.storage.enable=true", []),
    ],
)
def test_what_is_due_now(settings: str, expected: list[int], tmp_path: Path) -> None:
    plan = plan_of(settings, tmp_path)
    assert [due.segment.base_offset for due in due_now(plan)] == expected
    assert [due.segment.base_offset for due in plan_forecast(plan) if not due.is_postponed] == expected


NOT_DIRTY_ENOUGH = "cleanup.policy=compact min.cleanable.dirty.ratio=1"
RETAIN = CleanOptions(apply_retention=True)


def test_expired_segments_are_deleted_with_their_snapshots(tmp_path: Path) -> None:
    plan = plan_of(f"{NOT_DIRTY_ENOUGH} start=20", tmp_path, segments=f"{SEGMENTS}snapshot 10:\nsnapshot 30:")
    before = {path.name: path.read_bytes() for path in plan.log.directory.iterdir()}
    with log_dir_lock(plan.log.directory.parent) as lock:
        done = cleaner.clean_partition(plan, InProcess(), lock=lock, options=RETAIN)
    assert [one.segment.base_offset for one in done.expired] == [0, 10]
    gone = {name for name in before if name[:20] in (f"{0:020}", f"{10:020}")}
    assert {path.name: path.read_bytes() for path in plan.log.directory.iterdir()} == {
        name: content for name, content in before.items() if name not in gone
    }


def test_nothing_is_deleted_unless_asked(tmp_path: Path) -> None:
    plan = plan_of(f"{NOT_DIRTY_ENOUGH} start=20", tmp_path)
    before = sorted(plan.log.directory.iterdir())
    with log_dir_lock(plan.log.directory.parent) as lock:
        assert cleaner.clean_partition(plan, InProcess(), lock=lock).expired == ()
    assert sorted(plan.log.directory.iterdir()) == before


def test_a_segment_that_changed_is_not_deleted(tmp_path: Path) -> None:
    plan = plan_of(f"{NOT_DIRTY_ENOUGH} start=10", tmp_path)
    log = plan.log.directory / plan.log.segments[0].log_name
    log.write_bytes(log.read_bytes() + b"\0")
    with log_dir_lock(plan.log.directory.parent) as lock, pytest.raises(LogChangedError):
        cleaner.clean_partition(plan, InProcess(), lock=lock, options=RETAIN)
    assert log.exists()


SMALL_SEGMENTS = "cleanup.policy=compact,delete segment.bytes=2500 retention.ms=5400000"
OLD_AND_YOUNG = """\
0: a=*1000^08:00
10: b=*1000^08:10
20: c=*1000^08:20
30: d=*1000^09:30
40: e=*1000^09:40
"""


@pytest.mark.parametrize(
    ("settings", "assumed", "deleted", "before_cleaning"),
    [
        ("retention.bytes=0", (), [0, 10, 20], []),
        ("retention.bytes=2100", ("retention.ms",), [0, 10], []),
        ("start=10", ("retention.ms",), [0], [0]),
        ("retention.bytes=0 retention.ms=604800000", (), [0, 10, 20], [0, 10, 20]),
        ("retention.ms=604799999", (), [0, 10, 20], [0, 10, 20]),
        ("retention.ms=-1", (), [], []),
    ],
)
def test_nothing_is_deleted_by_an_assumed_setting(
    settings: str, assumed: tuple[str, ...], deleted: list[int], before_cleaning: list[int], tmp_path: Path
) -> None:
    plan = plan_of(f"cleanup.policy=compact,delete {settings}", tmp_path)
    plan = replace(plan, now_ms=plan.now_ms + 8 * 86_400_000)
    assert assumed_settings(due_now(plan), plan.config) == assumed
    dry_run = replace(RETAIN, dry_run=True)
    for due, expected in (
        (apply_retention(plan, plan.log, None, dry_run), deleted),
        (make_space(plan, None, dry_run), before_cleaning),
    ):
        assert [one.segment.base_offset for one in due] == expected
        assert [one.end_offset for one in due] == [one.segment.base_offset + 10 for one in due]
    if assumed:
        with pytest.raises(RefusedError, match=r"retention\.ms=604800000 is Kafka's default"):
            cleaner.clean_partition(plan, InProcess(), lock=None, options=dry_run)
    known = replace(plan, config=replace(plan.config, broker=BrokerConfig()))
    assert apply_retention(known, plan.log, None, dry_run) == due_now(plan)


def test_merging_with_a_younger_segment_postpones_deletion(tmp_path: Path) -> None:
    plan = plan_of(SMALL_SEGMENTS, tmp_path, segments=OLD_AND_YOUNG)
    assert [[member.base_offset for member in group] for group in plan.groups] == [[0, 10], [20, 30]]
    found = plan_forecast(plan)
    assert [(due.segment.base_offset, due.is_postponed) for due in found] == [(0, False), (10, False), (20, True)]


@pytest.mark.parametrize("retention", ["", "retention.bytes=1000"])
def test_the_dry_run_deletes_what_the_run_deletes(retention: str, tmp_path: Path) -> None:
    settings = f"{SMALL_SEGMENTS} {retention}"
    dry = plan_of(settings, tmp_path / "dry", segments=OLD_AND_YOUNG)
    real = plan_of(settings, tmp_path / "real", segments=OLD_AND_YOUNG)
    forecast = cleaner.clean_partition(dry, InProcess(), lock=None, options=replace(RETAIN, dry_run=True)).expired
    with log_dir_lock(real.log.directory.parent) as lock:
        deleted = cleaner.clean_partition(real, InProcess(), lock=lock, options=RETAIN).expired
    assert [(one.segment.base_offset, one.segment.size_bytes, one.reason) for one in forecast] == [
        (one.segment.base_offset, one.segment.size_bytes, one.reason) for one in deleted
    ]
    assert forecast
