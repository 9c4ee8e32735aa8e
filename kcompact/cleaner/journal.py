"""The journal of cleanings: JSON Lines, one before and one after each partition that is changed.

The line before has everything that decides, what is to be replaced, and what retention will delete. It is on the disk
before anything is changed: if it cannot be written, the partition is not cleaned. The line after has the result, with
what was deleted. Each line ends with its checksum. `docs/cli.md` lists the fields.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from kcompact.bucket.path import local_path
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult
from kcompact.config.settings import config_fields
from kcompact.errors import KcompactError, RefusedError, storage_errors
from kcompact.host import turns
from kcompact.host.machine import clock_ms
from kcompact.host.user_directories import state_directory
from kcompact.log.directory import log_dir_around
from kcompact.log.files import open_regular
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import ExpiredSegment, certainly_expired, due_now, limit_of
from kcompact.swap.sealed_json import sealed, unsealed
from kcompact.wording import worded

NAME = "journal.jsonl"
VERSION = 2

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = "write the journal (--journal FILE is another)"
_ANOTHER = "Nothing was changed. Pass another file with --journal FILE."


def default_journal() -> Path | None:
    """Return the journal of this user; None if this user has no private directory for it."""
    state = state_directory()
    return None if state is None else state / NAME


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
        found = unsealed(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Journal:
    """The journal of a round, open for appending until the end of a `with` block. Safe for several threads.

    Raises RefusedError for anything but a regular file, and in a directory of a log; StorageError.
    """

    def __init__(self, path: Path, directories: Collection[Path], options: CleanOptions) -> None:
        self.path = path
        self._options = options
        self._writing = threading.Lock()
        _require_outside(path, directories)
        with storage_errors(path, "open the journal"):
            try:
                self._fd = os.open(path, _FLAGS, 0o600)
            except IsADirectoryError:
                raise _not_regular(path) from None
            except FileNotFoundError as error:
                raise RefusedError(path=path, problem="is in no directory", hint=_ANOTHER) from error
            except OSError as error:
                if path.is_symlink():
                    raise _not_regular(path) from error
                raise
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise _not_regular(path)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def begin(self, plan: CleanPlan) -> None:
        """Write what decides about a cleaning, the files to replace and the segments to delete. Raises StorageError."""
        options = {name: value for name, value in asdict(self._options).items() if name != "journal"}
        to_clean = self._options.turn(plan)
        line = self._line(
            "begin",
            plan,
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
                for segment in to_clean.segments
                for file in segment.files
            ],
            to_delete=[
                _expired(due) | {"reason": str(due.reason), "value": limit_of(plan, due.reason)}
                for due in (certainly_expired(due_now(plan), plan.config) if self._options.apply_retention else ())
            ],
        )
        self._write([line])

    def end(self, results: Sequence[CleanResult]) -> None:
        """Write what cleanings have done, with one sync. Raises StorageError."""
        self._write([self._line_after(each.plan, each, each.stopped_by) for each in results])

    def fail(self, plan: CleanPlan, error: KcompactError) -> None:
        """Write why a cleaning has failed. Raises StorageError."""
        self._write([self._line_after(plan, None, error)])

    def _line_after(self, plan: CleanPlan, result: CleanResult | None, error: KcompactError | None) -> bytes:
        digests = {file.name: file.crc32c for group in result.swapped.kept for file in group.old} if result else {}
        replaced = result.swapped.replaced if result else ()
        return self._line(
            "end",
            plan,
            status="failed" if result is None else str(result.status),
            error=None if error is None else str(error),
            end_offset=None if result is None else result.end_offset,
            counts=None if result is None or result.end_offset is None else asdict(result.stats),
            replaced=[
                {"name": file.name, "size": file.size_bytes, "crc32c": digests.get(file.name)}
                for group in replaced
                for file in group.replaces
            ],
            written=[
                {"name": file.name, "size": file.size_bytes, "crc32c": file.crc32c}
                for group in replaced
                for file in group.files
            ],
            deleted=[_expired(due) for due in result.expired] if result else [],
        )

    def _line(self, event: str, plan: CleanPlan, **fields: Any) -> bytes:
        from kcompact import __version__

        head = {"version": VERSION, "event": event, "kcompact": __version__, "pid": os.getpid(), "clock_ms": clock_ms()}
        partition = plan.log.topic_partition
        where = {"topic": partition.topic, "partition": partition.partition, "directory": str(plan.log.directory)}
        return sealed(head | where | fields)

    def _write(self, lines: Sequence[bytes]) -> None:
        with turns.holding(self._writing), storage_errors(self.path, worded(_WRITE)):
            size_bytes = os.fstat(self._fd).st_size
            # An interrupted write has left half a line.
            is_cut = size_bytes and os.pread(self._fd, 1, size_bytes - 1) != b"\n"
            view = memoryview(b"".join((b"\n" if is_cut else b"", *lines)))
            while view:
                view = view[os.write(self._fd, view) :]
            turns.sync(self._fd)


def _expired(due: ExpiredSegment) -> dict[str, int]:
    return {
        "base_offset": due.segment.base_offset,
        "end_offset": due.end_offset,
        "size_bytes": due.segment.size_bytes,
    }


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | str) else str(value)


def _require_outside(path: Path, directories: Collection[Path]) -> None:
    """Raise RefusedError for a journal in a log directory, where a broker can take it for a file of a log."""
    if log_dir_around(path.resolve().parent, directories) is not None:
        raise RefusedError(path=path, problem="lies in a log directory, so it cannot be a journal", hint=_ANOTHER)


def _not_regular(path: Path) -> RefusedError:
    return RefusedError(path=path, problem="is not a regular file, so it cannot be a journal", hint=_ANOTHER)
