"""Other processes that have a file open, in the ways that programs have files open."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOLDS = {
    "read": "open(sys.argv[1], 'rb')",
    "write": "open(sys.argv[1], 'r+b')",
    "append": "open(sys.argv[1], 'ab')",
    "map": "mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)",
}
"""Expressions of Python whose value has the file open. A mapping of Python keeps a descriptor, one of Java does not."""

PROGRAM = """
import mmap, os, sys
held = {}
if {!r}:
    directory = "/proc/self/fd"
    for name in os.listdir(directory):  # A broker closes the descriptor of an index that it has mapped.
        if os.path.realpath(os.path.join(directory, name)) == os.path.realpath(sys.argv[1]):
            os.close(int(name))
print("held", flush=True)
sys.stdin.read()
os._exit(0)
"""


@contextlib.contextmanager
def held(file: Path, how: str) -> Iterator[int]:
    """Have another process hold a file during the block, in one of the ways of HOLDS; yield its id."""
    program = PROGRAM.format(HOLDS[how], how.startswith("map"))
    with subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
            process.wait()
