"""The kernels in tests: reading or not, and as a process meets them that has loaded nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from kcompact import kernels
from kcompact.kernels import machine_code


def switched(*, compiled: bool) -> AbstractContextManager[None]:
    """Let the kernels read in a block, or the definitions."""
    return nullcontext() if compiled else kernels.confirming_nothing()


def forget() -> None:
    """Let this process load the machine code again."""
    machine_code.loaded.cache_clear()
    machine_code._library.cache_clear()


@contextmanager
def without_machine_code(directory: Path) -> Iterator[None]:
    """Let this process look for its machine code in a new, empty directory."""
    directory.mkdir()
    forget()
    try:
        with mock.patch.object(machine_code, "DIRECTORY", directory):
            yield
    finally:
        forget()
