"""Small stages that misbehave in a worker of Spark. A test has the driver send one of them instead of a `SmallStage`.

Only the writing of the partition MISBEHAVES does so, when its files are staged. A worker leaves notes beside the log
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

from pyspark import TaskContext

from kcompact.engine.spark.tasks import SmallStage

MISBEHAVES = "small-3"
NOTES = "notes"


def _notes(stage: SmallStage) -> Path:
    return Path(stage.job.directory).parent.with_name(NOTES)


def _note(stage: SmallStage, text: str) -> None:
    with _notes(stage).open("a") as notes:
        notes.write(text + "\n")


def _misbehaves(stage: SmallStage) -> bool:
    return stage.name == "write" and Path(stage.job.directory).name == MISBEHAVES


class DiesAlways(SmallStage):
    """Kills its worker, each time."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self):
            _note(self, "dies")
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class DiesOnce(SmallStage):
    """Kills its worker the first time."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self) and not _notes(self).exists():
            _note(self, "dies")
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class TakesLong(SmallStage):
    """Does not end by itself."""

    def run(self) -> Any:
        result = super().run()
        if _misbehaves(self):
            _note(self, "waits")
            time.sleep(600)
        return result


class TellsWhere(SmallStage):
    """Notes the directory of each file that it makes for keys."""

    def run(self) -> Any:
        really = tempfile.TemporaryFile

        def noting(*, prefix: str, dir: str | None) -> Any:
            _note(self, str(dir))
            return really(prefix=prefix, dir=dir)

        with mock.patch.object(tempfile, "TemporaryFile", noting):
            return super().run()


class Swapped(SmallStage):
    """Returns its result as that of another partition."""

    @property
    def identity(self) -> tuple[str, bytes]:
        name, hash_key = super().identity
        is_in_worker = TaskContext.get() is not None
        return name, hash_key[::-1] if is_in_worker and _misbehaves(self) else hash_key
