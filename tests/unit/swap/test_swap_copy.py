"""A copy in another directory: complete under the partition's name, or not there at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.errors import LogChangedError, RefusedError
from kcompact.log.directory import PartitionLog, read_log
from kcompact.swap.copy import copy_partition, fill, new_partition
from kcompact.swap.staging import discard
from tests.support.crash import CHECKPOINT_BEFORE, PARTITION, Scene, cleaner_checkpoint, latest_values, log_of


@pytest.fixture
def log(scene: Scene) -> PartitionLog:
    discard(scene.directory, scene.staging)
    return read_log(scene.directory)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def copy_and(act: Callable[[], object], log: PartitionLog, output: Path) -> None:
    """Copy, and call `act` before the copy gets its name."""
    with new_partition(log, output, checkpoint_offset=600) as target:
        fill(log, target, ())
        act()


def test_a_copy_has_the_files_and_its_checkpoint(scene: Scene, log: PartitionLog, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with new_partition(log, output, checkpoint_offset=600) as target:
        assert target.name.startswith("orders-0.")
        assert target.name.endswith("-delete")
        fill(log, target, ())
    assert {path.name: path.read_bytes() for path in (output / str(PARTITION)).iterdir()} == scene.before
    assert latest_values(output / str(PARTITION)) == scene.view
    assert (output / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 600\n"
    assert cleaner_checkpoint(scene) == CHECKPOINT_BEFORE


def test_a_copy_that_fails_leaves_no_directory(log: PartitionLog, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        copy_and(lambda: 1 // 0, log, output)
    assert names(output) == []


def test_a_source_that_changes_meanwhile_is_refused(scene: Scene, log: PartitionLog, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(LogChangedError):
        copy_and(lambda: (scene.directory / log_of(0)).write_bytes(b"other"), log, output)
    assert names(output) == []


def test_an_existing_copy_is_not_replaced(log: PartitionLog, tmp_path: Path) -> None:
    output = tmp_path / "out"
    copy_partition(log, output)
    before = names(output / str(PARTITION))
    with pytest.raises(RefusedError, match="exists already"):
        copy_partition(log, output)
    assert names(output / str(PARTITION)) == before


def test_a_copy_into_its_source_is_refused(scene: Scene, log: PartitionLog) -> None:
    with pytest.raises(RefusedError, match="is inside"):
        copy_partition(log, scene.directory / "out")
    assert not (scene.directory / "out").exists()
