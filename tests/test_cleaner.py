"""A round of cleaning: what stops it, with nothing changed, and what a copy leaves alone."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact import cleaner, partitions, stages
from kcompact.cleaner import CleanOptions, CleanResult, Status
from kcompact.errors import CorruptDataError, KcompactError, LogChangedError, LogDirLockedError, RefusedError
from kcompact.format.batch import Header, walk
from kcompact.format.checkpoint import RECOVERY_POINT_CHECKPOINT, build_offset_checkpoint
from kcompact.format.names import DirectoryKind, TopicPartition, log_name, parse_directory
from kcompact.lock import log_dir_lock
from kcompact.log import read_log
from kcompact.plan import CleanPlan
from kcompact.stages import InProcess, Watch
from tests import notation

LOG = """\
log checkpoint=0 index.interval.bytes=0
0: a=*50 b=*50 c=*50(leader=3)
10: a=*50(leader=3) d=*50(leader=3) b=*50(leader=3)
20: e=*50(leader=3)
"""


def planned(log_dir: Path, text: str = LOG) -> CleanPlan:
    spec = notation.parse(text)
    directory = notation.write(spec, log_dir)
    return partitions.plan_partition(directory, spec.config, now_ms=spec.now_ms)


def replanned(plan: CleanPlan) -> CleanPlan:
    return partitions.plan_partition(plan.log.directory, plan.config, now_ms=plan.now_ms)


def cleaned(plan: CleanPlan, *, output: Path | None = None) -> CleanResult:
    if output is not None:
        return cleaner.clean(plan, InProcess(), lock=None, options=CleanOptions(output=output))
    with log_dir_lock(plan.log.directory.parent) as lock:
        return cleaner.clean(plan, InProcess(), lock=lock)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def log_of(plan: CleanPlan, base_offset: int) -> Path:
    return plan.log.directory / log_name(base_offset)


def cut_after_first_batch(plan: CleanPlan) -> None:
    first = next(walk(log_of(plan, 0).read_bytes(), file=""))
    log_of(plan, 0).write_bytes(first.data.tobytes())


def empty_a_middle_log(plan: CleanPlan) -> None:
    log_of(plan, 10).write_bytes(b"")


def empty_the_active_log(plan: CleanPlan) -> None:
    log_of(plan, 20).write_bytes(b"")
    checkpoint = plan.log.directory.parent / RECOVERY_POINT_CHECKPOINT
    checkpoint.write_bytes(build_offset_checkpoint({TopicPartition("orders", 0): 21}))


def lower_an_epoch(plan: CleanPlan) -> None:
    """In the first batch of a segment, where only the segment before can tell."""
    data = bytearray(log_of(plan, 10).read_bytes())
    header = next(walk(bytes(data), file="")).header
    data[: len(header.pack())] = Header(*header)._replace(partition_leader_epoch=1).pack()
    log_of(plan, 10).write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut_after_first_batch, empty_a_middle_log, empty_the_active_log, lower_an_epoch])
def test_a_log_that_lost_something_is_refused_unchanged(damage: Callable[[CleanPlan], None], tmp_path: Path) -> None:
    plan = planned(tmp_path)
    damage(plan)
    before = contents(tmp_path)
    with pytest.raises(CorruptDataError) as refused:
        cleaned(replanned(plan))
    assert refused.value.exit_code == 3
    assert {name: data for name, data in contents(tmp_path).items() if name != ".lock"} == before


def test_rebuilding_the_indexes_takes_the_log_as_it_is(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    cut_after_first_batch(plan)
    spec = notation.parse(LOG)
    again = partitions.plan_partition(plan.log.directory, spec.config, now_ms=spec.now_ms, rebuild_indexes=True)
    with log_dir_lock(tmp_path) as lock:
        done = cleaner.clean(again, InProcess(), lock=lock, options=CleanOptions(rebuild_indexes=True))
    assert done.status is Status.CLEANED


def test_a_writer_that_does_not_respect_the_lock_is_noticed(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    class Appending(Watch):
        """Appends to the active segment while the round is under way."""

        def begin(self, stage: str, total_bytes: int) -> None:
            if stage == "write":
                with log_of(plan, 20).open("ab") as active:
                    active.write(b"more")

    before = {name: data for name, data in contents(tmp_path).items() if not name.endswith(f"{20:020}.log")}
    with log_dir_lock(tmp_path) as lock, pytest.raises(LogChangedError):
        cleaner.clean(plan, InProcess(watch=Appending()), lock=lock)
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert not [path for path in plan.log.directory.iterdir() if path.is_dir()]


# Copies


def test_a_copy_is_what_cleaning_in_place_leaves(tmp_path: Path) -> None:
    source, copied = planned(tmp_path / "source"), tmp_path / "copy"
    before = contents(tmp_path / "source")
    cleaned(source, output=copied)
    assert contents(tmp_path / "source") == before
    cleaned(source)
    in_place = contents(tmp_path / "source")
    assert contents(copied) == {name: data for name, data in in_place.items() if name != ".lock"}


def test_a_copy_does_not_go_where_a_broker_runs(tmp_path: Path) -> None:
    source = planned(tmp_path / "source")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with (theirs / ".lock").open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)  # A broker's kind of lock; ours sees it from another description.
        with pytest.raises(LogDirLockedError):
            cleaned(source, output=theirs)
    assert [path.name for path in theirs.iterdir()] == [".lock"]


@pytest.mark.parametrize("inside", ["compacted", "orders-0/compacted"])
def test_a_copy_does_not_go_below_its_source(inside: str, tmp_path: Path) -> None:
    source = planned(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RefusedError, match="lies inside"):
        cleaned(source, output=tmp_path / inside)
    assert contents(tmp_path) == before
    assert not (tmp_path / "compacted").exists()


def test_what_a_killed_copy_leaves_does_not_keep_a_broker_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = planned(tmp_path / "source")
    seen: list[str] = []

    def killed(*_: object, **__: object) -> None:
        seen.extend(path.name for path in (tmp_path / "copy").iterdir() if path.is_dir())
        raise KcompactError("stopped")

    monkeypatch.setattr(stages, "write_groups", killed)
    with pytest.raises(KcompactError, match="stopped"):
        cleaned(source, output=tmp_path / "copy")
    names = [parse_directory(name) for name in seen]
    assert [name and name.kind for name in names] == [DirectoryKind.DELETE]
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_partition_that_needs_no_cleaning_is_copied_as_it_is(tmp_path: Path) -> None:
    source = planned(tmp_path / "source", LOG.replace("checkpoint=0", "checkpoint=20"))
    assert cleaned(source, output=tmp_path / "copy").status is Status.SKIPPED
    copied = read_log(tmp_path / "copy" / "orders-0")
    original = [replace(segment, files=()) for segment in source.log.segments]
    assert [replace(segment, files=()) for segment in copied.segments] == original
    assert copied.checkpoint_offset == 20
