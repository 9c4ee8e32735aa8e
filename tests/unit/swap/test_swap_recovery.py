"""Recovery after a stop at every step, and the states in which it must change nothing."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from kcompact.errors import LogChangedError, RecoveryNeededError, RefusedError
from kcompact.format.names import TopicPartition
from kcompact.log.lock import log_dir_lock
from kcompact.swap import manifest
from kcompact.swap.identity import PartitionIdentity
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.recovery.leftovers import read_manifests
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import create_staging, discard
from tests.support import crash
from tests.support.crash import (
    CHECKPOINT_BEFORE,
    GROUPS,
    ORPHANS,
    PARTITION,
    Scene,
    all_steps,
    assert_lawful,
    assert_stops,
    checkpoint_after,
    cleaner_checkpoint,
    listing,
    log_of,
    recover,
    replace_content,
    stopped,
    stopped_states,
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "files"),
    [(1, {}), (2, ORPHANS), *(pytest.param(count, {}, marks=pytest.mark.slow) for count in GROUPS if count > 1)],
)
def test_recovery_after_every_step(tmp_path: Path, count: int, files: dict[str, bytes]) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count], files)
    seen = []
    for number, state in stopped_states(scene, tmp_path):
        recovery.recover(state.directory, log_dir=state.log_dir)
        done = assert_lawful(state)
        seen.append(sum(done))
        assert cleaner_checkpoint(state) == (checkpoint_after(scene) if all(done) else CHECKPOINT_BEFORE), number
        recovered = listing(state.log_dir)
        again = recovery.recover(state.directory, log_dir=state.log_dir)
        assert not again.changed
        assert listing(state.log_dir) == recovered
    assert sorted(set(seen)) == list(range(count + 1))
    assert seen == sorted(seen), "a later stop left less done"


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "stride"), [(1, 5), *(pytest.param(count, 1, marks=pytest.mark.slow) for count in (1, 2))]
)
def test_recovery_after_every_step_of_recovery(tmp_path: Path, count: int, stride: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    pairs = 0

    for number, state in stopped_states(scene, tmp_path, stride=stride):
        for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
            recovery.recover(again.directory, log_dir=again.log_dir)
            assert_lawful(again)
            pairs += 1
    assert pairs > 300 // stride


@pytest.mark.long
@pytest.mark.parametrize(
    ("suffix", "content", "stride"),
    [
        (".log", b"garbage", 4),
        (".timeindex", b"", 4),
        *(
            pytest.param(suffix, content, 1, marks=pytest.mark.slow)
            for suffix, content in [
                (".log", b""),
                (".log", b"garbage"),
                (".timeindex", b""),
                (".timeindex", b"garbage"),
                (".txnindex", b""),
                (".txnindex", b"garbage"),
            ]
        ),
    ],
)
def test_a_damaged_new_file_is_never_installed(tmp_path: Path, suffix: str, content: bytes, stride: int) -> None:
    """With a stride, recovery is stopped at every step of every so many states."""
    scene = crash.build(tmp_path / "data", GROUPS[1])
    undone = 0
    for number, state in stopped_states(scene, tmp_path):
        names = {path.name for path in state.directory.iterdir()}
        if f"{0:020d}{suffix}.swap" not in names or any(name.endswith(".cleaned") for name in names):
            continue
        replace_content(state.directory / f"{0:020d}{suffix}.swap", content)
        if f"{0:020d}.log.swap" not in names:  # The new log has its name already, and old files are still there.
            assert_stops(state, "damaged or missing")
            continue
        if number % stride:
            continue
        for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
            recovery.recover(again.directory)
            assert assert_lawful(again) == [False]
            undone += 1
    assert undone > 100 // stride


@pytest.mark.long
def test_a_copy_of_an_interrupted_directory_is_recovered_too(tmp_path: Path) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[1])
    for number, state in stopped_states(scene, tmp_path):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(state.log_dir, copy, copy_function=shutil.copy2)
        report = recovery.recover(copy / str(PARTITION))
        for (
            name
        ) in report.left_behind:  # Without the inode kcompact cannot decide whether kcompact or a broker renamed them.
            (copy / str(PARTITION) / name).unlink()
        assert_lawful(scene.moved(copy))


# --- States in which nothing may be changed -------------------------------------------------------------


def test_an_uncommitted_swap_without_its_old_files_is_left_alone(scene: Scene) -> None:
    stopped(scene, 7)
    (scene.directory / log_of(100)).unlink()
    error = assert_stops(scene, "not committed, but old files are missing")
    assert any(name.endswith(".cleaned") for name in error.files)


def test_two_unfinished_swaps_are_left_alone(scene: Scene) -> None:
    stopped(scene, 7)
    later = scene.cleaned[1].files[0]
    (scene.directory / scene.staging / later.staged_as).rename(scene.directory / f"{later.name}.cleaned")
    assert_stops(scene, "more than one swap")


@pytest.mark.parametrize("name", [log_of(0, ".swap"), log_of(700, ".cleaned"), "x.swap", "0.log.cleaned"])
@pytest.mark.parametrize("with_round", [True, False])
def test_foreign_leftovers_are_left_alone(scene: Scene, name: str, with_round: bool) -> None:
    if not with_round:
        discard(scene.directory, scene.staging)
    (scene.directory / name).write_bytes(b"a broker's")
    if with_round and name == log_of(0, ".swap"):
        assert_stops(scene, "damaged or missing")  # The manifest names it, but the content is another.
        return
    error = assert_stops(scene, "no kcompact manifest names")
    assert error.files == (name,)
    if with_round:
        before = listing(scene.log_dir)
        with pytest.raises(RecoveryNeededError):
            replace_segments(scene.directory, scene.staging, scene.cleaned[0], lambda: None)
        with pytest.raises(RecoveryNeededError):
            discard(scene.directory, scene.staging)
        assert listing(scene.log_dir) == before


@pytest.mark.parametrize("done", [True, False])
def test_a_brokers_deleted_files_are_reported_and_left(scene: Scene, done: bool) -> None:
    if done:  # A broker cleaned the partition afterwards and left the old file of its own swap.
        stopped(scene, len(all_steps(scene)))
    (scene.directory / log_of(0, ".deleted")).write_bytes(b"a broker's")
    report = recovery.recover(scene.directory)
    assert report.left_behind == (log_of(0, ".deleted"),)
    assert report.removed_staging == (scene.staging,)
    assert not recovery.recover(scene.directory).changed
    (scene.directory / log_of(0, ".deleted")).unlink()
    assert assert_lawful(scene) == [done, done]


# --- Staging directories and the checkpoint -------------------------------------------------------------


def test_staging_without_a_manifest_is_removed(scene: Scene) -> None:
    (scene.directory / scene.staging / manifest.NAME).unlink()
    assert recovery.recover(scene.directory).removed_staging == (scene.staging,)
    assert assert_lawful(scene) == [False, False]


def test_a_small_file_that_was_not_finished_is_removed(scene: Scene) -> None:
    name = "leader-epoch-checkpoint.tmp"
    stopped(scene, len(all_steps(scene)))
    recovery.recover(scene.directory)
    (scene.directory / name).write_text("0\n")
    assert recovery.recover(scene.directory).removed_staging == (name,)
    assert not recovery.recover(scene.directory).changed
    assert_lawful(scene)


def test_two_rounds_that_never_began_are_removed(scene: Scene) -> None:
    other = create_staging(scene.directory)
    assert recovery.recover(scene.directory, log_dir=scene.log_dir).removed_staging == tuple(
        sorted((scene.staging, other))
    )
    assert_lawful(scene)


def test_a_link_with_the_name_of_a_staging_directory_is_refused(scene: Scene, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    (scene.directory / ".kcompact-0123456789abcdef").symlink_to(victim)
    with pytest.raises(RefusedError, match="not a directory"):
        recovery.recover(scene.directory)
    assert (victim / "precious").exists()


@pytest.mark.parametrize("later", ["changed", "ahead", "malformed", "elsewhere"])
def test_recovery_never_puts_the_checkpoint_ahead(scene: Scene, later: str, tmp_path: Path) -> None:
    stopped(scene, len(all_steps(scene)))
    path = scene.log_dir / "cleaner-offset-checkpoint"
    if later == "changed":
        replace_content(scene.directory / log_of(200), b"a broker cleaned it again")
    elif later == "ahead":
        path.write_text("0\n1\norders 0 700\n")
    elif later == "malformed":
        path.write_text("0\n2\n")
    before = path.read_bytes()
    report = recovery.recover(scene.directory, log_dir=None if later == "elsewhere" else scene.log_dir)
    assert report.checkpoint is None
    assert report.removed_staging
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", ["a staging directory", "an unfinished checkpoint"])
def test_recovery_without_the_lock_changes_nothing(scene: Scene, left: str) -> None:
    """A broker that stops deletes the file that kcompact has locked, and the next broker locks a new one."""
    if left == "an unfinished checkpoint":
        recovery.recover(scene.directory)
        (scene.directory / "leader-epoch-checkpoint.tmp").touch()
    with log_dir_lock(scene.log_dir) as lock:
        before = listing(scene.log_dir)
        (scene.log_dir / ".lock").rename(scene.log_dir / ".lock-of-another")
        (scene.log_dir / ".lock-of-another").unlink()
        with pytest.raises(LogChangedError, match="deleted or replaced"):
            recovery.recover(scene.directory, log_dir=scene.log_dir, lock=lock)
    (scene.log_dir / ".lock").touch()
    assert listing(scene.log_dir) == before


@pytest.mark.parametrize("is_own", [True, False])
def test_only_another_users_closed_staging_directory_is_left_out(
    is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A staging directory of this user may hold the manifest of a swap that has begun."""
    name = ".kcompact-0123456789abcdef"
    (tmp_path / name).mkdir()
    if not is_own:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    def closed(self: OpenDirectory, below: str = "") -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), below)

    identity = PartitionIdentity(topic_partition=TopicPartition("orders", 0))
    with OpenDirectory(tmp_path) as directory:
        monkeypatch.setattr(OpenDirectory, "fd", closed)
        monkeypatch.setattr(OpenDirectory, "status", lambda self, below: (tmp_path / below).lstat())
        with pytest.raises(PermissionError) if is_own else nullcontext():
            assert read_manifests(directory, [name], identity) == {}
