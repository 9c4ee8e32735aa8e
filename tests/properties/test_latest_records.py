"""The latest records of random logs, compared with a plain look, however the work is divided."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from kcompact.engine.in_process import InProcess
from kcompact.log.files import LogFile
from kcompact.log.records import record_runs
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.latest import latest_records
from kcompact.stages.executor import Executor
from tests.support.key_logs import end_of_view, plain_count, random_log
from tests.support.machine_code import switched
from tests.support.shuffled import Shuffled
from tests.support.stages import plan_of

executors = st.one_of(st.just(InProcess()), st.builds(Shuffled, seed=st.integers(0, 99)))


def latest_offsets(plan: CleanPlan, executor: Executor, *, compiled: bool, split_bytes: int | None) -> list[int]:
    with switched(compiled=compiled):
        latest = latest_records(plan, executor, split_bytes=split_bytes)
    found = []
    for segment in plan.log.segments:
        path = plan.log.directory / segment.log_name
        for split in latest.of(LogFile.at(path)):
            row = 0
            for run in record_runs(
                LogFile.at(path), start_position=split.start_position, end_position=split.end_position
            ):
                found += run.offset[latest.mask(split, run, row)].tolist()
                row += len(run)
    return found


@given(st.integers(0, 10**9), executors, st.booleans(), st.sampled_from([1, 300, None]), st.integers(0, 60))
def test_the_latest_records_are_those_of_a_plain_look(
    seed: int, executor: Executor, compiled: bool, split_bytes: int | None, cut: int
) -> None:
    log = random_log(seed)
    spec = log.spec
    if cut:
        first = spec.segments[0].base_offset
        spec = replace(spec, lone=False, start=first + cut // 8, high_watermark=first + cut)
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(spec, Path(scratch))
        assume(not plan.log.damage)
        found = latest_offsets(plan, executor, compiled=compiled, split_bytes=split_bytes)
        plain = plain_count(log.records, start_offset=plan.log.log_start_offset, stable_offset=end_of_view(log, plan))
        assert found == sorted(own[-1].offset for own in plain.keys.values())
