"""File systems by their kind, and what is refused on those of other machines."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.host import disk
from kcompact.host.disk import Storage
from tests.support.command_line import COMPACT, COMPACTED, clean, digest, kcompact, note_texts, partition, values


@pytest.mark.parametrize(
    ("kind", "is_shared", "is_overlay"),
    [
        ("ext4", False, False),
        ("xfs", False, False),
        ("btrfs", False, False),
        ("tmpfs", False, False),
        ("", False, False),
        ("nfs", True, False),
        ("nfs4", True, False),
        ("cifs", True, False),
        ("smb3", True, False),
        ("9p", True, False),
        ("virtiofs", True, False),
        ("ceph", True, False),
        ("fuse", True, False),
        ("fuseblk", True, False),
        ("fuse.sshfs", True, False),
        ("fuse.glusterfs", True, False),
        ("overlay", False, True),
    ],
)
def test_kinds(kind: str, is_shared: bool, is_overlay: bool) -> None:
    assert (Storage(kind).is_shared, Storage(kind).is_overlay) == (is_shared, is_overlay)


def test_the_kind_of_a_mount() -> None:
    assert Storage.of(Path("/proc")).kind == "proc"
    assert Storage.of(Path("/proc/self/fd")).kind == "proc"
    assert Storage.of(Path("/proc/nowhere")).kind == ""


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "9p"])
def test_nothing_is_changed_on_shared_storage(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "data")
    before = digest(directory)
    monkeypatch.setattr(disk, "_kind_of", lambda directory, status: kind)
    ran = clean(directory)
    assert (ran.code, ran.partition["exit_code"]) == (4, 4)
    assert kind in ran.partition["error"]
    assert "--output" in ran.partition["error"]
    assert clean("--dry-run", directory).code == 4
    assert digest(directory) == before
    assert clean("--output", tmp_path / "out", directory).code == 0
    assert values(tmp_path / "out" / "orders-0") == COMPACTED
    assert kcompact("plan", *COMPACT, directory).code == 0


def extents(*rows: tuple[int, int, int]) -> Callable[[int, int, bytearray], None]:
    """Return an `ioctl` that answers with extents, two at a time: where they begin, their length, and flags."""

    def ioctl(fd: int, request: int, buffer: bytearray) -> None:
        assert request == 0xC020660B
        (start,) = struct.unpack_from("=Q", buffer)
        found = [row for row in rows if row[0] >= start][:2]
        struct.pack_into("=L", buffer, 20, len(found))
        for number, (logical, length, flags) in enumerate(found):
            struct.pack_into("=QQQQQLLLL", buffer, 32 + 56 * number, logical, 0, length, 0, 0, flags, 0, 0, 0)

    return ioctl


@pytest.mark.parametrize(
    ("kind", "rows", "shared_bytes"),
    [
        ("xfs", [(0, 4096, 0x0), (4096, 4096, 0x1)], 0),
        ("xfs", [(0, 4096, 0x2000), (4096, 4096, 0x1)], 4096),
        ("btrfs", [(0, 4096, 0x2000), (4096, 4096, 0x0), (8192, 8192, 0x2001)], 12288),
        ("btrfs", [(0, 4096, 0x2008), (4096, 4096, 0x0), (8192, 8192, 0x0), (65536, 4096, 0x2000)], 8192),
        ("ext4", [], 0),
        ("zfs", [], 16384),
        ("overlay", [], 16384),
    ],
)
def test_shared_extents_are_not_freed(
    kind: str, rows: list[tuple[int, int, int]], shared_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_bytes(bytes(16384))
    monkeypatch.setattr(fcntl, "ioctl", extents(*rows))
    with open(tmp_path / "log", "rb") as file:
        own_bytes = os.fstat(file.fileno()).st_blocks * 512
        assert Storage(kind).freed_bytes(file.fileno()) == max(0, own_bytes - shared_bytes)


def test_an_overlay_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    monkeypatch.setattr(disk, "_kind_of", lambda directory, status: "overlay")
    ran = clean(directory)
    assert ran.code == 0
    assert any("overlay" in note for note in note_texts(ran.json))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_real_overlay(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "none", "-o", options, tmp_path / "merged"], check=True)
    try:
        assert Storage.of(tmp_path / "merged").kind == "overlay"
    finally:
        subprocess.run(["umount", tmp_path / "merged"], check=True)
