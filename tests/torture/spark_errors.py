"""Calls fail in the Python workers of Spark, while they scan a log, write its new segments, or do both in one task.

The workers get the functions of the executor with `Faults` around them. The partition stays as it was, or is cleaned;
the error is the one that the same call has without Spark; afterwards a cleaning without faults succeeds.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark import cloudpickle

from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, executor, queue_of, spark_context
from kcompact.errors import KcompactError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support.spark_runs import CONFIG, NOW_MS, write_log
from tests.torture import faults
from tests.torture.children import scratch
from tests.torture.faults import KINDS, NO_BYTES, OTHER_BYTES, READS, STATUS, Call, Fault, Faults, can_happen
from tests.torture.plain_reader import View, contents, read_view
from tests.torture.tally import Tally

RUNS = 60
"""At share 1."""
CALLS = 24
"""A worker makes at least about so many in one task."""
CODES = {
    "EIO": 1,
    "EMFILE": 1,
    "EINTR": 1,
    "EROFS": 4,
    "EACCES": 4,
    "ENOSPC": 7,
    "EDQUOT": 7,
    OTHER_BYTES: 3,
    NO_BYTES: 3,
}
MAY_FAIL = (*READS, *STATUS, "open")
"""Calls whose failure a worker may get over: what the kernels cannot read is read again by the definitions."""
STAGES = ("scan_partition", "run_partition", "run_whole_tasks")


def run(*, share: float, seed: int) -> Tally:
    """Let calls of workers fail."""
    tally, dice = Tally(), random.Random(seed)
    # Workers do not import modules of the tests.
    cloudpickle.register_pickle_by_value(faults)
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["run"]))
    with scratch() as directory, spark_context("local[2]") as context, queue_of(context) as tasks:
        write_log(directory / "original")
        before = contents(directory / "original" / "orders-0")
        view = read_view(directory / "original" / "orders-0")
        for number in range(max(1, round(RUNS * share))):
            log_dir = directory / str(number)
            shutil.copytree(directory / "original", log_dir)
            fault = Fault(dice.randrange(1, CALLS), dice.choice(KINDS), dice.random() < 0.5)
            stage = dice.choice(STAGES)
            in_stages, whole = OnSpark(sc=context), OnSpark(sc=context, tasks=tasks, whole_bytes=1 << 40)
            outcome = _outcome(log_dir, whole if stage == "run_whole_tasks" else in_stages, stage, fault)
            problems = _problems(log_dir, outcome, fault, before, view)
            if problems:
                tally.fail(f"{stage} in a worker, {fault}: {'; '.join(problems)}")
            else:
                tally.count(
                    "not harmed in a worker" if outcome is None else f"ended with {outcome.exit_code} in a worker"
                )
            shutil.rmtree(log_dir)
    return tally


def _outcome(log_dir: Path, on_spark: OnSpark, stage: str, fault: Fault) -> KcompactError | None:
    """Clean with a fault in the workers; return the error."""
    real = getattr(executor, stage)
    try:
        with mock.patch.object(executor, stage, partial(_with_fault, real, str(log_dir), fault)):
            _clean(log_dir, on_spark)
    except KcompactError as problem:
        return problem
    return None


def _clean(log_dir: Path, engine: OnSpark | InProcess) -> CleanPlan:
    with log_dir_lock(log_dir) as lock:
        plan = plan_partition(log_dir / "orders-0", CONFIG, now_ms=NOW_MS, use_log_end=True, force=True)
        clean_partition(plan, engine, lock=lock)
        return plan


def _with_fault(
    real: Callable[..., Iterator[Any]], log_dir: str, fault: Fault, shipped: bytes, report: Any, tasks: Iterable[bytes]
) -> Iterator[Any]:
    """Run a task in a worker with a call that fails."""
    with Faults([Path(log_dir)], _FirstPossible(fault)) as failing:
        try:
            return iter(list(real(shipped, report, tasks)))
        finally:
            if failing.hits:
                _hit(log_dir).write_text(failing.hits[0].name, encoding="utf-8")


class _FirstPossible(Fault):
    """Hits the first call from its number on that can have the fault; if persistent, the later ones too."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.number, fault.kind, fault.persistent)
        object.__setattr__(self, "hits_before", [])

    hits_before: list[Call]

    def hits(self, call: Call) -> bool:
        if call.number < self.number or not can_happen(self.kind, call) or (self.hits_before and not self.persistent):
            return False
        self.hits_before.append(call)
        return True


def _hit(log_dir: str | Path) -> Path:
    """Return the file that names the call that failed in a worker."""
    return Path(f"{log_dir}-hit")


def _problems(
    log_dir: Path, outcome: KcompactError | None, fault: Fault, before: dict[str, str], view: View
) -> list[str]:
    problems = []
    hit = _hit(log_dir).read_text(encoding="utf-8") if _hit(log_dir).exists() else None
    if outcome is None and fault.kind in CODES and hit not in (None, *MAY_FAIL):
        problems.append(f"{hit} failed, which was not noticed")
    if outcome is not None:
        if outcome.exit_code != CODES.get(fault.kind, 0):
            problems.append(f"the exit code is {outcome.exit_code}: {outcome}")
        if contents(log_dir / "orders-0") != before:
            problems.append("the partition was changed")
    try:
        _clean(log_dir, InProcess())
    except KcompactError as problem:
        problems.append(f"it is not cleaned afterwards: {problem}")
    after = read_view(log_dir / "orders-0")
    kept = {key: found for key, found in view.latest.items() if key is not None}
    found = {key: found for key, found in after.latest.items() if key is not None}
    if (after.start, after.end, after.rises, found) != (view.start, view.end, True, kept):
        problems.append("a reader finds other records")
    return problems
