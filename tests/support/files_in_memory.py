"""A directory in memory: tests make and remove thousands of small files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1 << 30
"""The free memory below which the files are where temporary files are."""
_PREFIX = "kcompact-tests-"


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Yield a new directory in memory, or on disk if there is little memory. Those of tests that were killed go."""
    is_enough = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES
    if is_enough:
        for left in MEMORY.glob(f"{_PREFIX}*"):
            if not Path("/proc", left.name.split("-")[2]).exists():
                shutil.rmtree(left, ignore_errors=True)
    prefix = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=MEMORY if is_enough else None, ignore_cleanup_errors=True
    ) as path:
        yield Path(path)
