"""A copy in another directory: complete under its names, marked as unfinished, or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import checkout
from kcompact.errors import (
    CorruptCheckpointError,
    LogChangedError,
    LogDirLockedError,
    NotEnoughSpaceError,
    RecoveryNeededError,
    RefusedError,
    StorageError,
)
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.lock import log_dir_lock
from kcompact.swap.copy import Output
from kcompact.swap.copy.marker import MARKER, CopyMarker
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.staging import discard
from tests.support.command_line import digest, running_broker
from tests.support.copies import copy_alone, copy_log_dir, copy_one, dies_in_child, made_by, names
from tests.support.crash import CHECKPOINT_BEFORE, PARTITION, Scene, cleaner_checkpoint, latest_values, log_of

STRAY = f"inventory-7.{'0' * 32}-stray"
FUTURE = f"inventory-8.{'1' * 32}-future"
DELETE = f"inventory-9.{'2' * 32}-delete"


@pytest.fixture
def log(scene: Scene) -> PartitionLog:
    discard(scene.directory, scene.staging)
    return read_log(scene.directory)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A broker's log directory, with directories of every kind and files that are not Kafka's."""
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "data")
    for name in (STRAY, FUTURE, DELETE):
        shutil.copytree(log_dir / "inventory-0", log_dir / name)
    (log_dir / "remote-log-index-cache").mkdir()
    (log_dir / "lost+found").mkdir()
    (log_dir / ".lock").touch()
    (log_dir / "core.1234").write_bytes(bytes(1_000))
    (log_dir / "recovery-point-offset-checkpoint.tmp").touch()
    (log_dir / "inventory-0" / "00000000000000000000.log.deleted").write_bytes(bytes(10))
    (log_dir / "inventory-0" / "00000000000000000777.index").write_bytes(bytes(16))
    (log_dir / "inventory-0" / "notes.txt").write_bytes(b"mine")
    (log_dir / "__cluster_metadata-0" / "00000000000000000012-0000000001.checkpoint").write_bytes(b"snapshot")
    (log_dir / "__cluster_metadata-0" / "00000000000000000013-0000000001.checkpoint.part").write_bytes(b"half")
    return log_dir


LEFT_OUT = {
    DELETE: "marked for deletion",
    "remote-log-index-cache": "a cache",
    "lost+found": "not a directory of Kafka",
    "core.1234": "not a file of Kafka",
    "recovery-point-offset-checkpoint.tmp": "an unfinished write",
    "inventory-0/00000000000000000000.log.deleted": "marked for deletion",
    "inventory-0/00000000000000000777.index": "an index without its .log",
    "inventory-0/notes.txt": "not a file of Kafka",
    "__cluster_metadata-0/00000000000000000013-0000000001.checkpoint.part": "an unfinished write",
}


def expected_of(log_dir: Path) -> dict[str, str]:
    """Return what a complete copy of the log directory holds, with the times of all but the shared files."""
    found = digest(log_dir)
    for name in (*LEFT_OUT, *(name for name in found if name.startswith(f"{DELETE}/"))):
        found.pop(name, None)
    return {name: state if "/" in name else state.split()[0] for name, state in found.items()}


def held_by(path: Path) -> dict[str, str]:
    return {name: state if "/" in name else state.split()[0] for name, state in digest(path).items()}


# One partition


