"""The journal of cleanings: JSON Lines, one before and one after each partition that is changed.

The line before has everything that decides, what is to be replaced, and what retention will delete. It is on the disk
before anything is changed: if it cannot be written, the partition is not cleaned. The line after has the result, with
what was deleted. Recovery writes it for an interrupted cleaning. Each line ends with its checksum. `docs/cli.md` lists
the fields.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from kcompact.bucket.path import local_path
from kcompact.cleaner.outcome import CleanResult
from kcompact.config.settings import config_fields
from kcompact.errors import KcompactError, RefusedError, storage_errors
from kcompact.format.sealed_json import sealed, unsealed
from kcompact.host import turns
from kcompact.host.machine import clock_ms
from kcompact.host.user_directories import state_directory
from kcompact.log.directory import log_dir_around, partition_by_name
from kcompact.log.files import open_regular
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import ExpiredSegment, limit_of
from kcompact.remarks import Note, RemarkCode
from kcompact.swap.recovery.end import RecoveryReport
from kcompact.wording import worded

NAME = "journal.jsonl"
VERSION = 3

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = "write the journal (--journal FILE is another)"
_ANOTHER = "Nothing was changed. Pass another file with --journal FILE."


def default_journal() -> Path | None:
    """Return the journal of this user; None if this user has no private directory for it."""
    state = state_directory()
    return None if state is None else state / NAME


def journal_at(
    path: str | os.PathLike[str] | None, directories: Collection[Path]
) -> AbstractContextManager[Journal | None]:
    """Return the journal of some partition directories; None is no journal."""
    return nullcontext() if path is None else Journal(Path(path), directories)


def read_journal(path: str | os.PathLike[str]) -> list[dict[str, Any] | None]:
    """Return the lines of a journal; None for a line that is damaged, or that was not written completely.

    Raises StorageError, RefusedError for anything but a regular file, ConfigError for a path that is not local.
    """
    path = local_path(path)
    with (
        storage_errors(path, "read the journal"),
        open_regular(path) as opened,
        open(opened.descriptor, "rb", closefd=False) as file,
    ):
        return [_parsed(line) for line in file]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = unsealed(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


class Journal:
    """The journal of some partition directories, until the end of a `with` block. Safe for several threads.

    It is opened for its first line: a recovery goes on if that is not possible.
    """

    def __init__(self, path: Path, directories: Collection[Path]) -> None:
        self.path = path
        self._directories = directories
        self._fd: int | None = None
        self._writing = threading.Lock()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None  # By then the number may be that of another file.
            with suppress(OSError):  # Each line is synced already: no reason to lose the report.
                os.close(fd)

    def open(self) -> int:
        """Open the file, unless it is open, and return the descriptor.

        Raises RefusedError for anything but a regular file, and for a file in a log directory, where a broker can take
        it for a file of a log; StorageError.
        """
        if self._fd is not None:
            return self._fd
        with storage_errors(self.path, "open the journal"):
            if log_dir_around(self.path.resolve().parent, self._directories) is not None:
                problem = "lies in a log directory, so it cannot be a journal"
                raise RefusedError(path=self.path, problem=problem, hint=_ANOTHER)
            try:
                fd = os.open(self.path, _FLAGS, 0o600)
            except IsADirectoryError:
                raise _not_regular(self.path) from None
            except FileNotFoundError as error:
                raise RefusedError(path=self.path, problem="is in no directory", hint=_ANOTHER) from error
            except OSError as error:
                if self.path.is_symlink():
                    raise _not_regular(self.path) from error
                raise
            try:
                is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
            except OSError:
                os.close(fd)
                raise
        if not is_regular:
            os.close(fd)
            raise _not_regular(self.path)
        self._fd = fd
        return fd

    def begin(
        self,
        plan: CleanPlan,
        options: Mapping[str, object],
        *,
        to_replace: Sequence[Segment],
        to_delete: Sequence[ExpiredSegment],
    ) -> None:
        """Write what decides about a cleaning, the files to replace and the segments to delete. Raises as `open`."""
        line = self._line(
            "begin",
            plan.log.directory,
            now_ms=plan.now_ms,
            checkpoint_offset=plan.log.checkpoint_offset,
            first_dirty_offset=plan.first_dirty_offset,
            first_uncleanable_offset=plan.first_uncleanable_offset,
            high_watermark=plan.high_watermark,
            last_stable_offset=plan.last_stable_offset,
            log_start_offset=plan.log.log_start_offset,
            log_end_offset=plan.log.log_end_offset,
            held_back_from_offset=plan.held_back_from_offset,
            replicas=[
                {
                    "path": str(replica.path),
                    "end_offset": replica.end_offset,
                    "fetches_from_offset": replica.fetches_from_offset,
                }
                for replica in plan.replicas
            ],
            reason=str(plan.reason),
            kafka_release=plan.config.release.name,
            config=config_fields(plan.config),
            options={name: None if value is None else _plain(value) for name, value in options.items()},
            to_replace=[
                {"name": file.name, "size": file.size_bytes, "mtime_ns": file.mtime_ns}
                for segment in to_replace
                for file in segment.files
            ],
            to_delete=[
                _expired(due) | {"reason": str(due.reason), "value": limit_of(plan, due.reason)} for due in to_delete
            ],
        )
        self._write([line])

    def end(self, results: Sequence[CleanResult]) -> list[CleanResult]:
        """Write what cleanings have done, with one sync. Return the results, with a note if that was not possible."""
        why = self._end([(each.directory, _done(each)) for each in results])
        return [replace(each, notes=(*each.notes, *_incomplete(each.directory, why))) for each in results]

    def fail(self, directory: Path, error: KcompactError) -> None:
        """Write why a cleaning has failed, if that is possible."""
        self._end([(directory, _UNKNOWN | {"status": "failed", "error": str(error)})])

    def recovered(
        self, reports: Mapping[Path, RecoveryReport | KcompactError]
    ) -> dict[Path, RecoveryReport | KcompactError]:
        """Write what recoveries have changed, with one sync. Return the reports, as `end` does."""
        changed = {
            directory: report
            for directory, report in reports.items()
            if isinstance(report, RecoveryReport) and report.changed
        }
        why = self._end(
            [
                (directory, _UNKNOWN | {"status": report.status, "end_offset": report.checkpoint})
                for directory, report in changed.items()
            ]
        )
        noted = {directory: replace(report, notes=_incomplete(directory, why)) for directory, report in changed.items()}
        return {**reports, **noted}

    def _end(self, ended: Sequence[tuple[Path, Mapping[str, Any]]]) -> str:
        """Write last lines. Return why that was not possible, empty if it was."""
        try:
            if ended:
                self._write([self._line("end", directory, **fields) for directory, fields in ended])
        except KcompactError as problem:
            return str(problem).splitlines()[0]
        return ""

    def _line(self, event: str, directory: Path, **fields: Any) -> bytes:
        from kcompact import __version__

        head = {"version": VERSION, "event": event, "kcompact": __version__, "pid": os.getpid(), "clock_ms": clock_ms()}
        partition = partition_by_name(directory)
        where = {"topic": partition.topic, "partition": partition.partition, "directory": str(directory)}
        return sealed(head | where | fields)

    def _write(self, lines: Sequence[bytes]) -> None:
        with turns.holding(self._writing), storage_errors(self.path, worded(_WRITE)):
            fd = self.open()
            size_bytes = os.fstat(fd).st_size
            # An interrupted write has left half a line.
            is_cut = size_bytes and os.pread(fd, 1, size_bytes - 1) != b"\n"
            view = memoryview(b"".join((b"\n" if is_cut else b"", *lines)))
            while view:
                view = view[os.write(fd, view) :]
            turns.sync(fd)


_UNKNOWN = dict.fromkeys(("status", "error", "end_offset", "counts", "replaced", "written", "deleted"))
"""What a last line has, if nothing is known of it: a cleaning that has failed may have replaced some segments."""


def _done(result: CleanResult) -> dict[str, Any]:
    digests = {file.name: file.crc32c for group in result.swapped.kept for file in group.old}
    return {
        "status": str(result.status),
        "error": None if result.stopped_by is None else str(result.stopped_by),
        "end_offset": result.end_offset,
        "counts": None if result.end_offset is None else asdict(result.stats),
        "replaced": [
            {"name": file.name, "size": file.size_bytes, "crc32c": digests.get(file.name)}
            for group in result.swapped.replaced
            for file in group.replaces
        ],
        "written": [
            {"name": file.name, "size": file.size_bytes, "crc32c": file.crc32c}
            for group in result.swapped.replaced
            for file in group.files
        ],
        "deleted": [_expired(due) for due in result.expired],
    }


def _incomplete(directory: Path, why: str) -> tuple[Note, ...]:
    return (Note.of(RemarkCode.JOURNAL_INCOMPLETE, name=directory.name, why=why),) if why else ()


def _expired(due: ExpiredSegment) -> dict[str, int]:
    return {
        "base_offset": due.segment.base_offset,
        "end_offset": due.end_offset,
        "size_bytes": due.segment.size_bytes,
    }


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | str) else str(value)


def _not_regular(path: Path) -> RefusedError:
    return RefusedError(path=path, problem="is not a regular file, so it cannot be a journal", hint=_ANOTHER)
