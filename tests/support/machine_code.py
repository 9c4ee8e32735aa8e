"""The kernels in tests: turned on or off, and as a process meets them that has loaded nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from kcompact.kernels import machine_code
from kcompact.kernels.machine_code import VARIABLE


def switch(*, compiled: bool) -> str:
    """Return the value of KCOMPACT_KERNELS with which the kernels do the work, or the definitions."""
    return "auto" if compiled else "off"


def switched(*, compiled: bool) -> mock._patch_dict:
    """Let the kernels do the work, or the definitions, in a block."""
    return mock.patch.dict(os.environ, {VARIABLE: switch(compiled=compiled)})


def forget() -> None:
    """Let this process load the machine code again."""
    machine_code._functions.cache_clear()
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
