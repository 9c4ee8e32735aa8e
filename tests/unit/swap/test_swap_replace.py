"""A swap that is not interrupted, one in which a call fails, and one that is refused before anything changes."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.errors import CorruptDataError, LogChangedError, NotEnoughSpaceError, RecoveryNeededError
from kcompact.log.lock import log_dir_lock
from kcompact.swap import manifest
from kcompact.swap.checkpoint import write_checkpoints
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import discard
from tests.support import crash
from tests.support.crash import (
    GROUPS,
    ORPHANS,
    PARTITION,
    Scene,
    assert_lawful,
    checkpoint_after,
    cleaner_checkpoint,
    listing,
    log_of,
)


@pytest.mark.parametrize("count", GROUPS)
def test_a_whole_round(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    with log_dir_lock(scene.log_dir) as lock:
        for cleaned in scene.cleaned:
            replace_segments(scene.directory, scene.staging, cleaned, lock.check)
        write_checkpoints(scene.log_dir, {PARTITION: scene.end_offset})
        discard(scene.directory, scene.staging)
    assert assert_lawful(scene) == [True] * count
    assert cleaner_checkpoint(scene) == checkpoint_after(scene)
    discard(scene.directory, scene.staging)  # nothing to do


def test_a_brokers_deleted_file_in_the_way_is_swept(scene: Scene) -> None:
    garbage = scene.directory / f"{0:020d}.log.deleted"
    garbage.write_bytes(b"an older segment that a broker's cleaner had replaced")
    other = scene.directory / f"{77:020d}.log.deleted"
    other.write_bytes(b"retention")
    crash.run_round(scene)
    assert not garbage.exists()
    assert other.read_bytes() == b"retention"
    other.unlink()
    assert_lawful(scene)


def test_orphans_that_the_plan_knows_stay(tmp_path: Path) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[3], ORPHANS)
    crash.run_round(scene)
    assert assert_lawful(scene) == [True] * 3
    assert {name: (scene.directory / name).read_bytes() for name in ORPHANS} == ORPHANS


@pytest.mark.long
@pytest.mark.parametrize("call", ["rename", "fsync", "unlink"])
def test_any_call_may_fail(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(os, call)
    outcomes = set()
    staged = crash.build(tmp_path / "data", GROUPS[2])
    for number in itertools.count(1):
        scene = staged.moved(tmp_path / f"data-{number}")
        crash.clone(staged.log_dir, scene.log_dir)
        calls = itertools.count(1)

        def failing(*arguments: object, limit: int = number, **options: object) -> None:
            if next(calls) >= limit:  # noqa: B023 - used before the loop goes on
                raise OSError(28, "No space left on device")
            real(*arguments, **options)

        monkeypatch.setattr(os, call, failing)
        try:
            for cleaned in scene.cleaned:
                replace_segments(scene.directory, scene.staging, cleaned, lambda: None)
        except NotEnoughSpaceError:  # The first step of a group: nothing is left to recover.
            discard(scene.directory, scene.staging)
        except RecoveryNeededError as error:
            outcome = re.search(r"before|after|unknown", str(error))
            assert outcome is not None
            outcomes.add(outcome[0])
            if any(path.suffix in (".cleaned", ".swap", ".deleted") for path in scene.directory.iterdir()):
                with pytest.raises(RecoveryNeededError):  # The manifest is still needed.
                    discard(scene.directory, scene.staging)
        else:
            break
        finally:
            monkeypatch.setattr(os, call, real)
        recovery.recover(scene.directory)
        assert_lawful(scene)
    assert number > 10
    assert (
        outcomes == {"rename": {"before", "after"}, "fsync": {"before", "after", "unknown"}, "unlink": {"after"}}[call]
    )


# --- Refused before anything changes --------------------------------------------------------------------


def touch_old(scene: Scene) -> None:
    os.utime(scene.directory / log_of(100), ns=(1, 1))


def append_to_old(scene: Scene) -> None:
    with (scene.directory / log_of(0)).open("ab") as file:
        file.write(b"x")


def replace_old(scene: Scene) -> None:
    path = scene.directory / log_of(0)
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def remove_old(scene: Scene) -> None:
    (scene.directory / f"{100:020d}.snapshot").unlink()


def add_segment(scene: Scene) -> None:
    (scene.directory / log_of(50)).touch()


def add_orphan(scene: Scene) -> None:
    (scene.directory / f"{50:020d}.index").touch()


def add_index(scene: Scene) -> None:
    (scene.directory / f"{300:020d}.txnindex").touch()


def remove_manifest(scene: Scene) -> None:
    (scene.directory / scene.staging / manifest.NAME).unlink()


@pytest.mark.parametrize(
    "change", [touch_old, append_to_old, replace_old, remove_old, add_segment, add_orphan, add_index, remove_manifest]
)
def test_a_changed_partition_is_not_touched(scene: Scene, change: Callable[[Scene], None]) -> None:
    group = scene.cleaned[1 if change is add_index else 0]
    change(scene)
    before = listing(scene.log_dir)
    with pytest.raises(LogChangedError) as error:
        replace_segments(scene.directory, scene.staging, group, lambda: None)
    assert error.value.exit_code == 6
    assert listing(scene.log_dir) == before


def test_a_lost_lock_stops_the_swap(scene: Scene) -> None:
    before = listing(scene.directory)
    with log_dir_lock(scene.log_dir) as lock:
        (scene.log_dir / ".lock").rename(scene.log_dir / "moved")
        with pytest.raises(LogChangedError):
            replace_segments(scene.directory, scene.staging, scene.cleaned[0], lock.check)
    assert listing(scene.directory) == before


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_staged_file_that_is_not_what_was_written(scene: Scene, content: bytes) -> None:
    staged = scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as
    staged.write_bytes(content)
    with pytest.raises(CorruptDataError, match="bytes"):
        replace_segments(scene.directory, scene.staging, scene.cleaned[0], lambda: None)
