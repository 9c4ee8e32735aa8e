"""A disk that is almost full, simulated in this process: its free space, and the writes that it refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BLOCK_BYTES = 512


class SmallDisk:
    """Holds everything below `root`. Writes that go beyond `free_bytes` more than now raise ENOSPC, and are counted.

    Only data counts, in whole blocks, and one block for each directory.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.refused = 0
        self._capacity_bytes = 0
        for name in ("write", "writev", "copy_file_range", "mkdir"):
            monkeypatch.setattr(os, name, self._limited(getattr(os, name)))
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def leave(self, free_bytes: int) -> None:
        """Make the disk larger than what it holds by this much."""
        self._capacity_bytes = self.used_bytes() + free_bytes

    def used_bytes(self) -> int:
        blocks = 0
        for path in self.root.rglob("*"):
            blocks += -(-path.lstat().st_size // BLOCK_BYTES) if path.is_file() else 1
        return blocks * BLOCK_BYTES

    def _limited(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*arguments: Any, **options: Any) -> Any:
            done = call(*arguments, **options)
            if self.used_bytes() > self._capacity_bytes:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return done

        return limited

    def _statvfs(self, path: object) -> SimpleNamespace:
        free = max(0, self._capacity_bytes - self.used_bytes()) // BLOCK_BYTES
        return SimpleNamespace(f_bavail=free, f_frsize=BLOCK_BYTES, f_flag=0)
