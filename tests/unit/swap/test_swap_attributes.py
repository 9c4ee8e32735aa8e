"""Owner, mode, extended attributes and time of the new files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kcompact.errors import RefusedError
from kcompact.swap.attributes import carry_over
from tests.support.crash import Scene, log_of


def test_mode_and_time_are_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    for identity in group.replaces:
        (scene.directory / identity.name).chmod(0o640)
    (scene.directory / f"{0:020d}.index").chmod(0o604)
    last = next(one for one in group.replaces if one.name == log_of(100))
    carry_over(scene.directory, scene.staging, group)
    for file in group.files:
        status = (scene.directory / scene.staging / file.staged_as).stat()
        kind = Path(file.name).suffix
        assert stat.S_IMODE(status.st_mode) == (0o604 if kind == ".index" else 0o640)
        assert status.st_size == file.size_bytes
        if kind != ".txnindex":
            assert status.st_mtime_ns == last.mtime_ns // 1_000_000 * 1_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_is_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    os.chown(scene.directory / log_of(0), 1234, 2345)
    carry_over(scene.directory, scene.staging, group)
    status = (scene.directory / scene.staging / group.files[0].staged_as).stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


def test_extended_attributes_are_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    staged = scene.directory / scene.staging / group.files[0].staged_as
    try:
        os.setxattr(scene.directory / log_of(0), "user.owner", b"team")
        os.setxattr(staged, "user.stray", b"from the directory")
    except OSError:
        assert os.geteuid(), "as root, on the machine that checks everything, this test may not be skipped"
        pytest.skip("no user attributes on this file system")
    carry_over(scene.directory, scene.staging, group)
    assert os.listxattr(staged) == ["user.owner"]
    assert os.getxattr(staged, "user.owner") == b"team"


@pytest.mark.parametrize("call", ["fchmod", "listxattr", "utime", "fsync"])
def test_what_cannot_be_carried_over_is_refused(scene: Scene, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(RefusedError, match="cannot be copied"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "what"),
    [
        (1234, 0, 0o644, r"owner \(user id 1234; a new file has 0\)"),
        (0, 2345, 0o644, r"group \(group id 2345; a new file has 0\)"),
        (0, 0, 0o640, r"mode \(640; a new file has 644\)"),
        (0, 0, 0o644, "extended attributes or time"),
    ],
)
def test_what_cannot_be_carried_over_is_named(
    scene: Scene, owner: int, group: int, mode: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(scene.directory / log_of(0), owner, group)
    (scene.directory / log_of(0)).chmod(mode)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for call in ("fchown", "fchmod"):
        monkeypatch.setattr(os, call, refuse)
    with pytest.raises(RefusedError, match=f"its {what} cannot be copied"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])


def test_a_file_system_that_ignores_chmod_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.directory / log_of(0)).chmod(0o640)
    monkeypatch.setattr(os, "fchmod", lambda fd, mode: None)
    with pytest.raises(RefusedError, match="ignored the new attributes"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])


ACL = bytes.fromhex("02000000 01000600ffffffff 02000600d2040000 04000400ffffffff 10000600ffffffff 20000000ffffffff")
"""user::rw- user:1234:rw- group::r-- mask::rw- other::---, as the kernel stores it."""


@pytest.mark.skipif(os.geteuid() != 0, reason="root has all kinds of attributes")
@pytest.mark.parametrize(
    ("name", "value"),
    [("system.posix_acl_access", ACL), ("user.owner", b"team"), ("security.label", b"kafka"), ("trusted.note", b"x")],
)
def test_each_kind_of_extended_attribute_is_carried_over(scene: Scene, name: str, value: bytes) -> None:
    group = scene.cleaned[0]
    os.setxattr(scene.directory / log_of(0), name, value)
    carry_over(scene.directory, scene.staging, group)
    staged = scene.directory / scene.staging / group.files[0].staged_as
    assert os.getxattr(staged, name) == os.getxattr(scene.directory / log_of(0), name)
    assert staged.stat().st_mode == (scene.directory / log_of(0)).stat().st_mode
