"""The marker of an unfinished copy, `.kcompact-copy` in the output, and what it says is finished.

A broker does not start while the directory is there, because its name is not the name of a partition. Each finished
directory has a record. It is written before the directory gets its final name: a directory without a record was not
made by this copy. All files of the marker have a checksum.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kcompact.errors import CorruptCheckpointError, RefusedError
from kcompact.format.properties import META_PROPERTIES
from kcompact.format.sealed_json import ANYTHING, Kept, SealedDocument, sealed, unsealed
from kcompact.log.files import FileIdentity, read_file
from kcompact.readable import shell_word
from kcompact.swap.open_directory import OpenDirectory, apply_steps, opened
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, SyncDir
from kcompact.values import dataclass

MARKER = ".kcompact-copy"
VERSION = 3

_SUBJECT = "copy.json"

RECORD_BYTES = 4096
"""At least the size of a record without its files, and of what `copy.json` and the checkpoints say of its directory."""
RECORD_BYTES_OF_FILE = 256
"""At least what a record says of a file, on both sides."""

_SECTOR_BYTES = 512
"""The unit of `st_blocks`."""

FileStates = list[list[Any]]
"""Name, size and modification time of each file. Inodes differ after a remount of some file systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is copied. A copy with another subject is another copy.

    `directories` are absolute paths. `log_dirs` maps each log directory to its `meta.properties`, or to null.
    """

    is_whole: bool
    directories: list[str]
    log_dirs: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedDirectory:
    """A finished directory.

    `recipe` describes how the copy was made, `outcome` is the result that the caller keeps. `offsets` are the entries
    of the partition in the output's checkpoints. `source` and `copy` are the files on both sides.
    """

    name: str
    recipe: dict[str, Any]
    outcome: dict[str, Any]
    offsets: dict[str, int]
    source: FileStates
    copy: FileStates


_SUBJECT_FIELDS = SealedDocument(
    Subject,
    version=VERSION,
    other_version="it is of another version of kcompact",
    is_whole=ANYTHING,
    directories=ANYTHING,
    log_dirs=ANYTHING,
)
_RECORD_FIELDS = SealedDocument(
    FinishedDirectory,
    name=ANYTHING,
    recipe=ANYTHING,
    outcome=ANYTHING,
    offsets=ANYTHING,
    source=ANYTHING,
    copy=ANYTHING,
)


def meta_properties(log_dir: Path) -> str | None:
    """Return the text of the `meta.properties` of a log directory, None without one."""
    path = log_dir / META_PROPERTIES
    return read_file(path).decode(errors="replace") if path.exists() else None


def file_states(files: Collection[FileIdentity]) -> FileStates:
    """Return the files in the form that a record has, in order of name."""
    return sorted([file.name, file.size_bytes, file.mtime_ns] for file in files)


def states_in(directory: OpenDirectory | Path) -> FileStates:
    """Return the files of a directory in the form that a record has. Raises RefusedError, StorageError."""
    with opened(directory) as held:
        statuses = [(name, held.status(name)) for name in held.names()]
    return file_states([FileIdentity.of(name, status) for name, status in statuses if status is not None])


class CopyMarker:
    """The marker directory of an output. Records have numbers, because the name of a topic can be very long.

    `hold` opens the directory; from then on it is reached only through its descriptor.
    """

    def __init__(self, output: Path, subject: Subject) -> None:
        self.path = output / MARKER
        self.subject = subject
        self._number_of = {Path(name).name: number for number, name in enumerate(subject.directories)}
        self._fd: int | None = None

    def open(self) -> OpenDirectory:
        """Return the marker directory, open. Raises RefusedError."""
        return OpenDirectory(self.path, fd=self._fd)

    def hold(self, output: OpenDirectory) -> OpenDirectory:
        """Open the marker directory for good and return it; the caller closes it at the end.

        Raises RefusedError if it belongs to another user, who could change what is copied.
        """
        fd = output.fd(MARKER)
        if os.fstat(fd).st_uid != os.geteuid():
            raise RefusedError(
                path=self.path,
                problem="is the marker of a copy that another user has begun",
                hint=f"Run as that user, or remove {shell_word(output.path)} to begin anew.",
            )
        held = OpenDirectory(self.path, fd=fd)
        self._fd = held.fd()
        return held

    def read_subject(self) -> Subject | None:
        """Return the subject of the copy that was begun. None: nothing was written yet, or everything is finished.

        Raises CorruptCheckpointError, StorageError.
        """
        return self._read(_SUBJECT, _SUBJECT_FIELDS)

    def records(self) -> dict[str, FinishedDirectory]:
        """Return the record of each finished directory, by its name. Raises CorruptCheckpointError, StorageError."""
        directory_records = {name: self.record(name) for name in self._number_of}
        return {name: record for name, record in directory_records.items() if record is not None}

    def record(self, name: str) -> FinishedDirectory | None:
        """Return the record of a directory, None if it is not finished. Raises as `records`."""
        file = f"{self._number_of[name]}.json"
        record = self._read(file, _RECORD_FIELDS)
        if record is not None and record.name != name:
            raise self._damaged(file, f"it is the record of {record.name}, not of {name}")
        return record

    def _read(self, name: str, document: SealedDocument[Kept]) -> Kept | None:
        """Return what a file of the marker says; None if the file is missing.

        Raises CorruptCheckpointError for anything else, RefusedError, StorageError.
        """
        with self.open() as marker:
            if marker.status(name) is None:
                return None
            try:
                return document.read(unsealed(read_file(self.path / name, dir_fd=marker.fd())))
            except (ValueError, RecursionError) as error:
                raise self._damaged(name, str(error)) from error

    def _damaged(self, name: str, problem: str) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            file=self.path / name,
            problem=f"does not say what was copied: {problem}",
            hint="Nothing was changed. Pass another --output directory, or remove "
            f"{shell_word(self.path.parent)} to begin anew.",
        )

    def begin(self, output: OpenDirectory) -> None:
        """Write the subject, and remove the directories that an interrupted run did not finish."""
        with self.open() as marker:
            for name in marker.names():
                status = marker.status(name)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    shutil.rmtree(name, dir_fd=marker.fd())
            write_small_file(marker, _SUBJECT, sealed(_SUBJECT_FIELDS.write(self.subject)), mode=0o600)
        apply_steps(output, (SyncDir(),))

    def write(self, record: FinishedDirectory) -> None:
        """Write the record of a directory, durably."""
        with self.open() as marker:
            write_small_file(
                marker, f"{self._number_of[record.name]}.json", sealed(_RECORD_FIELDS.write(record)), mode=0o600
            )

    def unfinished_bytes(self) -> int:
        """Return the space that `begin` frees: that of the directories which an interrupted run did not finish."""
        unfinished = (path.lstat() for path in self.path.glob("*/*"))
        return sum(status.st_blocks * _SECTOR_BYTES for status in unfinished if stat.S_ISREG(status.st_mode))

    def forget(self, name: str) -> None:
        """Remove the record of a directory, durably."""
        with self.open() as marker:
            number = f"{self._number_of[name]}.json"
            if marker.status(number) is not None:
                apply_steps(marker, (Remove(number), SyncDir()))

    def remove(self, output: OpenDirectory) -> None:
        """Remove the marker. The subject goes first: without it, an interrupted removal is recognised as one."""
        with self.open() as marker:
            if marker.status(_SUBJECT) is not None:
                apply_steps(marker, (Remove(_SUBJECT), SyncDir()))
        shutil.rmtree(MARKER, dir_fd=output.fd())
        apply_steps(output, (SyncDir(),))
