"""What people get beside the program: README.txt, the licences, the bill of materials, man pages, completions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from kcompact import __version__
from release import glibc, sbom
from release.frozen import Frozen
from release.owners import Owner

SBOM = "kcompact.cdx.json"
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
{sbom}  what is in _internal/, in which version (CycloneDX)
"""


def add(frozen: Frozen, *, mtime: int) -> None:
    """Put them beside the program."""
    tree = frozen.tree
    needed = glibc.text_of(max(map(glibc.needed_by, glibc.elf_files(tree))))
    (tree / "README.txt").write_text(_README.format(version=__version__, glibc=needed, sbom=SBOM), encoding="utf-8")
    shutil.copyfile(_LICENCE, tree / "LICENSE")
    copy_licences(frozen.owners, tree / "licenses")
    sbom.write(frozen.owners, tree / SBOM, mtime=mtime)
    shutil.copytree(frozen.share, tree / "share")


def copy_licences(owners: Iterable[Owner], target: Path) -> None:
    """Copy the licence texts of each owner into a directory of its own."""
    for owner in owners:
        for number, text in enumerate(owner.texts):
            (target / owner.name).mkdir(parents=True, exist_ok=True)
            # Several of them may have one name.
            name = f"{number:02}-{text.name}" if len(owner.texts) > 1 else text.name
            shutil.copyfile(text, target / owner.name / name)
