"""The Pythons of this machine on which the packages are tried."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import metadata

from release import debian_11


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python: the command that starts it, and its version with two numbers. `prefix` changes to another root."""

    prefix: tuple[str, ...] = ()
    python: str
    version: str

    def run(self, *command: str) -> None:
        """Run a command where this Python is. Raises CalledProcessError."""
        subprocess.run([*self.prefix, *command], cwd=debian_11.ROOT, check=True)


def distinct() -> list[Interpreter]:
    """Return this Python, that of the archive, and the newest of this machine; of each version the first."""
    found: dict[str, Interpreter] = {}
    for each in _candidates():
        found.setdefault(each.version, each)
    return list(found.values())


def builds_kernels(interpreter: Interpreter) -> bool:
    """Return whether the compiler of the kernels supports a Python. Its version is pinned, so a new Python may lack it.

    Its `Requires-Python` has no upper bound; its classifiers name all that it supports.
    """
    classifiers = metadata("numba").get_all("Classifier", [])
    return f"Programming Language :: Python :: {interpreter.version}" in classifiers


def _candidates() -> Iterator[Interpreter]:
    yield interpreter(sys.executable)
    yield interpreter("python", debian_11.command())
    newest = ["sh", str(debian_11.ROOT / ".ci" / "newest-python")]
    yield interpreter(subprocess.run(newest, check=True, capture_output=True, text=True).stdout.strip())


def interpreter(python: str, prefix: Sequence[str] = ()) -> Interpreter:
    """Return the Python that a command starts. Raises CalledProcessError, OSError."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [*prefix, python, "-c", program], cwd=debian_11.ROOT, check=True, capture_output=True, text=True
    )
    return Interpreter(prefix=tuple(prefix), python=python, version=done.stdout.strip())
