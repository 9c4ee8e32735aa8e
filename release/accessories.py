"""What people get beside the program: README.txt, the licences, man pages, completions for three shells."""

from __future__ import annotations

import shutil
from pathlib import Path

from release import glibc, licences
from release.frozen import Frozen

_LICENCE = Path(__file__).parents[1] / "LICENSE"

_README = """\
kcompact {version}, with its own Python, for Linux on x86-64-v2 (SSE 4.2 and POPCNT) with glibc {glibc} or newer.

    ./kcompact --version
    ./kcompact doctor LOG_DIR
    ./kcompact --help

It needs nothing else of the host, writes nothing to this directory, and works from any place: link the program into a
directory of PATH, or call it by its path. To remove it, delete this directory.

"Permission denied" from the shell, exit code 126: this file system is mounted noexec, or you may not execute the file.
`findmnt -no OPTIONS -T .` shows the options of the mount. Unpack the archive on another one.

share/      man pages (man -M share/man kcompact) and completions for bash, zsh and fish: copy them to /usr/local/share
LICENSE     Apache License 2.0; licenses/ has those of Python and of all that is in _internal/
"""


def add(frozen: Frozen, *, version: str) -> None:
    """Put them beside the program."""
    tree = frozen.tree
    needed = glibc.text_of(max(map(glibc.needed_by, glibc.elf_files(tree))))
    (tree / "README.txt").write_text(_README.format(version=version, glibc=needed), encoding="utf-8")
    shutil.copyfile(_LICENCE, tree / "LICENSE")
    licences.copy(frozen.sources, tree / "licenses", packages=frozen.packages, python=frozen.python)
    shutil.copytree(frozen.share, tree / "share")