def test_a_copy_has_the_files_and_its_checkpoint(scene: Scene, log: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "out"
    copy_alone(log, path)
    assert {file.name: file.read_bytes() for file in (path / str(PARTITION)).iterdir()} == scene.before
    assert latest_values(path / str(PARTITION)) == scene.view
    assert (path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 600\n"
    assert cleaner_checkpoint(scene) == CHECKPOINT_BEFORE


def test_a_copy_that_fails_leaves_no_directory(log: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        copy_alone(log, path, lambda: 1 // 0)
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: (directory / log_of(0)).write_bytes(b"other"),
        lambda directory: (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 0\n"),
        lambda directory: (directory / "00000000000000000900.log").touch(),
        lambda directory: (directory / log_of(100)).unlink(),
    ],
    ids=["a log", "a small file", "a new file", "a file less"],
)
def test_a_source_that_changes_meanwhile_is_refused(
    change: Callable[[Path], Any], log: PartitionLog, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with pytest.raises(LogChangedError):
        copy_alone(log, path, lambda: change(log.directory))
    assert not path.exists()


def test_an_existing_copy_is_not_replaced(log: PartitionLog, tmp_path: Path) -> None:
    path = tmp_path / "out"
    copy_alone(log, path)
    before = digest(path)
    with pytest.raises(RefusedError, match="is not empty"):
        copy_alone(log, path)
    assert digest(path) == before


def test_a_copy_into_its_source_is_refused(log: PartitionLog) -> None:
    with pytest.raises(RefusedError, match="the directory to copy from"):
        copy_alone(log, log.directory / "out")
    assert not (log.directory / "out").exists()


def test_an_interrupted_swap_is_not_copied(log: PartitionLog, tmp_path: Path) -> None:
    (log.directory / f"{log_of(0)}.swap").write_bytes(b"the only copy")
    with pytest.raises(RecoveryNeededError, match="unfinished"):
        copy_alone(log, tmp_path / "out")


@pytest.mark.parametrize("is_clean", [(True, True), (True, False), (False, True)])
def test_only_sources_that_were_all_shut_down_cleanly_make_a_clean_output(
    is_clean: tuple[bool, bool], log_dir: Path, tmp_path: Path
) -> None:
    other, path = checkout.copy_directory("fruit-prices", "before", tmp_path / "other"), tmp_path / "out"
    directories = [log_dir / "inventory-0", *(each for each in other.iterdir() if each.is_dir())]
    for directory, clean in zip(directories, is_clean, strict=True):
        (directory.parent / ".kafka_cleanshutdown").touch()
        if not clean:
            start_a_broker(directory.parent)
    with Output(path, directories) as output:
        for directory in directories:
            copy_one(read_log(directory), output)
        output.finish()
    assert (path / ".kafka_cleanshutdown").exists() == all(is_clean)


def test_a_partition_that_fails_leaves_nothing(log_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    log = read_log(log_dir / "inventory-0")
    with pytest.raises(LogChangedError):
        copy_alone(log, path, lambda: (log.directory / "partition.metadata").unlink())
    assert names(path) == []


# A whole log directory


def test_a_log_directory_is_copied_completely(log_dir: Path, tmp_path: Path) -> None:
    before = digest(log_dir)
    report = copy_log_dir(log_dir, tmp_path / "out")
    assert held_by(tmp_path / "out") == expected_of(log_dir)
    assert digest(log_dir) == before
    assert (report.is_finished, report.missing, set(report.set_aside)) == (True, (), {STRAY, FUTURE})
    for left_out in report.left_out:
        assert left_out.reason.startswith(LEFT_OUT[left_out.name])
    sizes = {left_out.name: left_out.size_bytes for left_out in report.left_out}
    assert sizes.keys() == LEFT_OUT.keys()
    assert (sizes["core.1234"], sizes[DELETE]) == (
        1_000,
        sum(path.stat().st_size for path in (log_dir / DELETE).iterdir()),
    )


def test_what_is_missing_keeps_the_output_unfinished(log_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "out"
    report = copy_log_dir(log_dir, path, only=("inventory-0",))
    assert (report.is_finished, report.missing) == (False, ("__cluster_metadata-0", STRAY, FUTURE))
    assert names(path) == [MARKER, ".lock", "inventory-0"]


def test_without_any_partition_nothing_stays(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "out", tmp_path / "empty"):
        assert copy_log_dir(log_dir, path, only=()).finished == ()
    assert names(tmp_path) == ["data", "empty"]
    assert names(tmp_path / "empty") == []


def start_a_broker(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (start_a_broker, "was changed or replaced while it was copied"),
        (lambda log_dir: (log_dir / "meta.properties").touch(), "was changed or replaced while it was copied"),
        (lambda log_dir: (log_dir / "new-0").mkdir(), "appeared or went away"),
    ],
)
def test_a_source_that_is_used_meanwhile(
    use: Callable[[Path], Any], problem: str, log_dir: Path, tmp_path: Path
) -> None:
    with Output(tmp_path / "out", log_dir=log_dir) as output:
        for name in ("__cluster_metadata-0", "inventory-0"):
            copy_one(read_log(log_dir / name), output)
        use(log_dir)
        with pytest.raises(LogChangedError, match=problem):
            output.finish()
    assert not (tmp_path / "out" / "meta.properties").exists()
    assert (tmp_path / "out" / MARKER).exists()


# The checks


def a_file(path: Path) -> None:
    path.write_bytes(b"")


def with_a_name(path: Path) -> None:
    (path / "lost+found").mkdir(parents=True)


def of_another(path: Path) -> None:
    other = checkout.copy_directory("broker", "before", path.parent / "other")
    copy_log_dir(other, path, only=("inventory-0",))


def with_a_stranger(path: Path) -> None:
    copy_log_dir(path.parent / "data", path, only=("inventory-0",))
    (path / "orders-0").mkdir()


def with_a_changed_copy(path: Path) -> None:
    copy_log_dir(path.parent / "data", path, only=("inventory-0",))
    (path / "inventory-0" / "00000000000000000000.log").write_bytes(b"other")


def with_a_malformed_marker(path: Path) -> None:
    copy_log_dir(path.parent / "data", path, only=("inventory-0",))
    (path / MARKER / "copy.json").write_bytes(b'{"version": 7}')


def finished_but_for_the_marker(path: Path) -> None:
    copy_log_dir(path.parent / "data", path)
    (path / MARKER).mkdir()


@pytest.mark.parametrize(
    ("prepare", "error", "problem"),
    [
        (a_file, RefusedError, "is not a directory"),
        (with_a_name, RefusedError, "is not empty"),
        (of_another, RefusedError, "unfinished copy of something else"),
        (with_a_stranger, RefusedError, "does not belong to the unfinished copy"),
        (with_a_changed_copy, RefusedError, "was changed after kcompact had copied it"),
        (with_a_malformed_marker, CorruptCheckpointError, "does not say what was copied"),
        (finished_but_for_the_marker, RefusedError, "left of a copy that is finished"),
    ],
)
def test_an_output_that_is_refused(
    prepare: Callable[[Path], Any], error: type[Exception], problem: str, log_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    prepare(path)
    before = digest(tmp_path)
    with pytest.raises(error, match=problem):
        copy_log_dir(log_dir, path)
    assert digest(tmp_path) == before


def test_an_output_below_a_file(log_dir: Path, tmp_path: Path) -> None:
    a_file(tmp_path / "file")
    with pytest.raises(StorageError, match="Not a directory"):
        Output(tmp_path / "file" / "out", log_dir=log_dir)


def test_an_output_inside_the_source(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    for path in (log_dir / "out", tmp_path / "link" / "out", log_dir):
        with pytest.raises(RefusedError, match="the directory to copy from"):
            Output(path, log_dir=log_dir)
    with pytest.raises(RefusedError, match="lies in a log directory"):
        Output(shutil.copytree(log_dir, tmp_path / "other") / "out", [log_dir / "inventory-0"])


def test_two_partitions_of_one_name(log_dir: Path, tmp_path: Path) -> None:
    other = checkout.copy_directory("broker", "before", tmp_path / "other")
    with pytest.raises(RefusedError, match="have the same name"):
        Output(tmp_path / "out", [log_dir / "inventory-0", other / "inventory-0"])


def test_an_output_that_may_not_be_written_to(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # Root may write everywhere.
    with pytest.raises(RefusedError, match="cannot be written to: no permission"):
        Output(tmp_path / "closed" / "out", log_dir=log_dir)


def test_an_output_on_a_read_only_mount(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = list(os.statvfs(tmp_path))
    status[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(status))
    with pytest.raises(RefusedError, match="mounted read-only"):
        Output(tmp_path / "out", log_dir=log_dir)


def test_an_output_that_a_broker_has_just_locked(log_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    with running_broker(path), pytest.raises(LogDirLockedError):
        Output(path, [log_dir / "inventory-0"])


def test_two_runs_cannot_continue_the_same_copy(log_dir: Path, tmp_path: Path) -> None:
    with Output(tmp_path / "out", log_dir=log_dir):
        for directories, whole in (((), log_dir), ([log_dir / "inventory-0"], None)):
            with pytest.raises(LogDirLockedError):
                Output(tmp_path / "out", directories, log_dir=whole)


def test_only_the_marker_that_is_held_says_what_is_finished(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(log_dir, tmp_path / "out")
    really = CopyMarker.hold

    def replaced(marker: CopyMarker, output: OpenDirectory) -> OpenDirectory:
        marker.path.rename(tmp_path / "away")
        marker.path.mkdir(mode=0o700)
        return really(marker, output)

    monkeypatch.setattr(CopyMarker, "hold", replaced)
    with pytest.raises(RefusedError, match="left of a copy"), Output(tmp_path / "out", log_dir=log_dir):
        pass


def complete(log_dir: Path, path: Path) -> None:
    copy_log_dir(log_dir, path)


def interrupt(log_dir: Path, path: Path) -> None:
    copy_log_dir(log_dir, path, only=("inventory-0",))


def use_it(log_dir: Path, path: Path) -> None:
    shutil.copytree(log_dir, path)


@pytest.mark.parametrize(
    ("act", "problem"),
    [(complete, "is not empty"), (interrupt, "unfinished copy of something else"), (use_it, "is not empty")],
)
def test_an_output_that_another_run_uses_between_the_check_and_the_lock(
    act: Callable[[Path, Path], None], problem: str, log_dir: Path, tmp_path: Path
) -> None:
    other, path = checkout.copy_directory("broker", "before", tmp_path / "other"), tmp_path / "out"
    checked = Output(path, [log_dir / "inventory-0"])
    act(other, path)
    before = held_by(path)
    with pytest.raises(RefusedError, match=problem), checked:
        pass
    assert held_by(path) == before


@pytest.mark.parametrize(
    "name",
    ["cleaner-offset-checkpoint", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "lost+found"],
)
def test_an_output_with_anything_in_it_is_refused(name: str, log_dir: Path, tmp_path: Path) -> None:
    """Entries of an earlier partition of this name would hide its records, or bring deleted keys back."""
    path = tmp_path / "out"
    path.mkdir()
    (path / name).write_text("0\n1\ninventory 0 2\n")
    for directories, whole in (([log_dir / "inventory-0"], None), ([], log_dir)):
        with pytest.raises(RefusedError, match="is not empty"):
            Output(path, directories, log_dir=whole)
    assert names(path) == [name]


def test_the_output_is_locked(log_dir: Path, tmp_path: Path) -> None:
    """A cleaning in place of what is already copied would otherwise run at the same time."""
    path = tmp_path / "out"
    with Output(path, log_dir=log_dir) as output:
        copy_one(read_log(log_dir / "inventory-0"), output)
        with pytest.raises(LogDirLockedError), log_dir_lock(path):
            pass
    with log_dir_lock(path):
        pass


def test_what_the_same_run_has_finished_between_the_check_and_the_lock(log_dir: Path, tmp_path: Path) -> None:
    checked = Output(tmp_path / "out", log_dir=log_dir)
    interrupt(log_dir, tmp_path / "out")
    with checked:
        copy_one(read_log(log_dir / "__cluster_metadata-0"), checked)
        assert made_by(read_log(log_dir / "inventory-0"), checked, "") == {"made": ""}
        assert checked.finish().is_finished
    assert held_by(tmp_path / "out") == expected_of(log_dir)


def test_space_for_everything_is_required_first(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = log_dir / "inventory-0"
    with pytest.raises(NotEnoughSpaceError) as full, disk(monkeypatch, free_bytes=0):
        Output(tmp_path / "out", log_dir=log_dir).require_space([partition], lambda path: False, 1)
    needed_bytes = full.value.needed_bytes
    assert not (tmp_path / "out").exists()
    files = [path for path in partition.iterdir() if path.is_file()]
    assert needed_bytes > sum(-(-path.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES for path in files) + BLOCK_BYTES
    with disk(monkeypatch, free_bytes=needed_bytes + BLOCK_BYTES):
        Output(tmp_path / "out", log_dir=log_dir).require_space([partition], lambda path: False, 1)
    copy_log_dir(log_dir, tmp_path / "out", only=("inventory-0",))
    with disk(monkeypatch, free_bytes=needed_bytes - BLOCK_BYTES):  # It is there already.
        Output(tmp_path / "out", log_dir=log_dir).require_space([partition], lambda path: False, 1)


BLOCK_BYTES = 65536


@contextmanager
def disk(monkeypatch: pytest.MonkeyPatch, *, free_bytes: int) -> Iterator[None]:
    """Let every file system have so much free space, in large blocks."""
    status = SimpleNamespace(f_bavail=free_bytes // BLOCK_BYTES, f_frsize=BLOCK_BYTES, f_flag=0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda path: status)
        yield


# An interrupted copy is continued


def outcomes(log_dir: Path, path: Path, recipe: str) -> dict[str, str]:
    """Copy and finish; return the recipe by which each partition was made."""
    found = {}
    with Output(path, log_dir=log_dir) as output:
        for name in ("__cluster_metadata-0", "inventory-0"):
            log = read_log(log_dir / name)
            found[name] = (made_by(log, output, recipe) or {"made": "now"})["made"]
            copy_one(log, output, recipe)
        output.finish()
    return found


def raise_log_start(log_dir: Path) -> None:
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ninventory 0 7\n")


@pytest.mark.parametrize(
    ("recipe", "change", "expected"),
    [
        ("", lambda log_dir: None, ""),
        ("other", lambda log_dir: None, "now"),
        ("", lambda log_dir: os.utime(log_dir / "inventory-0" / "00000000000000000000.log", ns=(0, 0)), "now"),
        ("", lambda log_dir: (log_dir / "inventory-0" / "partition.metadata").unlink(), "now"),
        ("", lambda log_dir: raise_log_start(log_dir), "now"),
    ],
    ids=["the same", "another recipe", "another time", "a file less", "another log start"],
)
def test_only_the_same_is_kept(
    recipe: str, change: Callable[[Path], Any], expected: str, log_dir: Path, tmp_path: Path
) -> None:
    copy_log_dir(log_dir, tmp_path / "out", only=("inventory-0",))
    change(log_dir)
    assert outcomes(log_dir, tmp_path / "out", recipe) == {"__cluster_metadata-0": "now", "inventory-0": expected}
    assert held_by(tmp_path / "out") == expected_of(log_dir)


@pytest.mark.parametrize("is_whole", [True, False], ids=["a log directory", "chosen partitions"])
def test_a_continued_copy_drops_the_shared_files_that_the_source_no_longer_has(
    is_whole: bool, log_dir: Path, tmp_path: Path
) -> None:
    directories, path = [log_dir / "inventory-0", log_dir / "__cluster_metadata-0"], tmp_path / "out"

    def run() -> None:
        with Output(path, log_dir=log_dir) if is_whole else Output(path, directories) as output:
            for directory in directories:
                copy_one(read_log(directory), output)
            output.finish()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CopyMarker, "remove", fails)
        with pytest.raises(StorageError):
            run()
    assert (path / ".kafka_cleanshutdown").exists()
    (path / ".kafka_cleanshutdown.tmp").touch()
    start_a_broker(log_dir)
    run()
    assert {".kafka_cleanshutdown", ".kafka_cleanshutdown.tmp", MARKER}.isdisjoint(names(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("exists", [False, True])
def test_a_continued_copy_gives_away_the_output(exists: bool, log_dir: Path, tmp_path: Path) -> None:
    directories, path = [log_dir / "inventory-0", log_dir / "__cluster_metadata-0"], tmp_path / "out"
    os.chown(log_dir, 1234, 2345)
    if exists:
        path.mkdir()
    for count in (1, 2):
        with Output(path, directories) as output:
            for directory in directories[:count]:
                copy_one(read_log(directory), output)
            output.finish()
    assert not (path / MARKER).exists()
    assert path.stat().st_uid == 1234


def fails(*_: object) -> None:
    raise StorageError(path=Path("disk"), problem=OSError(5, "Input/output error"))


@pytest.mark.long
@pytest.mark.parametrize("stride", [11, pytest.param(3, marks=pytest.mark.slow)])
def test_a_copy_that_dies_at_any_step_is_continued(log_dir: Path, tmp_path: Path, stride: int) -> None:
    """It dies at every so many syncs: all kinds of steps are among them."""
    expected, path = expected_of(log_dir), tmp_path / "out"
    deaths = 0
    for number in range(1, 1_000, stride):
        if not dies_in_child(number, lambda: copy_log_dir(log_dir, path)):
            break
        deaths += 1
        found = held_by(path)
        assert MARKER in found or found in ({}, expected)
        for directory in {name.split("/")[0] for name in found if "/" in name} - {MARKER}:
            whole = {name for name in expected if name.startswith(f"{directory}/")}
            assert {name for name in found if name.startswith(f"{directory}/")} == whole
        if found != expected and (path / MARKER / "copy.json").exists():
            copy_log_dir(log_dir, path)
            assert held_by(path) == expected
        shutil.rmtree(path, ignore_errors=True)
    assert deaths > 90 // stride
    assert held_by(path) == expected


def test_the_record_names_no_key_and_no_value(log_dir: Path, tmp_path: Path) -> None:
    copy_log_dir(log_dir, tmp_path / "out", only=("inventory-0",))
    for file in (tmp_path / "out" / MARKER).glob("*.json"):
        assert json.loads(file.read_bytes())
        assert b"item-" not in file.read_bytes()


# Threads


@pytest.fixture
def logs(log_dir: Path) -> list[PartitionLog]:
    for number in range(1, 9):
        shutil.copytree(log_dir / "inventory-0", log_dir / f"inventory-{number}", copy_function=shutil.copy2)
    return [read_log(log_dir / f"inventory-{number}") for number in range(9)]


def test_threads_copy_side_by_side(logs: list[PartitionLog], tmp_path: Path) -> None:
    path = tmp_path / "out"
    barrier = threading.Barrier(len(logs))
    problems: list[BaseException] = []
    directories = [log.directory for log in logs]

    def work(log: PartitionLog, output: Output) -> None:
        try:
            barrier.wait()
            copy_one(log, output)
        except BaseException as problem:
            problems.append(problem)

    with Output(path, directories) as output:
        threads = [threading.Thread(target=work, args=(log, output)) for log in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert output.finish().is_finished
    assert problems == []
    assert {directory.name for directory in directories} <= set(names(path))
    assert MARKER not in names(path)
    marks = (path / "replication-offset-checkpoint").read_text().splitlines()[2:]
    assert "inventory 0 4000" in marks
    assert (path / ".kafka_cleanshutdown").exists()
    assert not (path / "meta.properties").exists()
