"""This user's own directories: for machine code that is executed, for the journal of what was changed; temporary files.

Only this user may be able to write to the first two. Nothing is written through a directory or a link of another user,
who could lead root to any place. No home directory is made. Nothing is made in a log directory: a broker would not
start there.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kcompact.errors import RefusedError

_MODE = 0o700
_MOST_LINKS = 40
"""As many as the kernel follows."""
_OF_A_LOG_DIRECTORY = ("meta.properties", "recovery-point-offset-checkpoint")
"""Files that only a broker writes."""


def cache_directory() -> Path | None:
    """Return this user's private directory for what can be made again; None if there is none. Raises nothing.

    The directory is `kcompact` in `$XDG_CACHE_HOME`, or in `~/.cache` if the variable is not an absolute path. It is
    made if it is missing. If the way to it leads through a directory of another user, as with `sudo` without `-H`, it
    is in `~/.cache` of this user's own home directory.
    """
    import platformdirs  # The completion of a command line needs none of it.

    return _directory(platformdirs.user_cache_path, ".cache")


def state_directory() -> Path | None:
    """Return this user's private directory for what must stay; the rest as `cache_directory`.

    The directory is `kcompact` in `$XDG_STATE_HOME`, or in `~/.local/state`.
    """
    import platformdirs

    return _directory(platformdirs.user_state_path, ".local/state")


def temporary_directory() -> str:
    """Return the directory for temporary files: that of TMPDIR, or of the system. Other users may write to it too.

    Raises RefusedError if there is none that can be written to, as in a container with a read-only root.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as problem:
        hint = "Set TMPDIR to a directory that can be written to."
        raise RefusedError(path="TMPDIR", problem=problem.strerror or str(problem), hint=hint) from None


class _OfAnotherUserError(Exception):
    """Another user owns a part of the way."""


def _directory(base_of_user: Callable[[], Path], below_home: str) -> Path | None:
    """Return `kcompact` in the base, which may be this place below the home directory; None if there is none.

    A user whom no list of users has can have no home directory. Then only a variable can name the base.
    """
    try:
        base = base_of_user()
        home = _home()
        try:
            if home is not None and (not base.is_absolute() or base == home / below_home):
                return _made(home, below_home)
            return _made(base.parent, base.name) if base.is_absolute() else None
        except _OfAnotherUserError:
            return _made(Path(pwd.getpwuid(os.geteuid()).pw_dir), below_home)
    except (OSError, RuntimeError, KeyError, _OfAnotherUserError):
        return None


def _home() -> Path | None:
    try:
        return Path("~").expanduser()
    except RuntimeError:
        return None


def _made(top: Path, below: str) -> Path | None:
    """Return `kcompact` in a place below a directory that exists, and make what is missing; None if it is not private.

    Raises OSError, _OfAnotherUserError.
    """
    path = _resolved(top)
    for name in below.split("/"):
        path = _resolved(_existing(path, name))
    directory = _existing(path, "kcompact")
    return directory if _is_private(directory) and os.access(directory, os.W_OK) else None


def _existing(parent: Path, name: str) -> Path:
    """Return a directory in an existing one, made if it is missing. Raises OSError, also in a log directory."""
    directory = parent / name
    if not os.path.lexists(directory):
        if any((parent / other).exists() for other in _OF_A_LOG_DIRECTORY):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(directory))
        with suppress(FileExistsError):  # Another process of this user was faster.
            directory.mkdir(mode=_MODE)
            directory.chmod(_MODE)  # The umask may have removed bits.
    return directory


def _resolved(path: Path) -> Path:
    """Return the path without links. Raises _OfAnotherUserError if a part of the way is another user's; OSError."""
    resolved, links = Path("/"), 0
    left = [*reversed(path.absolute().parts[1:])]
    while left:
        name = left.pop()
        status = os.lstat(resolved / name)
        if status.st_uid not in (0, os.geteuid()):
            raise _OfAnotherUserError
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = (resolved / name).readlink()
            left += reversed(target.parts[target.is_absolute() :])
            resolved = Path("/") if target.is_absolute() else resolved
        else:
            resolved = resolved.parent if name == ".." else resolved / name
    return resolved


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
