"""A tar of a tree that depends on the names and the bytes of its files, and on which of them can be executed."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path
from typing import IO, Any


def write(tree: Path, file: IO[bytes], *, prefix: str, mtime: int) -> None:
    """Write the files below `tree`, sorted, each under `prefix`. They belong to root."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in [tree, *sorted(tree.rglob("*"))] if prefix else sorted(tree.rglob("*")):
            name = (Path(prefix) / path.relative_to(tree)).as_posix()
            entry = tar.gettarinfo(path, name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = mtime
            entry.mode = _mode(entry)
            if entry.islnk():  # Whether two names have one inode is no property of a tree.
                entry.type, entry.size, entry.linkname = tarfile.REGTYPE, path.stat().st_size, ""
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


def unpack(tar: tarfile.TarFile, target: Path) -> None:
    """Unpack a tar that was made here. Python 3.11.3, and older ones, cannot filter what it has."""
    filters: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    tar.extractall(target, **filters)


def _mode(entry: tarfile.TarInfo) -> int:
    """Return the mode that does not depend on the umask. A directory for everybody stays one."""
    if entry.issym():
        return 0o777
    if entry.isdir():
        return 0o1777 if entry.mode & stat.S_ISVTX else 0o755
    return 0o755 if entry.mode & stat.S_IXUSR else 0o644
