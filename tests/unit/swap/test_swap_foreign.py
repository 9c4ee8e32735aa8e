"""What a broker's own interrupted cleaning leaves: finished or undone by the loader's rules, or left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.errors import RecoveryNeededError
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.recovery.end import RecoveryReport
from kcompact.swap.steps import Observer
from tests.support import crash
from tests.support.crash import GROUPS, Scene, broker_round, latest_values, listing, log_of, stopped_states


def broker_files(scene: Scene) -> list[str]:
    return sorted(path.name for path in scene.directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted"))


def recover(state: Scene, observer: Observer | None = None) -> RecoveryReport:
    return recovery.recover(state.directory, log_dir=state.log_dir, foreign=True, after_step=observer)


def assert_recovered(state: Scene, not_reached: int | None) -> None:
    """Assert that nothing is left, except old files at an offset that the new segment does not reach."""
    left = [name for name in broker_files(state) if name.endswith(".deleted")]
    assert broker_files(state) == left
    assert {int(name.partition(".")[0]) for name in left} <= {not_reached}
    assert latest_values(state.directory) == state.view


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return crash.build(tmp_path / "data", GROUPS[1], has_aborted=False)


@pytest.mark.parametrize(
    ("groups", "not_reached"),
    # Of the records from 100 on none survives.
    [(GROUPS[1], 100), (((200, 300),), None)],
    ids=["not reached", "reached"],
)
def test_every_stop_of_a_broker(groups: tuple[tuple[int, ...], ...], not_reached: int | None, tmp_path: Path) -> None:
    seen = []
    for number, state in stopped_states(
        crash.build(tmp_path / "data", groups, has_aborted=False), tmp_path, broker_round
    ):
        left = broker_files(state)
        if number == 0 or not left:
            continue
        report = recover(state)
        assert_recovered(state, not_reached)
        assert report.broker_files == tuple(sorted({*left} - {*broker_files(state)}))
        assert report.left_behind == tuple(broker_files(state))
        seen.append(report.status)
        recovered = listing(state.log_dir)
        assert recover(state).status == "nothing-to-do"
        assert listing(state.log_dir) == recovered
    assert list(dict.fromkeys(seen))[:3] == ["undone", "finished", "tidied"]
    assert len(seen) > 15


def test_every_stop_of_the_recovery(scene: Scene, tmp_path: Path) -> None:
    pairs = 0
    for number, state in stopped_states(scene, tmp_path, broker_round):
        if number % 3 == 1:
            for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
                recover(again)
                assert_recovered(again, 100)
                pairs += 1
    assert pairs > 50


# Segments that are set aside


def set_aside(scene: Scene, *bases: int) -> None:
    """Give all files of the segments the suffix of a broker."""
    for path in [path for base in bases for path in scene.directory.glob(f"{base:020d}.*")]:
        path.rename(f"{path}.deleted")


def without_epochs(scene: Scene) -> None:
    (scene.directory / "leader-epoch-checkpoint").unlink()


def epochs_from(offset: int) -> Callable[[Scene], None]:
    def write(scene: Scene) -> None:
        crash.replace_content(scene.directory / "leader-epoch-checkpoint", f"0\n1\n0 {offset}\n".encode())

    return write


def own_log(scene: Scene) -> None:
    """Put a log of its own, with indexes, beside the segment 300 that is set aside."""
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(scene.directory / f"{300:020d}{suffix}.deleted", scene.directory / f"{300:020d}{suffix}")


def torn_own_log(scene: Scene) -> None:
    own_log(scene)
    path = scene.directory / log_of(300)
    crash.replace_content(path, path.read_bytes()[:-1])


def empty_own_log(scene: Scene) -> None:
    own_log(scene)
    crash.replace_content(scene.directory / log_of(300), b"")


def log_200_with(*bases: int) -> Callable[[Scene], None]:
    """Let the segment 200 have the records of these segments."""

    def write(scene: Scene) -> None:
        records = [record for base in bases for record in crash.SEGMENTS[base]]
        crash.replace_content(scene.directory / log_of(200), crash.segment_of(200, records).data)
        for suffix in (".index", ".timeindex"):
            (scene.directory / f"{200:020d}{suffix}").unlink()

    return write


def torn_merged_log(scene: Scene) -> None:
    log_200_with(200, 300)(scene)
    path = scene.directory / log_of(200)
    crash.replace_content(path, path.read_bytes()[:-1])


def no_log_aside(scene: Scene) -> None:
    (scene.directory / log_of(300, ".deleted")).unlink()


@pytest.mark.parametrize(
    ("aside", "change", "kept"),
    [
        ([300], None, [300]),
        ([300, 400], None, [300, 400]),
        ([600], None, [600]),
        ([300], own_log, []),
        ([300], torn_own_log, [300]),
        ([300], empty_own_log, [300]),
        ([300], log_200_with(200, 300), []),
        ([300], torn_merged_log, [300]),
        ([300, 400], log_200_with(200, 300), [400]),
        ([300, 400], log_200_with(200, 300, 400), []),
        ([300], no_log_aside, []),
        # Deleted from the start, unless the first leader epoch begins there.
        ([0, 100], epochs_from(200), []),
        ([0, 100], without_epochs, []),
        ([0, 100], epochs_from(100), [100]),
        ([0, 100], None, [0, 100]),
        ([0, 100], epochs_from(-1), [0, 100]),
        ([0, 100, 300], epochs_from(200), [300]),
    ],
)
def test_what_may_be_the_only_copy_stays(
    scene: Scene, aside: list[int], change: Callable[[Scene], None] | None, kept: list[int]
) -> None:
    shutil.rmtree(scene.directory / scene.staging)
    set_aside(scene, *aside)
    if change is not None:
        change(scene)
    before = listing(scene.directory)
    removed = [name for name in before if name.endswith(".deleted") and int(name[:20]) not in kept]
    report = recover(scene)
    assert report.only_copies == tuple(kept)
    assert report.broker_files == tuple(removed)
    assert listing(scene.directory) == {name: data for name, data in before.items() if name not in removed}


def test_a_new_segment_of_its_own_or_that_reaches_it(tmp_path: Path) -> None:
    """The old segments 200 and 300 are set aside, and 100 too, for which nothing takes its place."""
    scene = crash.build(tmp_path / "data", ((200, 300),), has_aborted=False)
    leave(scene, len(scene.cleaned[0].files) + 6)
    set_aside(scene, 100)
    assert log_of(200, ".swap") in broker_files(scene)
    assert {log_of(200, ".deleted"), log_of(300, ".deleted")} < {*broker_files(scene)}
    assert recover(scene).only_copies == (100,)
    assert log_of(100, ".deleted") in broker_files(scene)
    assert {int(name[:20]) for name in broker_files(scene)} == {100}


def leave(scene: Scene, renames: int) -> None:
    with pytest.raises(crash.Stopped):
        broker_round(scene, crash.stop_after(renames))


def rename(scene: Scene, source: str, target: str) -> None:
    (scene.directory / source).rename(scene.directory / target)


def old_gone(scene: Scene) -> None:
    leave(scene, 2)
    rename(scene, log_of(0), log_of(0, ".deleted"))


def old_gone_before_any_swap(scene: Scene) -> None:
    leave(scene, 1)
    rename(scene, log_of(0, ".swap"), log_of(0, ".cleaned"))
    rename(scene, log_of(100), log_of(100, ".deleted"))


def segment_between(scene: Scene) -> None:
    leave(scene, 3)
    for suffix in (".log", ".index", ".timeindex"):
        rename(scene, f"{500:020d}{suffix}", f"{500:020d}{suffix}.swap")


def torn(scene: Scene) -> None:
    leave(scene, 3)
    path = scene.directory / log_of(0, ".swap")
    path.write_bytes(path.read_bytes()[:-1])


def empty(scene: Scene) -> None:
    leave(scene, 3)
    (scene.directory / log_of(0, ".swap")).write_bytes(b"")


def log_alone(scene: Scene) -> None:
    leave(scene, 3)
    (scene.directory / f"{0:020d}.timeindex.swap").unlink()


def index_alone(scene: Scene) -> None:
    leave(scene, 3)
    (scene.directory / log_of(0, ".swap")).unlink()


def not_of_kafka(scene: Scene) -> None:
    leave(scene, 1)
    (scene.directory / "x.swap").write_bytes(b"")


def directory(scene: Scene) -> None:
    leave(scene, 1)
    (scene.directory / log_of(700, ".swap")).mkdir()


def active_in_range(scene: Scene) -> None:
    leave(scene, 3)
    for base in (100, 200, 300, 400, 500):
        (scene.directory / log_of(base)).unlink()
    rename(scene, log_of(600), log_of(2))


def all_aside(scene: Scene) -> None:
    shutil.rmtree(scene.directory / scene.staging)
    set_aside(scene, *crash.SEGMENTS)


def new_one_alone(scene: Scene) -> None:
    leave(scene, 1)
    rename(scene, log_of(0, ".swap"), log_of(0, ".cleaned"))
    rename(scene, log_of(0), "elsewhere")


def killed_while_loading(scene: Scene) -> None:
    leave(scene, 3)
    for base in (0, 100):
        for path in scene.directory.glob(f"{base:020d}.*"):
            if path.suffix != ".swap":
                path.unlink()
    for suffix in (".index", ".timeindex"):
        rename(scene, f"{0:020d}{suffix}.swap", f"{0:020d}{suffix}")


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        (all_aside, "every segment is marked as deleted"),
        (new_one_alone, "no old one is there"),
        (killed_while_loading, "incomplete.*\n.*\n.*\nA broker that was killed while it started"),
        (old_gone, "the old one is gone"),
        (old_gone_before_any_swap, "an old one is set aside"),
        (segment_between, "between two new segments"),
        (torn, "batch"),
        (empty, "contradicts"),
        (log_alone, "incomplete: no 0{20}.timeindex.swap"),
        (index_alone, "may be the old one"),
        (not_of_kafka, "no broker has written"),
        (directory, "not a regular file"),
        (active_in_range, "the active segment 2"),
    ],
)
def test_what_could_lose_records_is_left_alone(scene: Scene, leaves: Callable[[Scene], None], problem: str) -> None:
    leaves(scene)
    before = listing(scene.log_dir)
    with pytest.raises(RecoveryNeededError, match=problem) as stop:
        recovery.recover(scene.directory, log_dir=scene.log_dir, foreign=True)
    assert "changed nothing" in stop.value.hint
    assert listing(scene.log_dir) == before


def test_without_the_option_it_is_named(scene: Scene) -> None:
    leave(scene, 1)
    with pytest.raises(RecoveryNeededError, match=r"`recover\(\.\.\., foreign=True\)`"):
        recovery.recover(scene.directory, log_dir=scene.log_dir)


@pytest.mark.parametrize(("content", "problem"), [(None, "no kcompact manifest names"), (b"{}", "is damaged")])
def test_a_lost_manifest_may_name_these_files(scene: Scene, content: bytes | None, problem: str) -> None:
    crash.stopped(scene, 10)
    manifest = scene.directory / scene.staging / "manifest.json"
    manifest.unlink()
    if content is not None:
        manifest.write_bytes(content)
    with pytest.raises(RecoveryNeededError, match=problem):
        recovery.recover(scene.directory, log_dir=scene.log_dir, foreign=True)
