"""The machine code of the kernels in tests: an object file, a compiler that takes no time, a process that is new."""

from __future__ import annotations

from functools import cache

import numpy as np

from kcompact.host.user_directories import cache_directory
from kcompact.kernels import load
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.target import cache_key


def file_name() -> str:
    """Return the name of the file that the cache keeps the machine code in."""
    return f"kernels-{cache_key()}.o"


@cache
def object_file() -> bytes:
    """Return the object file that this process runs, or one like it. Ask before the cache is moved elsewhere."""
    directory = cache_directory()
    found = None if directory is None else load.read_cached(directory / file_name())
    return load.compiled_elsewhere() if found is None else found


class Compiler:
    """Stands in for `load.compiled_elsewhere`: returns what that returned before, and counts its calls."""

    def __init__(self, code: bytes) -> None:
        self.code, self.calls = code, 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.code


def forget() -> None:
    """Let this process load the kernels again. The caller has `load._process` put back afterwards."""
    load._process = load._Process()


def works() -> bool:
    """Load the kernels as a new process does, and call one."""
    forget()
    kernels = load.loaded()
    assert kernels.keys() == KERNELS.keys()
    return int(kernels["crc32c"](np.frombuffer(bytearray(b"123456789"), np.uint8), 0, 9)) == 0xE3069283
