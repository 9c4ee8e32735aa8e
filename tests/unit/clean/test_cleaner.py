"""What a round does besides cleaning: the checkpoint of a partition that is passed over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import Status
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.command_line import DIRTY

# All of it is in the active segment: nothing is cleanable.
ACTIVE_ONLY = "log now=10:00 name=orders-0 cleanup.policy=compact\n0: a=1 b=2 a=~"


@pytest.mark.parametrize(
    ("start", "checkpoint", "expected"),
    [(0, None, None), (0, 3, 3), (0, 4, 0), (1, 0, 1), (1, 1, 1), (1, 9, 1)],
)
def test_a_checkpoint_outside_of_the_log_is_put_right(
    tmp_path: Path, start: int, checkpoint: int | None, expected: int | None
) -> None:
    spec = replace(log_dsl.parse(ACTIVE_ONLY), start=start, checkpoint=checkpoint)
    directory = log_writer.write(spec, tmp_path)
    file = tmp_path / "cleaner-offset-checkpoint"
    before = file.read_text() if file.exists() else None
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    with log_dir_lock(tmp_path) as lock:
        cleaner.clean_partition(plan, InProcess(), lock=lock, options=CleanOptions(dry_run=True))
        assert (file.read_text() if file.exists() else None) == before
        assert cleaner.clean_partition(plan, InProcess(), lock=lock).status is Status.SKIPPED
    assert (file.read_text() if file.exists() else None) == (
        None if expected is None else f"0\n1\norders 0 {expected}\n"
    )


def test_threads_that_copy_side_by_side(tmp_path: Path) -> None:
    specs = [replace(log_dsl.parse(DIRTY), name=f"orders-{number}") for number in range(8)]
    plans = [
        plan_partition(log_writer.write(spec, tmp_path / "data"), spec.config, now_ms=spec.now_ms) for spec in specs
    ]

    def clean(plan: CleanPlan) -> Status:
        options = CleanOptions(output=tmp_path / plan.log.directory.name)
        return cleaner.clean_partition(plan, InProcess(), lock=None, options=options).status

    with ThreadPoolExecutor(len(plans)) as pool:
        assert set(pool.map(clean, plans)) == {Status.CLEANED}
    for spec in specs:
        assert not (tmp_path / spec.name / ".kcompact-copy").exists()
        assert (tmp_path / spec.name / spec.name).is_dir()


def test_the_checkpoint_of_a_topic_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(ACTIVE_ONLY.replace("compact", "delete")), checkpoint=9)
    directory = log_writer.write(spec, tmp_path)
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    with log_dir_lock(tmp_path) as lock:
        cleaner.clean_partition(plan, InProcess(), lock=lock)
    assert "orders 0 9\n" in (tmp_path / "cleaner-offset-checkpoint").read_text()
