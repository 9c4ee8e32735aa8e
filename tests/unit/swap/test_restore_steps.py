"""A restore that is stopped at any step, or by a power cut, is finished or undone; run again, it completes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import CleaningAbortedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.log.files import FileIdentity
from kcompact.log.lock import log_dir_lock
from kcompact.swap.kept.links import KeptLinks, untouched_log
from kcompact.swap.kept.manifest import KeptPartition, read_kept
from kcompact.swap.kept.restore import put_back, verify_kept
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.steps import Observer, Rename, Step, SyncDir, replacement_steps
from tests.support import crash
from tests.support.crash import CHECKPOINT_BEFORE, GROUPS, IDENTITY, SEGMENTS, Scene, latest_values, stopped_states
from tests.support.power_loss import Disk, File, faults, load

State = dict[str, tuple[bytes, int, int, int]]
"""Content, inode, time and mode of each file."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A cleaned scene, the links to what was replaced, and what the log directory was before."""

    scene: Scene
    path: Path
    before: State


def state_of(log_dir: Path) -> State:
    """Return the files of a log directory, without the identity of the checkpoint, which is always written anew."""
    found = {}
    for path in sorted(log_dir.rglob("*")):
        status = path.stat()
        assert ".kcompact" not in path.name
        if path.is_file() and path.name != ".lock":
            identity = (0, 0) if path.name == CLEANER_OFFSET_CHECKPOINT else (status.st_ino, status.st_mtime_ns)
            found[str(path.relative_to(log_dir))] = (path.read_bytes(), *identity, status.st_mode)
    return found


def cleaned(tmp_path: Path, groups: Sequence[Sequence[int]], *, has_aborted: bool = True) -> Kept:
    """Build a scene, keep what its round replaces, and run the round."""
    scene = crash.build(tmp_path / "data", groups, has_aborted=has_aborted)
    before = state_of_scene(scene)
    path = tmp_path / "kept"
    path.mkdir()
    with OpenDirectory(path) as links, OpenDirectory(scene.directory) as partition, OpenDirectory(scene.log_dir) as top:
        subject = KeptPartition(
            directory=str(scene.directory),
            identity=IDENTITY,
            number=1,
            now_ms=0,
            kcompact="test",
            checkpoint_crc32c=None,
            untouched=tuple(untouched_log(partition, base, is_active=base == max(SEGMENTS)) for base in SEGMENTS),
        )
        kept = KeptLinks(links, subject)
        kept.keep_checkpoint(top)
        kept.keep(partition, scene.cleaned, lambda: None)
    crash.run_round(scene)
    return Kept(scene=scene, path=path, before=before)


def state_of_scene(scene: Scene) -> State:
    """Return the files of a scene without its staging directory."""
    away = scene.log_dir.parent / "staging"
    (scene.directory / scene.staging).rename(away)
    found = state_of(scene.log_dir)
    away.rename(scene.directory / scene.staging)
    return found


def restore(kept: Kept, check: Callable[[], None] = lambda: None) -> Callable[[Scene, Observer | None], None]:
    """Return the restore of what is kept, as a function of a scene."""

    def act(scene: Scene, observer: Observer | None) -> None:
        with (
            log_dir_lock(scene.log_dir) as lock,
            OpenDirectory(scene.directory) as partition,
            OpenDirectory(kept.path) as links,
            OpenDirectory(scene.log_dir) as log_dir,
        ):
            subject = read_kept(links)
            assert subject is not None
            verified = verify_kept(partition, links, subject, log_dir)
            if not verified.is_done:
                put_back(partition, links, subject, verified, log_dir, lock, check=check, after_step=observer)

    return act


