"""Tasks that misbehave in a worker of Spark. A test has the driver send one of them instead of a `WholeTask`.

Only the task of the partition MISBEHAVES does so, when its files are staged. A worker leaves notes beside the log
directory.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from kcompact.engine.spark.tasks import WholeTask

MISBEHAVES = "small-3"
NOTES = "notes"


def _notes(task: WholeTask) -> Path:
    return Path(task.argument.plan.log.directory).parent.with_name(NOTES)


def _note(task: WholeTask, text: str) -> None:
    with _notes(task).open("a") as notes:
        notes.write(text + "\n")


def _misbehaves(task: WholeTask) -> bool:
    return Path(task.argument.plan.log.directory).name == MISBEHAVES


class DiesAlways(WholeTask):
    """Kills its worker, each time."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self):
            _note(self, "dies")
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class DiesOnce(WholeTask):
    """Kills its worker the first time."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self) and not _notes(self).exists():
            _note(self, "dies")
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class TakesLong(WholeTask):
    """Does not end by itself."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self):
            _note(self, "waits")
            time.sleep(600)
        return result


class FillsTheDisk(WholeTask):
    """Has no space left when it writes its second file."""

    def run(self) -> Any:
        if not _misbehaves(self):
            return super().run()
        really, made = os.open, []

        def full(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            made.append(path) if flags & os.O_CREAT else None
            if len(made) > 1:
                raise OSError(28, "No space left on device", path)
            return really(path, flags, *rest, **more)

        with mock.patch.object(os, "open", full):
            return super().run()


class NotesScratch(WholeTask):
    """Notes the directory of each file that it makes for keys, beside the log directory."""

    def run(self) -> Any:
        really = tempfile.TemporaryFile
        notes = Path(self.argument[0].directory).parent.with_name(NOTES)

        def noting(*, prefix: str, dir: str | None) -> Any:
            with notes.open("a") as file:
                file.write(f"{dir}\n")
            return really(prefix=prefix, dir=dir)

        with mock.patch.object(tempfile, "TemporaryFile", noting):
            return super().run()


class Lies(WholeTask):
    """Says that its result is that of other work."""

    def __reduce__(self) -> tuple[Any, ...]:
        token = self.token[::-1] if _misbehaves(self) else self.token
        return WholeTask, (token, *self[1:])
