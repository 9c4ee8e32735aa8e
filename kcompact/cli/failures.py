"""Turns errors into messages on standard error and into exit codes."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kcompact.errors import KcompactError

DEBUG = "kcompact.debug"
"""The key under which click's context holds the value of `--debug`."""
_DEBUG_HINT = "Run again with --debug to see where it happened."


def exit_code_of(problem: Exception, *, debug: bool) -> int:
    """Print an error that ends the command, and return the exit code."""
    from kcompact.cli.output import streams
    from kcompact.errors import KcompactError

    if debug:
        _show_traceback(problem)
    if isinstance(problem, BrokenPipeError):
        # A reader may close the pipe early, so there is no message. A stream that was closed from the start gets one.
        if streams.was_closed():
            streams.tell("error: standard output is closed")
        streams.forget_output()
        return 1
    failure = problem if isinstance(problem, KcompactError) else _as_failure(problem)
    complain(failure)
    return failure.exit_code


def unexpected(problem: Exception) -> KcompactError:
    """Return any exception as a KcompactError; with --debug its traceback is printed."""
    if click.get_current_context().meta.get(DEBUG):
        _show_traceback(problem)
    return _as_failure(problem)


def _as_failure(problem: Exception) -> KcompactError:
    """Return an error of the operating system as a StorageError, anything else as a bug of kcompact."""
    from kcompact.errors import KcompactError, StorageError

    if isinstance(problem, OSError) and isinstance(problem.filename, str | bytes | os.PathLike):
        return StorageError(path=os.fsdecode(problem.filename), problem=problem)
    if isinstance(problem, OSError) and problem.strerror:
        return KcompactError(f"{problem.strerror}\n{_DEBUG_HINT}")
    return KcompactError(f"unexpected error, a bug of kcompact: {type(problem).__name__}: {problem}\n{_DEBUG_HINT}")


def _show_traceback(problem: Exception) -> None:
    from kcompact.cli.output import streams

    streams.tell("".join(traceback.format_exception(problem)).rstrip())


def complain(problem: KcompactError) -> None:
    """Print an error on standard error."""
    from kcompact.cli.output import streams
    from kcompact.cli.output.text import relative_to_here

    streams.tell(relative_to_here(f"error: {problem}"))


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise an OSError inside the block as a StorageError, which fails one partition instead of the command.

    `path` is used if the OSError has no file name.
    """
    from kcompact.errors import StorageError

    try:
        yield
    except OSError as problem:
        named = problem.filename
        raise StorageError(
            path=os.fsdecode(named) if isinstance(named, str | bytes) else path, problem=problem
        ) from problem


def delivered(show: Callable[[], None]) -> int:
    """Print the report of finished work, and return 1 if it could not be printed.

    A closed pipe is not a failure, because the work is finished.
    """
    from kcompact.cli.output import streams
    from kcompact.errors import StorageError

    try:
        show()
    except BrokenPipeError:
        streams.forget_output()
    except StorageError as problem:
        complain(problem)
        streams.forget_output()
        return problem.exit_code
    return 0
