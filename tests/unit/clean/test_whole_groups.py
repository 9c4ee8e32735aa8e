"""A group that is written in one part is the same group."""

from __future__ import annotations

from pathlib import Path

from kcompact.clean.groups import count_groups, write_groups
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from tests.support import log_dsl
from tests.support.stages import plan_of
from tests.support.staging import staging_at

LINES = [f"{base}: {' '.join(f'k{number}=*300' for number in range(base, base + 30, 2))}" for base in range(0, 240, 30)]
LOG = "\n".join(["log now=10:00 index.interval.bytes=100 segment.bytes=20000", *LINES, "240: z=1"])


def test_a_group_written_in_one_part_has_the_same_bytes(tmp_path: Path) -> None:
    plan = plan_of(log_dsl.parse(LOG), tmp_path / "logs")
    executor = InProcess(parallelism=2)
    cleaning = prepare_clean(plan, executor, tuning=Tuning(split_bytes=2000, task_bytes=4000))
    written = {}
    for name, each in (("in parts", cleaning), ("whole", cleaning.in_whole_groups())):
        staging = tmp_path / name
        staging.mkdir()
        numbers = range(len(plan.groups))
        found = write_groups(each, numbers, staging_at(staging))
        sizes = count_groups(each).sizes
        files = [(file.name, (staging / file.staged_as).read_bytes()) for one in found.segments for file in one.files]
        written[name] = (files, found.stats, [size.joined for size in sizes], max(len(size.parts) for size in sizes))
    assert written["in parts"][:3] == written["whole"][:3]
    assert (written["in parts"][3] > 1, written["whole"][3]) == (True, 1)
    assert len(plan.groups) > 1
