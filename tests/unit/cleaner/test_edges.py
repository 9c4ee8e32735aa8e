"""The edges of a cleaning: locks, directories that were moved or cannot be read any more, what errors keep."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kcompact.clean.prepare import PreparedClean
from kcompact.cleaner import partition, space, writing
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.journal import read_journal
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.recovery import recover_each
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import KcompactError, LogChangedError, NotEnoughSpaceError, RecoveryNeededError, StorageError
from kcompact.host.disk import Disk
from kcompact.log.lock import is_locked, log_dir_lock
from kcompact.plan.options import PlanOptions
from kcompact.swap import checkpoint, manifest
from kcompact.swap import round_end as ending
from kcompact.swap.copy.marker import CopyMarker
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery.end import RecoveryReport
from kcompact.swap.recovery.interrupted_round import begin_recovery
from kcompact.swap.replace import replace_segments
from tests.support import log_dsl
from tests.support.command_line import DIRTY, kcompact, settings
from tests.support.command_line import partition as written
from tests.support.grouped_ends import CHECKPOINT, NAMES, stagings

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "300"}
PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))


def write(log_dir: Path, names: tuple[str, ...] = NAMES) -> Path:
    for name in names:
        written(log_dir, settings(f"hw=7 name={name}", DIRTY))
    return log_dir


def run(log_dir: Path, options: CleanOptions | None = None) -> RoundResult:
    return clean_log_dir(log_dir, COMPACT, plan_options=PLAN, options=options, engine="in-process")


def many_groups(log_dir: Path, groups: int) -> Path:
    """Write a partition whose segments are cleaned one by one, with `segment.bytes` of 300."""
    rows = "".join(f"{2 * row}: k=*90 j{row}=*90\n" for row in range(groups))
    return written(log_dir, f"log now=10:00 name=orders-0 segment.bytes=300\n{rows}{2 * groups}: z=1\n")


# --- The lock


def moved_before_the_second_group(a: Path, b: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def replace(*arguments: object, **options: object) -> None:
        seen.append(1)
        if len(seen) == 2:
            (a / "orders-0").rename(b / "orders-0")
        replace_segments(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(partition, "replace_segments", replace)


def test_a_partition_that_was_moved_under_another_lock_is_not_changed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = tmp_path / "a", write(tmp_path / "b", ("other-0",))
    many_groups(a, 6)
    moved_before_the_second_group(a, b, monkeypatch)
    with log_dir_lock(b):
        (outcome,) = run(a).partitions
    assert isinstance(outcome.error, LogChangedError)
    small = sorted(path.name for path in (b / "orders-0").glob("*.log") if path.stat().st_size < 200)
    assert small == [f"{0:020d}.log", f"{12:020d}.log"], "the group before the move, and the active segment"
    assert not (a / CHECKPOINT).exists()


# --- What cannot be read or closed any more


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_recovery_that_cannot_list_its_files_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(ending, "write_checkpoints", full)
        run(data)
    really_written, really_listed, armed = checkpoint.write_checkpoints, OpenDirectory.names, [False]

    def write_checkpoints(*arguments: object) -> None:
        really_written(*arguments)  # type: ignore[arg-type]
        armed[0] = True

    def names(self: OpenDirectory, name: str = "") -> frozenset[str]:
        if armed[0] and self.path.name == "b-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO), "b-0")
        return really_listed(self, name)

    monkeypatch.setattr(ending, "write_checkpoints", write_checkpoints)
    monkeypatch.setattr(OpenDirectory, "names", names)
    before = descriptors()
    with log_dir_lock(data) as lock:
        found = recover_each(
            [data / name for name in NAMES], lambda each: begin_recovery(each, log_dir=data, lock=lock)
        )
    assert descriptors() - before == set()
    assert isinstance(found.pop(data / "b-0"), RecoveryNeededError)
    assert all(isinstance(each, RecoveryReport) and each.checkpoint == 6 for each in found.values())
    assert stagings(data) == ["b-0"]


def test_a_last_look_that_fails_does_not_lose_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, really = write(tmp_path / "data"), OpenDirectory.names

    def names(self: OpenDirectory, name: str = "") -> frozenset[str]:
        if self.path == tmp_path / "kept" and (data / CHECKPOINT).exists():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really(self, name)

    monkeypatch.setattr(OpenDirectory, "names", names)
    result = run(data, CleanOptions(keep_replaced=tmp_path / "kept"))
    assert [each.status for each in result.partitions] == ["cleaned"] * 5


@pytest.mark.parametrize("what", ["journal", "b-0"])
def test_a_close_that_fails_does_not_lose_the_report(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, really, really_written, armed = write(tmp_path / "data"), os.close, checkpoint.write_checkpoints, [False]

    def write_checkpoints(*arguments: object) -> None:
        really_written(*arguments)  # type: ignore[arg-type]
        armed[0] = True

    def close(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        really(fd)
        if armed[0] and name == what:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    Disk.of(data)  # Opens the list of mounts, for good.
    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(ending, "write_checkpoints", write_checkpoints)
        patched.setattr(os, "close", close)
        partitions = run(data, CleanOptions(journal=tmp_path / "journal")).partitions
    assert [(each.error, each.result and each.result.status) for each in partitions] == [(None, "cleaned")] * len(NAMES)
    assert [line and line["event"] for line in read_journal(tmp_path / "journal")].count("end") == len(NAMES)
    assert descriptors() - before == set()


def test_an_output_that_cannot_be_begun_is_an_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data", ("a-0",))

    def failing(*arguments: object, **options: object) -> OpenDirectory:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(CopyMarker, "hold", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        run(data, CleanOptions(output=tmp_path / "out"))


# --- What is kept


@pytest.mark.parametrize("fails", [True, False])
def test_no_result_and_no_error_keeps_a_prepared_cleaning(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: space.StagingSpace) -> None:
        raise NotEnoughSpaceError(path=tmp_path, needed_bytes=2, free_bytes=1)

    if fails:
        monkeypatch.setattr(space.StagingSpace, "require", full)
        monkeypatch.setattr(writing, "fitting_at_once", lambda *_, **__: None)
    result = run(write(tmp_path / "data"))
    gc.collect()
    assert {each.status for each in result.partitions} == {"failed" if fails else "cleaned"}
    assert [each for each in gc.get_objects() if isinstance(each, PreparedClean)] == []


# --- The cost of a group


def calls_of(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how often each costly look at a group, or at all names, is made."""
    counts = {"sizes": 0, "names": 0}
    really_sized, really_listed = manifest.most_bytes_of_group, OpenDirectory.names

    def sized(*arguments: object) -> int:
        counts["sizes"] += 1
        return really_sized(*arguments)  # type: ignore[arg-type]

    def listed(self: OpenDirectory, name: str = "") -> frozenset[str]:
        counts["names"] += 1
        return really_listed(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(space, "most_bytes_of_group", sized)
        patched.setattr(OpenDirectory, "names", listed)
        act()
    return counts


def test_no_group_looks_at_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {}
    for groups in (4, 40):
        many_groups(tmp_path / str(groups), groups)
        log_dir = tmp_path / str(groups)
        counts[groups] = calls_of(partial(run, log_dir), monkeypatch)
    assert counts[40]["sizes"] <= 10 * counts[4]["sizes"]
    assert counts[40]["names"] == counts[4]["names"]


# --- The output


def test_a_copy_has_the_entries_of_its_source_and_no_others(tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", ("a-0",)), tmp_path / "out"
    (data / "log-start-offset-checkpoint").write_text("0\n2\na 0 0\nb 0 4\n")
    out.mkdir()
    (out / "log-start-offset-checkpoint").write_text("0\n1\na 0 5\n")
    options = ("--config", "cleanup.policy=compact", "--now", "2024-01-01T10:00Z", "--output", out)
    assert kcompact("clean", *options, data / "a-0").code == 4
    (out / "log-start-offset-checkpoint").unlink()
    assert kcompact("clean", *options, data / "a-0").code == 0
    assert (out / "log-start-offset-checkpoint").read_text().split() == ["0", "1", "a", "0", "0"]


@pytest.fixture
def only_new_objects_are_collected() -> Iterator[None]:
    """Let a collection pass over what other tests have left: it takes most of the time otherwise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects_are_collected")
@pytest.mark.parametrize("call", ["fstat", "stat", "fsync", "fchmod", "listdir", "open", "mkdir", "read", "write"])
@pytest.mark.parametrize("each", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("option", ["keep_replaced", "output"])
def test_a_call_that_fails_leaves_no_descriptor_and_no_lock(
    option: str, call: str, each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of the first calls of each kind fail once."""
    data, really = write(tmp_path / "data", ("a-0",)), getattr(os, call)
    run(data, CleanOptions(dry_run=True))  # Opens what stays open.
    for number in range(1, 60, each):
        at = [0]

        def failing(*arguments: object, at: list[int] = at, number: int = number, **options: object) -> object:
            at[0] += 1
            if at[0] == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return really(*arguments, **options)

        before = descriptors()
        with monkeypatch.context() as patched, suppress(KcompactError):
            patched.setattr(os, call, failing)
            run(data, CleanOptions(**{option: tmp_path / f"{option}-{number}"}))  # type: ignore[arg-type]
        gc.collect()
        assert (descriptors() - before, is_locked(data)) == (set(), False), number
        if at[0] < number:
            break
        shutil.rmtree(data)
        write(data, ("a-0",))
