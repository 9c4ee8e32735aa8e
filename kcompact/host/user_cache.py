"""The user's cache directory. It holds machine code that is executed, so only this user may be able to write to it."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import platformdirs

_MODE = 0o700


def cache_directory() -> Path | None:
    """Return this user's private directory, created if it is missing; None if there is no private one. Raises nothing.

    The directory is `kcompact` in `$XDG_CACHE_HOME`, or in `~/.cache` if the variable is not an absolute path. If that
    belongs to another user, as with `sudo` without `-H`, it is `~/.cache` of this user's own home directory.
    """
    try:
        directory = _base().resolve() / "kcompact"
        if _belongs_to_another(directory):
            directory = Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve() / ".cache" / "kcompact"
            if _belongs_to_another(directory):
                return None
        _make(directory)
        is_private = _is_private(directory)
    except (OSError, RuntimeError, KeyError):
        return None
    return directory if is_private and os.access(directory, os.W_OK) else None


def _base() -> Path:
    base = platformdirs.user_cache_path()
    return base if base.is_absolute() else Path("~/.cache").expanduser()


def _belongs_to_another(directory: Path) -> bool:
    """Return whether a directory, or any above it, exists and belongs to neither root nor this user.

    Root must not make directories in the home directory of a user, who could not remove them.
    """
    existing = [each for each in (directory, *directory.parents) if each.exists()]
    return any(os.lstat(each).st_uid not in (0, os.geteuid()) for each in existing)


def _make(directory: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700, independent of the umask."""
    if directory.is_dir():
        return
    _make(directory.parent)
    try:
        directory.mkdir(mode=_MODE)
    except FileExistsError:
        return  # Another process created it, or it is not a directory; `_is_private` checks this.
    if stat.S_IMODE(os.lstat(directory).st_mode) & 0o777 != _MODE:
        directory.chmod(_MODE)  # The umask has removed bits.


def _is_private(directory: Path) -> bool:
    """Return whether only this user and root can write to this directory or replace it."""
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        return False
    for parent in directory.parents:
        status = os.lstat(parent)
        is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or is_open:
            return False
    return True
