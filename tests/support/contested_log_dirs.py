"""Log directories that lose their lock files, are moved and replaced while something works in them.

A third directory, `away`, is locked by another holder all the time. What is done is undone by `mend`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from kcompact.log.lock import LOCK_NAME, _lock
from tests.support.command_line import digest
from tests.support.known_log import KnownLog

DEEDS = ("lose lock", "steal lock", "move partition", "move back", "move log dir", "replace log dir")
_REPLACED = "replaced"


class ContestedLogDirs:
    """Two log directories below `root` with three logs. `replaced` are directories that took the place of one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log_dirs = [root / "a", root / "b"]
        names = (("orders-0", 0), ("prices-0", 0), ("stock-0", 1))
        self.logs = [KnownLog.written(self.log_dirs[number], name) for name, number in names]
        self.replaced: dict[Path, dict[str, str]] = {}
        self._away = root / "away"
        self._away.mkdir()
        self._others = ExitStack()
        self._others_fds: set[int] = set()
        self._lock_by_other(self._away)

    def close(self) -> None:
        """Release the locks of the other holder, and remove everything."""
        self._others.close()
        shutil.rmtree(self.root)

    def is_original(self, log_dir: Path) -> bool:
        return log_dir.is_dir() and not (log_dir / _REPLACED).exists()

    def has(self, log: KnownLog) -> bool:
        """Return whether a log is in its place."""
        return self.is_original(log.log_dir) and log.directory.is_dir()

    def do(self, deed: str, log: KnownLog) -> None:
        """Do something to a log or its directory, if that is possible."""
        log_dir, gone, moved = log.log_dir, log.log_dir.with_suffix(".gone"), self._away / log.name
        if deed in ("lose lock", "steal lock") and self.is_original(log_dir):
            (log_dir / LOCK_NAME).unlink(missing_ok=True)
        if deed == "steal lock" and self.is_original(log_dir):
            self._lock_by_other(log_dir)
        if deed == "move partition" and self.has(log):
            log.directory.rename(moved)
        if deed == "move back" and self.is_original(log_dir) and moved.is_dir():
            moved.rename(log.directory)
        if deed in ("move log dir", "replace log dir") and self.is_original(log_dir):
            log_dir.rename(gone)
        if deed == "replace log dir" and not log_dir.is_dir():
            for each in self.logs:
                if each.log_dir == log_dir:
                    KnownLog.written(self.root / "new", each.name)
            (self.root / "new" / _REPLACED).touch()
            (self.root / "new").rename(log_dir)
            self.replaced[log_dir] = digest(log_dir)

    def mend(self) -> None:
        """Put everything back in its place, and let the other holder release its locks."""
        self.replaced = {}
        for gone in self.root.glob("*.gone"):
            shutil.rmtree(gone.with_suffix(""), ignore_errors=True)
            gone.rename(gone.with_suffix(""))
        self._others.close()
        self._others_fds = set()
        self._lock_by_other(self._away)
        for log in self.logs:
            self.do("move back", log)

    def open_files(self, kind: str = "") -> list[str]:
        """Return the files below `root` that this process has open, without those of the other holder.

        `kind` is a word of their `fdinfo`.
        """
        found = []
        for fd in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                path = str(fd.readlink())
                is_own = path.startswith(f"{self.root}/") and int(fd.name) not in self._others_fds
                if is_own and kind in Path("/proc/self/fdinfo", fd.name).read_text():
                    found.append(path.removeprefix(f"{self.root}/"))
        return found

    def locked(self) -> list[str]:
        """Return the log directories whose locks this process holds, by the names that they had at first."""
        return sorted(path.partition("/")[0].removesuffix(".gone") for path in self.open_files("OFDLCK"))

    def _lock_by_other(self, log_dir: Path) -> None:
        fd = os.open(log_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        self._others.callback(os.close, fd)
        self._others_fds.add(fd)
        _lock(log_dir / LOCK_NAME, fd)
