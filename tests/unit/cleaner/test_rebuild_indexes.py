"""`--rebuild-indexes`: with any lie in its indexes, a log is planned and cleaned as with true ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.partition import clean_partition
from kcompact.cli.json.plan import ENTRY
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.plan.walk import PlannedPartition
from kcompact.remarks import RemarkCode
from kcompact.stages import sizing
from tests.support import log_dsl, log_writer
from tests.support.log_writer import LogSpec
from tests.support.machine_code import switched
from tests.support.wrong_indexes import LIES, tell

HEAD = (
    "log now=10:00 index.interval.bytes=100 min.cleanable.dirty.ratio=0 retention.ms=30m cleanup.policy=compact,delete "
)
PLAIN = "\n0: a=1 b=2 c=3 d=4^09:30 e=5\n5: a=2\n6: b=3^09:45 c=4 d=~ e=6\n10: f=1 g=1 h=1 i=1"

# Kafka reads the second transaction from offset 4 on, the last index entry below the checkpoint. It has not seen the
# marker at offset 2 and takes the batches of the second transaction for aborted ones.
ABORTED = """checkpoint=6
0: x=1(pid=7 txn) y=1 abort(pid=7) a=1 b=1 z=1 a=2(pid=7 txn) b=2(pid=7 txn) commit(pid=7) a=3 x=2
11: y=2(pid=8 txn) z=2(pid=8 txn) abort(pid=8) x=3
15: a=4 b=4 c=4 d=4
txnindex 0: pid=7 first=0 last=2 stable=3
txnindex 11: pid=8 first=11 last=13 stable=14"""

OPEN = """lone
0: a=1 b=1 c=1 a=2 b=2
5: a=3 b=3 c=3 d=3
9: a=4 b=4(pid=7 txn) c=4 d=4
13: e=1 f=1"""

LOGS = {
    "plain": PLAIN,
    "aborted transactions": ABORTED,
    "open transaction": OPEN,
    "large": "\n0: " + " ".join(f"k{n % 17}=*300(lz4)" for n in range(60)) + "\n60: a=1\n61: b=1 c=1",
}


def spec_of(name: str) -> LogSpec:
    return log_dsl.parse(HEAD + LOGS[name])


def content(directory: Path) -> dict[str, tuple[bytes, int | None]]:
    """Return the content of each file of a partition and, but for a new `.txnindex`, its time."""
    return {
        path.name: (path.read_bytes(), None if path.suffix == ".txnindex" else path.stat().st_mtime_ns)
        for path in directory.iterdir()
        if path.is_file()
    }


def checked(plan: CleanPlan) -> CleanPlan:
    assert plan.eligible
    assert plan.log.damage == ()
    return plan


def planned(plan: CleanPlan) -> object:
    # An index may be the only proof that a log has lost its end, so that is said although the index is not used.
    notes = tuple(note for note in plan.log.notes if note.code is not RemarkCode.LOST_END)
    plan = replace(plan, log=replace(plan.log, notes=notes))
    return ENTRY.of(PlannedPartition(directory=plan.log.directory, plan=plan))


def result(plan: CleanPlan, options: CleanOptions) -> object:
    with log_dir_lock(plan.log.directory.parent) as lock:
        found: CleanResult = clean_partition(plan, InProcess(), lock=lock, options=options)
    return found.stats, found.end_offset, [(due.segment.base_offset, due.reason) for due in found.expired]


def outcome(directory: Path, spec: LogSpec, output: Path, *, rebuild_indexes: bool) -> dict[str, object]:
    """Return everything that a plan, a dry run, a copy and a cleaning in place give; indexes that stay are left out."""

    def plan() -> CleanPlan:
        return checked(plan_partition(directory, spec.config, now_ms=spec.now_ms, rebuild_indexes=rebuild_indexes))

    options = CleanOptions(rebuild_indexes=rebuild_indexes)
    found: dict[str, object] = {"plan": planned(plan())}
    found["dry run"] = result(plan(), replace(options, dry_run=True, apply_retention=True))
    found["copy"] = result(plan(), replace(options, output=output)), content(output / directory.name)
    kept = {segment.log_name.removesuffix(".log") for segment in plan().log.segments[len(plan().segments) :]}
    found["in place"] = result(plan(), replace(options, apply_retention=True))
    found["files"] = {
        name: file
        for name, file in content(directory).items()
        if not (name.endswith((".index", ".timeindex")) and name.split(".")[0] in kept)
    }
    shutil.rmtree(output)
    return found


@pytest.fixture(params=["kernels", pytest.param("definition", marks=pytest.mark.slow)])
def compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    with switched(compiled=request.param == "kernels"):
        yield


@pytest.mark.long
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("log", "lies"),
    [
        *((log, list(LIES)) for log in LOGS if log != "large"),
        ("large", ["another second field", "all zero"]),
        pytest.param("large", list(LIES), marks=pytest.mark.slow),
    ],
    ids=[*(log for log in LOGS if log != "large"), "large, some", "large"],
)
def test_no_lie_of_an_index_changes_the_result(
    log: str, lies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "MIN_SPLIT_BYTES", 150)  # So the indexes decide about splits.
    monkeypatch.setattr(sizing, "SPLIT_PART", 1 << 60)
    spec = spec_of(log)
    pristine = log_writer.write(spec, tmp_path / "pristine").parent

    def outcome_of(lie: str | None, *, rebuild_indexes: bool) -> dict[str, object]:
        log_dir = tmp_path / "logs"
        shutil.copytree(pristine, log_dir)
        if lie is not None:
            tell(lie, log_dir / spec.name)
        try:
            return outcome(log_dir / spec.name, spec, tmp_path / "out", rebuild_indexes=rebuild_indexes)
        finally:
            shutil.rmtree(log_dir)

    true = outcome_of(None, rebuild_indexes=False)
    for lie in (None, *lies):
        assert outcome_of(lie, rebuild_indexes=True) == true, lie


def test_a_missing_index_is_built_as_by_a_broker(tmp_path: Path) -> None:
    spec = spec_of("aborted transactions")
    true, missing = (log_writer.write(spec, tmp_path / name) for name in ("true", "missing"))
    for path in missing.glob("*.*index"):
        if path.suffix != ".txnindex":
            path.unlink()
    outcomes = [outcome(each, spec, tmp_path / "out", rebuild_indexes=False) for each in (true, missing)]
    assert outcomes[0]["files"] == outcomes[1]["files"]
