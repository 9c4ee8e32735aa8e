"""A broker that cleans loses power: what `recover --foreign` leaves is a lawful log, or it changes nothing."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcompact.errors import RecoveryNeededError
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.steps import SyncDir
from tests.support import crash, log_writer, txn_log
from tests.support.crash import Scene, broker_phases, latest_values, listing, log_of
from tests.support.power_loss import Disk, make_real

GROUPS = [((0, 100),), ((200, 300),), ((0, 100, 200),)]


def power_cuts(scene: Scene, work: Path, limit: int) -> Iterator[Scene]:
    """Yield what power cuts leave of a broker's swap. The files of a state are removed before the next is yielded."""
    disk, chance, seen = Disk.of(scene), random.Random(7), set()
    created, renames, removals = broker_phases(scene)
    for step in (*created, SyncDir()):
        disk.do(step)
    for step in (*renames, *removals, SyncDir()):
        for names in disk.after_power_cuts("", limit, chance):
            if (key := frozenset(names.items())) not in seen:
                seen.add(key)
                state = make_real(scene, names, {}, scene.log_dir, work / "cut")
                shutil.rmtree(state.directory / state.staging)
                yield state
                shutil.rmtree(state.log_dir)
        disk.do(step)


def recovered(state: Scene) -> str:
    """Recover, by hand where the message says so; return what that was."""
    before = listing(state.log_dir)
    try:
        report = recovery.recover(state.directory, log_dir=state.log_dir, foreign=True)
    except RecoveryNeededError as error:
        assert listing(state.log_dir) == before
        if "to another place (mv)" not in error.hint:
            return "refused"
        for name in error.files:
            (state.directory / name).unlink()
        return "by hand" if recovered(state) != "refused" else "refused"
    for base in report.only_copies:
        for path in state.directory.glob(f"{base:020d}.*.deleted"):
            path.rename(path.with_suffix(""))
    return report.status


@pytest.mark.long
@pytest.mark.parametrize(("limit", "least"), [(6, 60), pytest.param(16, 150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", GROUPS)
def test_every_record_is_there_once_or_nothing_is_changed(
    groups: tuple[tuple[int, ...], ...], limit: int, least: int, tmp_path: Path
) -> None:
    scene = crash.build(tmp_path / "data", groups, has_aborted=False)
    seen = Counter[str]()
    for state in power_cuts(scene, tmp_path, limit):
        outcome = recovered(state)
        seen[outcome] += 1
        if outcome != "refused":
            assert latest_values(state.directory) == state.view
    assert {"undone", "finished", "tidied", "by hand", "refused"} <= seen.keys()
    assert seen.total() > least


@pytest.fixture
def merged(tmp_path: Path) -> Scene:
    """A broker has merged 200 and 300, whose log has its name again: the last renames came to the disk first."""
    scene = crash.build(tmp_path / "data", ((200, 300),), has_aborted=False)
    old = {name: data for name, data in scene.before.items() if name.startswith(f"{300:020d}.")}
    crash.broker_round(scene)
    for name, data in old.items():
        (scene.directory / name).write_bytes(data)
    return scene


@pytest.mark.parametrize("left", [None, log_of(200, ".deleted"), f"{200:020d}.timeindex.swap"])
def test_an_old_segment_inside_a_new_one_is_named(merged: Scene, left: str | None) -> None:
    if left is not None:
        final = merged.directory / left.rpartition(".")[0]
        final.rename(merged.directory / left) if left.endswith(".swap") else shutil.copy(final, merged.directory / left)
    before = listing(merged.log_dir)
    with pytest.raises(RecoveryNeededError, match="segment 300 begins before the end of segment 200, 303") as stop:
        recovery.recover(merged.directory, log_dir=merged.log_dir, foreign=True)
    assert listing(merged.log_dir) == before
    assert {int(name[:20]) for name in stop.value.files} == {300}
    assert "into segment 200, which is sound. Move them" in stop.value.hint


def test_a_damaged_segment_is_not_called_sound(merged: Scene) -> None:
    path = merged.directory / log_of(200)
    crash.replace_content(path, path.read_bytes()[:-1] + b"!")
    with pytest.raises(RecoveryNeededError, match="Segment 200 is damaged, or contradicts its indexes"):
        recovery.recover(merged.directory, log_dir=merged.log_dir, foreign=True)


@pytest.mark.parametrize(("milliseconds", "is_sound"), [(1, True), (1 << 60, False)])
def test_a_time_index_may_end_lower_than_its_segment(milliseconds: int, is_sound: bool, merged: Scene) -> None:
    crash.replace_content(merged.directory / f"{200:020d}.timeindex", milliseconds.to_bytes(8, "big") + bytes(4))
    with pytest.raises(RecoveryNeededError) as stop:
        recovery.recover(merged.directory, log_dir=merged.log_dir, foreign=True)
    assert ("which is sound" in f"{stop.value} {stop.value.hint}") == is_sound


@pytest.mark.parametrize(
    ("suffix", "problem"), [(".timeindex", "segment 9 has no .timeindex"), (".txnindex", "ABORT marker at offset 16")]
)
def test_a_segment_keeps_its_own_indexes(suffix: str, problem: str, tmp_path: Path) -> None:
    """A broker makes an `.index` anew, and the others with it, but neither of these alone."""
    directory = log_writer.write(txn_log.SPEC, tmp_path)
    name = f"{9:020d}{suffix}"
    (directory / name).rename(directory / f"{name}.deleted")
    before = listing(directory)
    with pytest.raises(RecoveryNeededError, match=problem) as stop:
        recovery.recover(directory, foreign=True)
    assert listing(directory) == before
    assert stop.value.files == (f"{9:020d}.index",)
    (directory / f"{9:020d}.index").unlink()
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    assert recovery.recover(directory, foreign=True).broker_files == (f"{name}.deleted",)


@pytest.mark.parametrize("base_offset", [0, 9])
def test_a_segment_without_its_index_after_a_clean_shutdown(base_offset: int, tmp_path: Path) -> None:
    """A broker that makes the index anew can forget the open transaction at 19."""
    directory = log_writer.write(txn_log.SPEC, tmp_path)
    name = f"{base_offset:020d}.index"
    (directory / name).rename(directory / f"{name}.deleted")
    before = listing(tmp_path)
    with pytest.raises(RecoveryNeededError, match=f"segment {base_offset} has no .index") as stop:
        recovery.recover(directory, log_dir=tmp_path, foreign=True)
    assert listing(tmp_path) == before
    assert f"Move {tmp_path / CLEAN_SHUTDOWN_FILE} to another place (mv)" in stop.value.hint
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    assert recovery.recover(directory, log_dir=tmp_path, foreign=True).broker_files == (f"{name}.deleted",)