@pytest.mark.long
@pytest.mark.parametrize(
    ("groups", "stride"),
    [
        (GROUPS[1], 1),
        (((0, 100, 200), (300, 400, 500)), 5),
        *(pytest.param(groups, 1, marks=pytest.mark.slow) for groups in (GROUPS[2], ((0, 100, 200), (300, 400, 500)))),
    ],
)
def test_a_restore_that_is_stopped_is_recovered_and_completed(
    tmp_path: Path, groups: Sequence[Sequence[int]], stride: int
) -> None:
    kept = cleaned(tmp_path, groups)
    count, ways = 0, set()
    for number, state in stopped_states(kept.scene, tmp_path, restore(kept), stride=stride):
        report = recovery.recover(state.directory, log_dir=state.log_dir)
        ways.add(report.status)
        assert latest_values(state.directory) == kept.scene.view, number
        assert not recovery.recover(state.directory, log_dir=state.log_dir).changed
        restore(kept)(state, None)
        assert state_of(state.log_dir) == kept.before, number
        restore(kept)(state, None)  # There is nothing left to do.
        assert state_of(state.log_dir) == kept.before, number
        count += 1
    assert ways == {"nothing-to-do", "undone", "finished", "tidied"}
    assert count > 20 * len(groups) // stride


def test_a_restore_that_is_stopped_is_ended_without_its_manifest(tmp_path: Path) -> None:
    """Done by hand as the message for a damaged manifest says."""
    kept = cleaned(tmp_path, ((200, 300),), has_aborted=False)
    ways = []
    for number, state in stopped_states(kept.scene, tmp_path, restore(kept)):
        for staging in state.directory.glob(".kcompact-*"):
            shutil.rmtree(staging)
        for snapshot in state.directory.glob("*.snapshot.*"):
            snapshot.unlink()
        ways.append(recovery.recover(state.directory, log_dir=state.log_dir, foreign=True).status)
        assert latest_values(state.directory) == kept.scene.view, number
    assert list(dict.fromkeys(ways))[:3] == ["nothing-to-do", "undone", "finished"]


