"""The user's cache directory: what is kept there is run, so nobody else may have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_directory() -> Path | None:
    """Return this user's private directory, made if need be; None where there cannot be one. Raises nothing."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if given.startswith("/") else Path("~/.cache").expanduser()
        directory = base.resolve() / "kcompact"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return directory if _is_private(directory) and os.access(directory, os.W_OK) else None


def _is_private(directory: Path) -> bool:
    """Return whether nobody but this user and root could put something in this directory, or another in its place."""
    own = os.lstat(directory)
    if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.geteuid() or stat.S_IMODE(own.st_mode) & 0o077:
        return False
    for above in directory.parents:
        status = os.lstat(above)
        is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or is_open:
            return False
    return True
