"""The files of the C library of a Debian, which every Linux host with glibc has."""

from __future__ import annotations

import shutil
from pathlib import Path

from release.owners import named_by

LOADER = Path("lib64/ld-linux-x86-64.so.2")
LIBRARIES = (
    "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1",
    # Names of hosts are looked up with these. Newer versions have the first in libc.so.6.
    "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2",
)  # fmt: skip
_DIRECTORY = Path("lib/x86_64-linux-gnu")
_COPYRIGHT = Path("usr/share/doc/libc6/copyright")


def copy(target: Path, *, system: Path = Path("/")) -> None:
    """Copy the loader, the libraries and their licences to the same places below `target`."""
    files = [LOADER, *(_DIRECTORY / name for name in LIBRARIES if (system / _DIRECTORY / name).exists())]
    files += [_COPYRIGHT, *(each.relative_to("/") for each in named_by(system / _COPYRIGHT))]
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_below(system, file), target / file)


def _below(system: Path, file: Path) -> Path:
    """Return a file of a system. Its links to absolute paths mean paths below the system."""
    path = system / file
    while path.is_symlink():
        path = path.parent / path.readlink() if not path.readlink().is_absolute() else system / str(path.readlink())[1:]
    return path
