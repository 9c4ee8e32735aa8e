"""A directory in memory, for tests that make and remove thousands of small files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Yield a new directory: in memory if the system has a file system there, else where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="kcompact-", dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)
