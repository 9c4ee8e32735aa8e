"""The free space of a file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """The free space of a file system, and the unit in which it gives space to files, in bytes."""

    free_bytes: int
    block_bytes: int

    @staticmethod
    def of(path: Path) -> Disk:
        """Return the space for a path. It need not exist yet."""
        status = os.statvfs(nearest_existing(path))
        return Disk(status.f_bavail * status.f_frsize, status.f_frsize)

    def without(self, reserved_bytes: int) -> Disk:
        """Return the disk with less free space."""
        return self._replace(free_bytes=max(0, self.free_bytes - reserved_bytes))


def nearest_existing(path: Path) -> Path:
    """Return the path, or the nearest one above it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())
