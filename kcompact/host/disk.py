"""File systems: their free space, their kind, which decides what a rename and a lock are worth, and mounts over files.

All mounts are in `/proc/self/mountinfo`, by their numbers; the mount of a descriptor is in its `fdinfo`. The type
number of `statfs` says less than the kind there: all file systems of user space have the same one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """The free space of a file system, and the unit in which it gives space to files, in bytes.

    `counts_only_data`: directories and what describes the files take none of the space.
    """

    free_bytes: int
    block_bytes: int
    counts_only_data: bool = False

    @staticmethod
    def of(path: Path) -> Disk:
        """Return the space for a path. It need not exist yet."""
        existing = nearest_existing(path)
        status = os.statvfs(existing)
        in_memory = existing.is_dir() and Storage.of(existing).kind == "tmpfs"
        # A file system of user space may say nothing about its blocks.
        return Disk(status.f_bavail * status.f_frsize, max(1, status.f_frsize), in_memory)

    def file_bytes(self, size_bytes: int) -> int:
        """Return the space for the content of a file: whole blocks."""
        return -(-size_bytes // self.block_bytes) * self.block_bytes

    def without(self, reserved_bytes: int) -> Disk:
        """Return the disk with less free space."""
        return self._replace(free_bytes=max(0, self.free_bytes - reserved_bytes))


_SHARED = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p ceph afs lustre gpfs beegfs orangefs pvfs2 ocfs2 gfs2 virtiofs".split()
)
"""Kinds whose files other machines, or the host of this virtual machine, can change at the same time."""
_IN_USER_SPACE = ("fuse", "fuseblk")
_OVERLAYS = frozenset({"overlay", "aufs", "unionfs"})


class Storage(NamedTuple):
    """The kind of a file system, empty if it is unknown, with what follows from it."""

    kind: str

    @staticmethod
    def of(directory: Path) -> Storage:
        """Return the storage of a directory. Raises OSError if the directory cannot be opened."""
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return Storage(_kind_of_mount(fd))
        finally:
            os.close(fd)

    @property
    def is_shared(self) -> bool:
        """Whether other machines or a program of user space decide what a sync, a rename or a lock does."""
        return self.kind in _SHARED or self.kind.split(".")[0] in _IN_USER_SPACE

    @property
    def is_overlay(self) -> bool:
        """Whether files of another directory show through, which may be changed there unnoticed."""
        return self.kind in _OVERLAYS


def covered_names(fd: int) -> frozenset[str]:
    """Return the names in an open directory over which something is mounted: they can be neither renamed nor deleted.

    The mount may be of the same file system. Empty without `/proc`.
    """
    return frozenset(_covered_names(fd))


def _covered_names(fd: int) -> Iterator[str]:
    mount = _mount_of(fd)
    for each in _mounts():
        if each.parent == mount:
            with suppress(OSError):  # It lies outside of the root directory of this process, for example.
                if os.path.samestat(each.point.parent.stat(), os.fstat(fd)):
                    yield each.point.name


def _kind_of_mount(fd: int) -> str:
    mount = _mount_of(fd)
    return next((each.kind for each in _mounts() if each.number == mount), "")


class _Mount(NamedTuple):
    """A mount: its number, that of the mount that it lies on, where it lies, and the kind of its file system."""

    number: int
    parent: int
    point: Path
    kind: str


def _mounts() -> Iterator[_Mount]:
    with suppress(OSError, IndexError, ValueError):
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            fields, _, rest = line.partition(b" - ")
            number, parent, _, _, point = fields.split()[:5]
            yield _Mount(int(number), int(parent), Path(os.fsdecode(_unescaped(point))), os.fsdecode(rest.split()[0]))


def _unescaped(point: bytes) -> bytes:
    """Return a path of `mountinfo`, which has spaces and other characters as `\\040`."""
    return re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), point)


def _mount_of(fd: int) -> int | None:
    with suppress(OSError, StopIteration, IndexError, ValueError):
        about = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
        return int(next(line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:")))
    return None


def nearest_existing(path: Path) -> Path:
    """Return the path, or the nearest one above it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())
