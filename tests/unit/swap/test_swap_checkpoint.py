"""The cleaner's checkpoint: other entries, owner and mode stay; a failed write changes nothing."""

from __future__ import annotations

import os
import stat

import pytest

from kcompact.errors import CorruptCheckpointError, NotEnoughSpaceError
from kcompact.swap.checkpoint import write_checkpoints
from tests.support import crash
from tests.support.crash import CHECKPOINT_BEFORE, PARTITION, Scene, checkpoint_after, cleaner_checkpoint


def test_a_lone_checkpoint_tmp_is_harmless(scene: Scene) -> None:
    (scene.log_dir / "cleaner-offset-checkpoint.tmp").write_text("0\n")
    crash.run_round(scene)
    assert cleaner_checkpoint(scene) == checkpoint_after(scene)
    assert not (scene.log_dir / "cleaner-offset-checkpoint.tmp").exists()


def test_the_checkpoint_keeps_its_other_entries_its_owner_and_mode(scene: Scene) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()
    write_checkpoints(scene.log_dir, {PARTITION: 5})
    write_checkpoints(scene.log_dir, {PARTITION: scene.end_offset})
    assert path.read_text() == checkpoint_after(scene)
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


@pytest.mark.parametrize("like", ["replication-offset-checkpoint", None])
def test_a_new_checkpoint(scene: Scene, like: str | None) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.unlink()
    if like is not None:
        (scene.log_dir / like).write_text("0\n0\n")
        (scene.log_dir / like).chmod(0o640)
    if os.geteuid() == 0:
        os.chown(scene.log_dir, 1234, 2345)
    old_mask = os.umask(0o077)
    try:
        write_checkpoints(scene.log_dir, {PARTITION: 600})
    finally:
        os.umask(old_mask)
    assert path.read_text() == "0\n1\norders 0 600\n"
    assert stat.S_IMODE(path.stat().st_mode) == (0o640 if like else 0o644)
    if os.geteuid() == 0 and like is None:
        assert path.stat().st_uid == 1234


@pytest.mark.parametrize("content", ["0\n2\norders 0 1\n", "1\n0\n", "0\n1\norders zero 1\n"])
def test_a_malformed_checkpoint_is_not_touched(scene: Scene, content: str) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptCheckpointError):
        write_checkpoints(scene.log_dir, {PARTITION: scene.end_offset})
    assert path.read_text() == content
    assert sorted(item.name for item in scene.log_dir.iterdir()) == ["cleaner-offset-checkpoint", str(PARTITION)]


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "fchmod"])
def test_a_checkpoint_that_cannot_be_written_stays(scene: Scene, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    (scene.log_dir / "cleaner-offset-checkpoint").chmod(0o640)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(NotEnoughSpaceError):
        write_checkpoints(scene.log_dir, {PARTITION: 600})
    monkeypatch.undo()
    assert cleaner_checkpoint(scene) == CHECKPOINT_BEFORE
