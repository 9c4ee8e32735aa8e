"""Retention in a round: with every policy, before the cleanings, and before a cleaning that lacks free space."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import CorruptIndexError
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl, log_writer
from tests.support.command_line import digest
from tests.support.compare import differences
from tests.support.log_writer import LogSpec
from tests.support.small_disk import SmallDisk

RETAIN = CleanOptions(apply_retention=True)
DRY = CleanOptions(apply_retention=True, dry_run=True)


EAGER = "min.cleanable.dirty.ratio=0 segment.bytes=30000"


def unique(base: int, count: int, size: int, time: str) -> str:
    return f"{base}: {' '.join(f'k{number}=*{size}^{time}' for number in range(base, base + count))}"


def log_of(policy: str, settings: str, *, name: str = "orders-0") -> LogSpec:
    """Two segments of different keys, 20 KB past 90 minutes and 27 KB not, and the active segment."""
    head = (
        f"log now=10:00 name={name} cleanup.policy={policy} min.cleanable.dirty.ratio=0 segment.bytes=30000 {settings}"
    )
    return log_dsl.parse("\n".join([head, unique(0, 10, 2000, "08:00"), unique(10, 30, 900, "09:30"), "40: z=1^09:40"]))


def clean(spec: LogSpec, path: Path, options: CleanOptions, **settings: str) -> RoundResult:
    # Both limits are named: by one alone nothing is deleted from a topic that no source knows.
    config = {"retention.bytes": "-1", "retention.ms": "604800000", **spec.settings, **settings}
    return clean_log_dir(path, config, plan_options=PlanOptions(now_ms=spec.now_ms), options=options)


def bases(directory: Path) -> list[int]:
    return [int(path.stem) for path in sorted(directory.glob("*.log"))]


@pytest.mark.parametrize(
    ("settings", "left", "reason"),
    [
        ("retention.ms=-1", [0, 10, 40], None),
        ("retention.ms=5400000", [10, 40], "retention.ms"),
        ("retention.ms=0", [40], "retention.ms"),
        ("retention.ms=-1 retention.bytes=25000", [10, 40], "retention.bytes"),
        ("retention.ms=-1 retention.bytes=0", [40], "retention.bytes"),
        ("retention.ms=-1 start=12", [10, 40], "log-start-offset"),
        ("retention.ms=0 hw=20", [10, 40], "retention.ms"),
    ],
)
def test_a_topic_that_is_not_compacted(settings: str, left: list[int], reason: str | None, tmp_path: Path) -> None:
    spec = log_of("delete", settings)
    directory = log_writer.write(spec, tmp_path)
    before = digest(tmp_path)
    (dry,) = clean(spec, tmp_path, DRY).partitions
    assert digest(tmp_path) == before
    (done,) = clean(spec, tmp_path, RETAIN).partitions
    assert bases(directory) == left
    assert done.result is not None
    assert dry.result is not None
    assert [str(due.reason) for due in done.result.expired] == [reason] * (3 - len(left))
    assert [due.segment for due in dry.result.expired] == [due.segment for due in done.result.expired]
    assert (dry.status, done.status) == (("dry-run", "deleted") if reason else ("skipped", "skipped"))
    assert done.exit_code == 0


def test_nothing_is_deleted_from_a_topic_of_unknown_policy(tmp_path: Path) -> None:
    spec = log_of("delete", "retention.ms=0")
    directory = log_writer.write(spec, tmp_path)
    settings = {name: value for name, value in spec.settings.items() if name != "cleanup.policy"}
    (outcome,) = clean_log_dir(
        tmp_path, settings, plan_options=PlanOptions(now_ms=spec.now_ms), options=RETAIN
    ).partitions
    assert (outcome.exit_code, bases(directory)) == (4, [0, 10, 40])


def test_tiered_storage_is_refused(tmp_path: Path) -> None:
    spec = log_of("delete", "retention.ms=0")
    directory = log_writer.write(spec, tmp_path)
    (outcome,) = clean(
        spec, tmp_path, RETAIN, **{"remote.storage.enable": "true", "local.retention.ms": "0"}
    ).partitions
    assert (outcome.exit_code, bases(directory)) == (4, [0, 10, 40])


SHORT = 15_000
"""Less than the first segment needs. With what retention frees there is room for the second one."""
EXPIRING = "retention.ms=5400000"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(tmp_path / "disk", monkeypatch)


def test_what_is_expired_makes_space_for_the_cleaning(disk: SmallDisk, tmp_path: Path) -> None:
    spec = log_of("compact,delete", EXPIRING)
    disk.leave(1 << 30)
    directory = log_writer.write(spec, disk.root / "data")
    expected = log_writer.write(spec, tmp_path / "expected")
    disk.leave(SHORT)
    assert clean(spec, directory.parent, CleanOptions(dry_run=True)).exit_code == 7

    before = digest(disk.root)
    (dry,) = clean(spec, directory.parent, DRY).partitions
    assert digest(disk.root) == before
    (done,) = clean(spec, directory.parent, RETAIN).partitions
    for one in (dry, done):
        assert one.error is None
        assert one.result is not None
        assert [due.segment.base_offset for due in one.result.expired] == [0]
    assert dry.result is not None
    assert done.result is not None
    assert dry.result.stats == done.result.stats

    disk.leave(1 << 30)
    clean(spec, expected.parent, RETAIN, **{"cleanup.policy": "delete"})
    clean(spec, expected.parent, RETAIN)
    assert differences(directory.parent, expected.parent) == []


def test_with_enough_space_retention_comes_after_the_cleaning(tmp_path: Path) -> None:
    # As in a broker: here the cleaning merges the expired segment with a younger one, so it stays.
    spec = log_of("compact,delete", f"{EXPIRING} segment.bytes=90000")
    directory = log_writer.write(spec, tmp_path)
    (done,) = clean(spec, tmp_path, RETAIN).partitions
    assert done.result is not None
    assert (done.result.expired, bases(directory)) == ((), [0, 40])


def test_what_is_only_too_much_is_not_deleted_before_the_cleaning(disk: SmallDisk) -> None:
    spec = log_of("compact,delete", "retention.ms=-1 retention.bytes=30000")
    disk.leave(1 << 30)
    directory = log_writer.write(spec, disk.root / "data")
    disk.leave(SHORT)
    for options in (DRY, RETAIN):
        assert clean(spec, directory.parent, options).exit_code == 7
    assert bases(directory) == [0, 10, 40]


def test_the_result_says_what_was_deleted_although_the_cleaning_failed(disk: SmallDisk) -> None:
    spec = log_of("compact,delete", EXPIRING)
    disk.leave(1 << 30)
    directory = log_writer.write(spec, disk.root / "data")
    disk.leave(2000)
    (dry,) = clean(spec, directory.parent, DRY).partitions
    (done,) = clean(spec, directory.parent, RETAIN).partitions
    for one in (dry, done):
        assert one.exit_code == 7
        assert one.result is not None
        assert [due.segment.base_offset for due in one.result.expired] == [0]
    assert (dry.status, done.status) == ("dry-run", "failed")
    assert bases(directory) == [10, 40]


def test_partitions_that_only_lose_segments_come_first(disk: SmallDisk) -> None:
    compacted = log_of("compact", "")
    others = log_of("delete", "retention.ms=0", name="events-0")
    disk.leave(1 << 30)
    directory = log_writer.write(compacted, disk.root / "data")
    log_writer.write(others, disk.root / "data")
    disk.leave(SHORT)
    config = {"min.cleanable.dirty.ratio": "0", "segment.bytes": "30000", "retention.ms": "0"}
    config |= {"retention.bytes": "-1"}
    config |= {"orders:cleanup.policy": "compact", "events:cleanup.policy": "delete"}
    plan_options = PlanOptions(now_ms=compacted.now_ms)
    result = clean_log_dir(directory.parent, config, plan_options=plan_options, options=RETAIN)
    assert [(one.directory.name, one.status) for one in result.partitions] == [
        ("events-0", "deleted"),
        ("orders-0", "cleaned"),
    ]


def two_logs(path: Path, settings: str) -> tuple[PlanOptions, dict[str, str]]:
    """Two logs whose old segment a cleaning merges with the younger one. Return the options and settings of a round."""
    spec = log_of("compact,delete", f"{EXPIRING} segment.bytes=90000", name="a-0")
    log_writer.write(spec, path)
    log_writer.write(log_of("compact,delete", f"{EXPIRING} segment.bytes=90000 {settings}", name="b-0"), path)
    return PlanOptions(now_ms=spec.now_ms), {"retention.bytes": "-1", **spec.settings}


@pytest.mark.parametrize(
    "ratio",
    [
        "0",
        "0.9",  # That of b-0 is lower until it has lost its clean segment.
    ],
)
def test_only_the_dirtiest_is_cleaned_before_it_loses_segments(ratio: str, tmp_path: Path) -> None:
    plan_options, config = two_logs(tmp_path, "checkpoint=10")
    config |= {"min.cleanable.dirty.ratio": ratio}
    before = digest(tmp_path)
    dry = clean_log_dir(tmp_path, config, plan_options=plan_options, options=DRY)
    assert digest(tmp_path) == before
    done = clean_log_dir(tmp_path, config, plan_options=plan_options, options=RETAIN)
    # In a-0 the cleaning has merged the old segment with the younger one.
    assert {name: bases(tmp_path / name) for name in ("a-0", "b-0")} == {"a-0": [0, 40], "b-0": [10, 40]}
    assert [one.status for one in done.partitions] == ["cleaned", "cleaned"]
    for result in (dry, done):
        assert [one.directory.name for one in result.partitions] == ["a-0", "b-0"]
        found = [one.result.expired for one in result.partitions if one.result is not None]
        assert [[due.segment.base_offset for due in expired] for expired in found] == [[], [0]]
    assert dry.stats == done.stats


def test_a_partition_alone_is_cleaned_before_it_loses_segments(tmp_path: Path) -> None:
    plan_options, config = two_logs(tmp_path, "checkpoint=10")
    clean_log_dir(tmp_path / "b-0", config, plan_options=plan_options, options=RETAIN)
    assert bases(tmp_path / "b-0") == [0, 40]


def test_retention_leaves_nothing_to_clean(tmp_path: Path) -> None:
    plan_options, config = two_logs(tmp_path, "checkpoint=10")
    done = clean_log_dir(tmp_path, config | {"b:retention.ms": "0"}, plan_options=plan_options, options=RETAIN)
    assert {one.directory.name: one.status for one in done.partitions} == {"a-0": "cleaned", "b-0": "deleted"}
    assert bases(tmp_path / "b-0") == [40]


@pytest.mark.parametrize("options", [RETAIN, DRY], ids=["run", "dry-run"])
@pytest.mark.parametrize("lies", ["time index", "modification time"])
def test_a_record_that_is_not_due_is_not_deleted(lies: str, options: CleanOptions, tmp_path: Path) -> None:
    spec = log_of("delete", "retention.ms=5400000")
    directory = log_writer.write(spec, tmp_path / "logs")
    time_index = directory / f"{10:020d}.timeindex"
    if lies == "time index":
        time_index.write_bytes(struct.pack(">qi", log_dsl.time_of("08:00"), 5))
    else:
        time_index.write_bytes(b"")
        os.utime(directory / f"{10:020d}.log", ns=(0, 0))
    before = digest(directory)
    error = clean(spec, tmp_path / "logs", options).partitions[0].error
    assert isinstance(error, CorruptIndexError)
    assert "past retention.ms 5400000, but has a record of 2024-01-01T09:30:00Z, which is not" in error.problem
    assert digest(directory) == before
