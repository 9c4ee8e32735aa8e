"""File descriptors that are closed at the end of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_after(fd: int) -> Iterator[int]:
    """Yield a descriptor, and close it at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)
