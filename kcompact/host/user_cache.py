"""The user's cache directory. Machine code from it is run, so only this user may have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs

_MODE = 0o700


def cache_directory() -> Path | None:
    """Return this user's private directory, made if need be; None if there cannot be one. Raises nothing.

    It is `kcompact` in `$XDG_CACHE_HOME`, or in `~/.cache` where that is not set or not absolute.
    """
    try:
        base = platformdirs.user_cache_path()
        if not base.is_absolute():
            base = Path("~/.cache").expanduser()
        directory = base.resolve() / "kcompact"
        _make(directory)
        is_private = _is_private(directory)
    except (OSError, RuntimeError):
        return None
    return directory if is_private and os.access(directory, os.W_OK) else None


def _make(directory: Path) -> None:
    """Make a directory and those above it that are missing, each for this user alone, whatever the umask."""
    if directory.is_dir():
        return
    _make(directory.parent)
    try:
        directory.mkdir(mode=_MODE)
    except FileExistsError:
        return  # Another process was quicker; or it is no directory, which `_is_private` finds.
    if stat.S_IMODE(os.lstat(directory).st_mode) & 0o777 != _MODE:
        directory.chmod(_MODE)  # The umask has taken bits away.


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
