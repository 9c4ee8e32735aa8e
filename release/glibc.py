"""The oldest glibc that a tree of programs and libraries runs with, by the versions of the symbols that they need."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

Version = tuple[int, ...]

_NEEDED = re.compile(r"Name: GLIBC_([\d.]+|ABI_DT_RELR) ")
_SINCE = {"ABI_DT_RELR": "2.36"}
"""Not the version of a symbol: a way to relocate, which the loader of this version knows."""


def elf_files(tree: Path) -> Iterator[Path]:
    """Yield the programs and libraries of a tree, sorted."""
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def needed_by(file: Path) -> Version:
    """Return the version that a file needs, (0,) if any will do."""
    command = ["readelf", "--version-info", "--wide", str(file)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
    return max((version_of(_SINCE.get(name, name)) for name in _NEEDED.findall(listed)), default=(0,))


def version_of(text: str) -> Version:
    """Return `2.31` as numbers."""
    return tuple(map(int, text.split(".")))


def text_of(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))
