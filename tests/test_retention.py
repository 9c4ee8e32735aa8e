"""Which whole segments go after a cleaning, by log start, size and time; and that only they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact import cleaner, partitions
from kcompact.errors import LogChangedError
from kcompact.lock import log_dir_lock
from kcompact.plan import CleanPlan
from kcompact.retention import expired_segments
from tests import notation

SEGMENTS = """\
0: a=*1000
10: b=*1000
20: c=*1000
30: d=*1000
"""


def plan_of(settings: str, directory: Path, *, segments: str = SEGMENTS) -> CleanPlan:
    spec = notation.parse(f"log now=10:00 {settings}\n{segments.strip()}")
    return partitions.plan_partition(notation.write(spec, directory), spec.config, now_ms=spec.now_ms)


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
    ],
)
def test_what_expires(settings: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    plan = plan_of(settings, tmp_path)
    found = expired_segments(plan.log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)
    assert [(one.segment.base_offset, str(one.breach)) for one in found] == expected


def test_expired_segments_are_deleted_with_their_snapshots(tmp_path: Path) -> None:
    plan = plan_of("cleanup.policy=compact start=20", tmp_path, segments=f"{SEGMENTS}snapshot 10:\nsnapshot 30:")
    before = {path.name: path.read_bytes() for path in plan.log.directory.iterdir()}
    with log_dir_lock(plan.log.directory.parent) as lock:
        expired = cleaner.apply_retention(plan, lock=lock)
    assert [one.segment.base_offset for one in expired] == [0, 10]
    gone = {name for name in before if name[:20] in (f"{0:020}", f"{10:020}")}
    assert {path.name: path.read_bytes() for path in plan.log.directory.iterdir()} == {
        name: content for name, content in before.items() if name not in gone
    }


def test_a_segment_that_changed_meanwhile_stays(tmp_path: Path) -> None:
    plan = plan_of("cleanup.policy=compact start=10", tmp_path)
    log = plan.log.directory / plan.log.segments[0].log_name
    log.write_bytes(log.read_bytes() + b"\0")
    with log_dir_lock(plan.log.directory.parent) as lock, pytest.raises(LogChangedError):
        cleaner.apply_retention(plan, lock=lock)
    assert log.exists()
