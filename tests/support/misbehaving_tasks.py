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

from kcompact.bucket.remote import Bucket
from kcompact.bucket.scratch import scratch_directory
from kcompact.engine.spark.tasks import WholeTask
from kcompact.host.disk import Disk
from tests.support.disk_in_memory import disk_in_memory
from tests.support.patience import PATIENCE_S

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


class DiesInUpload(WholeTask):
    """Kills its worker the first time, after it has uploaded two files."""

    def run(self) -> Any:
        if not _misbehaves(self) or _notes(self).exists():
            return super().run()
        really, written = Bucket.write, list[str]()

        def write(bucket: Bucket, key: str, data: Any, crc: int) -> str:
            etag = really(bucket, key, data, crc)
            written.append(key)
            if len(written) == 2:
                _note(self, "dies")
                os.kill(os.getpid(), signal.SIGKILL)
            return etag

        with mock.patch.object(Bucket, "write", write):
            return super().run()


class MeetsAnother(WholeTask):
    """Creates its manifest when another attempt is about to do so too."""

    def run(self) -> Any:
        if not _misbehaves(self):
            return super().run()
        really = Bucket.create

        def create(bucket: Bucket, key: str, data: bytes) -> bool:
            _note(self, "creates")
            deadline = time.monotonic() + PATIENCE_S
            while len(_notes(self).read_text().split()) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            return really(bucket, key, data)

        with mock.patch.object(Bucket, "create", create):
            return super().run()


class HasAFullDisk(WholeTask):
    """Finds no free space."""

    def run(self) -> Any:
        if not _misbehaves(self):
            return super().run()
        with mock.patch.object(Disk, "of", return_value=Disk(10_000, 4096)):
            return super().run()


class HasASmallScratch(WholeTask):
    """Has a real disk as scratch that is full long before the task expects it."""

    def run(self) -> Any:
        if not _misbehaves(self):
            return super().run()
        with (
            disk_in_memory(Path(os.fspath(scratch_directory())), "16k") as scratch,
            mock.patch.object(Disk, "of", return_value=Disk(1 << 40, 4096)),
        ):
            try:
                return super().run()
            finally:
                _note(self, f"left: {sum(each.is_file() for each in scratch.rglob('*'))}")


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