@pytest.mark.long
@pytest.mark.parametrize("stride", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_recovery_of_a_restore_may_be_stopped_too(tmp_path: Path, stride: int) -> None:
    kept = cleaned(tmp_path, ((0, 100, 200),))
    for number, state in stopped_states(kept.scene, tmp_path, restore(kept), stride=stride):
        for _, again in stopped_states(state, tmp_path / f"again-{number}", crash.recover):
            recovery.recover(again.directory, log_dir=again.log_dir)
            assert latest_values(again.directory) == kept.scene.view, number
            restore(kept)(again, None)
            assert state_of(again.log_dir) == kept.before, number


def test_the_checkpoint_is_as_before(tmp_path: Path) -> None:
    kept = cleaned(tmp_path, GROUPS[2])
    restore(kept)(kept.scene, None)
    assert crash.cleaner_checkpoint(kept.scene) == CHECKPOINT_BEFORE


def test_the_checkpoint_goes_first_and_the_newest_group_next(tmp_path: Path) -> None:
    """A tombstone or a marker is there before what it deletes or aborts, and the checkpoint never ahead of the log."""
    kept = cleaned(tmp_path, GROUPS[3])
    logs = []

    def look(step: Step) -> None:
        assert crash.cleaner_checkpoint(kept.scene) == CHECKPOINT_BEFORE
        if isinstance(step, Rename) and step.target.endswith(".log"):
            logs.append(int(step.target[:20]))

    restore(kept)(kept.scene, look)
    assert logs == [400, 500, 200, 300, 0, 100]


@pytest.mark.parametrize("number", [0, 1])
def test_a_request_to_stop_is_followed_between_two_groups(tmp_path: Path, number: int) -> None:
    kept = cleaned(tmp_path, GROUPS[2])
    left = [number]

    def check() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CleaningAbortedError(path=kept.scene.directory)

    with pytest.raises(CleaningAbortedError):
        restore(kept, check)(kept.scene, None)
    assert not list(kept.scene.directory.glob(".kcompact-*"))
    assert latest_values(kept.scene.directory) == kept.scene.view
    restore(kept)(kept.scene, None)
    assert state_of(kept.scene.log_dir) == kept.before


# --- Power cuts -----------------------------------------------------------------------------------------

STAGING = ".kcompact-0123456789abcdef"


def way_back(tmp_path: Path, bases: Sequence[int]) -> tuple[Scene, Disk, CleanedSegment]:
    """Return a disk with one cleaned group whose old files are staged, and the swap back."""
    scene = crash.build(tmp_path / "data", [bases])
    (group,) = scene.cleaned
    disk = Disk.of(scene)
    names, staged = disk.certain[""], disk.certain.pop(scene.staging)
    old = {identity.name: names.pop(identity.name) for identity in group.replaces}
    new = {file.name: staged[file.staged_as] for file in group.files}
    certain: dict[str, dict[str, File]] = {"": names | new, STAGING: old}
    current = {f"{place}/{name}".lstrip("/"): file for place, files in certain.items() for name, file in files.items()}
    back = CleanedSegment(
        base_offset=bases[0],
        files=tuple(StagedFile(name=name, staged_as=name, size_bytes=1, crc32c=1) for name in old),
        replaces=tuple(FileIdentity(name=name, device=1, inode=1, size_bytes=1, mtime_ns=1) for name in new),
    )
    return replace(scene, staging=STAGING), Disk(certain, {"": [], STAGING: []}, current, disk.kinds), back


def faults_of_all_power_cuts(scene: Scene, disk: Disk, steps: Sequence[Step]) -> Iterator[set[str]]:
    """Yield what is wrong with each state that a power cut can leave, before or after any step."""
    for step in (*steps, SyncDir()):
        for names in disk.after_power_cuts("", 4096, random.Random(7)):
            yield faults(load(names), scene.view, disk.kinds)
        disk.do(step)


BASES = [(0, 100), pytest.param((0, 100, 200), marks=pytest.mark.slow), (300, 400, 500)]


@pytest.mark.parametrize("bases", BASES)
def test_a_broker_starts_after_a_power_cut_in_a_restore(tmp_path: Path, bases: Sequence[int]) -> None:
    scene, disk, back = way_back(tmp_path, bases)
    found = list(faults_of_all_power_cuts(scene, disk, replacement_steps(back, STAGING)))
    assert set().union(*found) == set()
    assert len(found) > 1000


def no_sync_before_the_guard(steps: list[Step]) -> list[Step]:
    first = next(number for number, step in enumerate(steps) if str(step).endswith(".swap"))
    sync = steps.index(SyncDir(), first)
    return steps[:sync] + steps[sync + 1 :]


def final_logs(steps: list[Step]) -> list[int]:
    return [
        number for number, step in enumerate(steps) if isinstance(step, Rename) and step.source.endswith("log.swap")
    ]


def logs_named_together(steps: list[Step]) -> list[Step]:
    names = final_logs(steps)
    return [step for number, step in enumerate(steps) if number - 1 not in names[:-1]]


def middle_log_first(steps: list[Step]) -> list[Step]:
    lowest, middle, _ = final_logs(steps)
    swapped = {lowest: middle, middle: lowest}
    return [steps[swapped.get(number, number)] for number in range(len(steps))]


def lowest_committed_first(steps: list[Step]) -> list[Step]:
    names = [number for number, step in enumerate(steps) if isinstance(step, Rename) and step.target.endswith(".swap")]
    swapped = dict(zip(names, reversed(names), strict=True))
    return [steps[swapped.get(number, number)] for number in range(len(steps))]


@pytest.mark.parametrize(
    "mutant", [no_sync_before_the_guard, logs_named_together, middle_log_first, lowest_committed_first]
)
def test_each_order_and_sync_is_needed(tmp_path: Path, mutant: Callable[[list[Step]], list[Step]]) -> None:
    scene, disk, back = way_back(tmp_path, (300, 400, 500))
    steps = mutant(list(replacement_steps(back, STAGING)))
    assert any("lost" in found for found in faults_of_all_power_cuts(scene, disk, steps))
