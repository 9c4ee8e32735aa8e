"""File systems: their free space, their kind, which decides what a rename and a lock are worth, and mounts over files.

All mounts are in `/proc/self/mountinfo`, by their numbers; the mount of a descriptor is in its `fdinfo`. The type
number of `statfs` says less than the kind there: all file systems of user space have the same one.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import struct
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kcompact.host.descriptors import closed_after

_SHARED = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p ceph afs lustre gpfs beegfs orangefs pvfs2 ocfs2 gfs2 virtiofs".split()
)
"""Kinds whose files other machines, or the host of this virtual machine, can change at the same time."""
_IN_USER_SPACE = ("fuse", "fuseblk")
_OVERLAYS = frozenset({"overlay", "aufs", "unionfs"})
_UNUSABLE_BYTES = 1 << 20
_WITH_SILENT_SNAPSHOTS = frozenset({"zfs", "bcachefs", "nilfs2"})
"""Kinds whose snapshots may hold what is deleted, and which do not say so of an extent."""


class Storage(NamedTuple):
    """The kind of a file system, empty if it is unknown, with what follows from it."""

    kind: str

    @staticmethod
    def of(directory: Path) -> Storage:
        """Return the storage of a directory, of an unknown kind if the directory cannot be opened."""
        with suppress(OSError):
            return Storage(_kind_of(directory, directory.stat()))
        return Storage("")

    @property
    def is_shared(self) -> bool:
        """Whether other machines or a program of user space decide what a sync, a rename or a lock does."""
        return self.kind in _SHARED or self.kind.split(".")[0] in _IN_USER_SPACE

    @property
    def is_overlay(self) -> bool:
        """Whether files of another directory show through, which may be changed there unnoticed."""
        return self.kind in _OVERLAYS

    @property
    def counts_only_data(self) -> bool:
        """Whether directories and what describes the files take none of the space."""
        return self.kind == "tmpfs"

    @property
    def unusable_bytes(self) -> int:
        """How much of what is free may not be usable: XFS keeps some for itself, and an overlay may lie on XFS."""
        return _UNUSABLE_BYTES if self.kind == "xfs" or self.is_overlay else 0

    def freed_bytes(self, fd: int) -> int:
        """Return the space that deleting an open file frees, 0 if that is unknown. Raises OSError.

        A file with another hard link frees none, nor does an extent that a snapshot or a copy of the file shares, nor a
        compressed one: its space is unknown.
        """
        status = os.fstat(fd)
        if status.st_nlink != 1 or self.is_overlay or self.kind in _WITH_SILENT_SNAPSHOTS:
            return 0
        return max(0, status.st_blocks * 512 - _shared_bytes(fd))


class Disk(NamedTuple):
    """The free space of a file system, and the unit in which it gives space to files, in bytes."""

    free_bytes: int
    block_bytes: int
    storage: Storage = Storage("")

    @staticmethod
    def of(path: Path) -> Disk:
        """Return the space for a path. It need not exist yet."""
        try:
            place = path.stat()
        except OSError:
            path = nearest_existing(path)
            place = path.stat()
        status = os.statvfs(path)
        storage = Storage(_kind_of(path, place) if stat.S_ISDIR(place.st_mode) else "")
        # A file system of user space may say nothing about its blocks.
        return Disk(status.f_bavail * status.f_frsize, max(1, status.f_frsize), storage)

    def file_bytes(self, size_bytes: int) -> int:
        """Return the space for the content of a file: whole blocks."""
        return -(-size_bytes // self.block_bytes) * self.block_bytes

    def without(self, reserved_bytes: int) -> Disk:
        """Return the disk with less free space."""
        return self._replace(free_bytes=max(0, self.free_bytes - reserved_bytes))


def settle(path: Path) -> bool:
    """Have btrfs count what was deleted as free, which it does with a commit; return whether it is btrfs.

    Rule: BTRFS_IOC_SYNC.
    """
    with suppress(OSError):
        path = nearest_existing(path)
        if _kind_of(path, path.stat()) == "btrfs":
            with closed_after(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
                fcntl.ioctl(fd, _BTRFS_SYNC)
            return True
    return False


_BTRFS_SYNC = 0x9408
_FIEMAP = 0xC020660B
_FIEMAP_HEADER = struct.Struct("=QQLLLL")
_FIEMAP_EXTENT = struct.Struct("=QQQQQLLLL")
_FIEMAP_LAST, _FIEMAP_ENCODED, _FIEMAP_SHARED = 0x1, 0x8, 0x2000
_EXTENTS_AT_ONCE = 64


def _shared_bytes(fd: int) -> int:
    """Return how much of a file lies in extents that something else has too, or that take less space than they hold.

    Rule: `struct fiemap` of Linux.

    Zero where the file system has no map of extents: those with reflinks or snapshots have one, unless they are named
    above.
    """
    shared_bytes = start = 0
    buffer = bytearray(_FIEMAP_HEADER.size + _EXTENTS_AT_ONCE * _FIEMAP_EXTENT.size)
    while True:
        _FIEMAP_HEADER.pack_into(buffer, 0, start, (1 << 64) - 1 - start, 0, 0, _EXTENTS_AT_ONCE, 0)
        try:
            fcntl.ioctl(fd, _FIEMAP, buffer)
        except OSError:
            return sys.maxsize if start else 0  # A map that breaks off says nothing about the rest.
        count = _FIEMAP_HEADER.unpack_from(buffer)[3]
        for number in range(count):
            position = _FIEMAP_HEADER.size + number * _FIEMAP_EXTENT.size
            logical, _, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(buffer, position)
            start = logical + length
            shared_bytes += length if flags & (_FIEMAP_SHARED | _FIEMAP_ENCODED) else 0
            if flags & _FIEMAP_LAST:
                return shared_bytes
        if not count:
            return shared_bytes


def covered_names(fd: int, names: Collection[str]) -> frozenset[str]:
    """Return which names in an open directory something is mounted over: they can be neither renamed nor deleted.

    The mount may be of the same file system. Empty without `/proc`.
    """
    return frozenset(_covered_names(fd, names))


def _covered_names(fd: int, names: Collection[str]) -> Iterator[str]:
    likely = [each for each in _MOUNT_TABLE.mounts() if each.point.name in names]
    mount = _mount_of(fd) if likely else None
    for each in likely:
        if each.parent == mount:
            with suppress(OSError):  # It lies outside of the root directory of this process, for example.
                if os.path.samestat(each.point.parent.stat(), os.fstat(fd)):
                    yield each.point.name


def _kind_of(directory: Path, status: os.stat_result) -> str:
    """Return the kind of the file system of a directory, empty if it is unknown. Raises OSError."""
    mounts = _MOUNT_TABLE.mounts()
    kinds = {each.kind for each in mounts if each.device == status.st_dev}
    if len(kinds) == 1:
        return kinds.pop()
    # The device of a file system can be another one than that of its mount, for example of btrfs.
    with closed_after(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        mount = _mount_of(fd)
    return next((each.kind for each in mounts if each.number == mount), "")


class _Mount(NamedTuple):
    """A mount: its number, that of the mount that it lies on, where it lies, the device and kind of its file system."""

    number: int
    parent: int
    device: int
    point: Path
    kind: str


class _MountTable:
    """The mounts of this process, read again only when the kernel says that they have changed."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._mounts: tuple[_Mount, ...] = ()
        self._reading = threading.Lock()

    def mounts(self) -> tuple[_Mount, ...]:
        """Return all mounts, none without `/proc`."""
        with self._reading, suppress(OSError):
            if self._fd is None:
                self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
                self._changes = select.poll()
                self._changes.register(self._fd, select.POLLERR | select.POLLPRI)
                self._read(self._fd)
            elif self._changes.poll(0):
                self._read(self._fd)
        return self._mounts

    def _read(self, fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        self._mounts = tuple(_parsed_mounts(b"".join(iter(lambda: os.read(fd, 1 << 16), b""))))


_MOUNT_TABLE = _MountTable()


def _parsed_mounts(content: bytes) -> Iterator[_Mount]:
    with suppress(IndexError, ValueError):
        for line in content.splitlines():
            fields, _, rest = line.partition(b" - ")
            number, parent, device, _, point = fields.split()[:5]
            major, minor = device.split(b":")
            where = Path(os.fsdecode(_unescaped(point)))
            kind = os.fsdecode(rest.split()[0])
            yield _Mount(int(number), int(parent), os.makedev(int(major), int(minor)), where, kind)


def _unescaped(point: bytes) -> bytes:
    """Return a path of `mountinfo`, which has spaces and other characters as `\\040`."""
    return re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), point)


def _mount_of(fd: int) -> int | None:
    with suppress(OSError, StopIteration, IndexError, ValueError):
        about = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
        return int(next(line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:")))
    return None


def device_of(path: Path) -> int:
    """Return the file system of a path, which need not exist yet."""
    try:
        return path.stat().st_dev
    except OSError:
        return nearest_existing(path).stat().st_dev


def nearest_existing(path: Path) -> Path:
    """Return the path, or the nearest one above it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())
