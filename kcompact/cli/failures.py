"""Errors to messages on standard error and to exit codes."""

from __future__ import annotations

import traceback
from os import PathLike, fsdecode
from typing import TYPE_CHECKING

import click

from kcompact.cli import options

if TYPE_CHECKING:
    from kcompact.errors import KcompactError


def exit_code_of(problem: Exception, *, debug: bool) -> int:
    """Say what went wrong and return the exit code."""
    from kcompact.cli.output import streams
    from kcompact.errors import KcompactError

    if debug:
        _show_traceback(problem)
    if isinstance(problem, BrokenPipeError):
        # Who stops reading has read enough, and is told nothing; who closed it beforehand may not know.
        if streams.was_closed():
            streams.tell("error: standard output is closed")
        streams.forget_output()
        return 1
    failure = problem if isinstance(problem, KcompactError) else _as_failure(problem)
    complain(failure)
    return failure.exit_code


def unexpected(problem: Exception) -> KcompactError:
    """Return an exception that is no KcompactError as one; with --debug its traceback is shown."""
    if click.get_current_context().meta.get(options.DEBUG):
        _show_traceback(problem)
    return _as_failure(problem)


def _as_failure(problem: Exception) -> KcompactError:
    """Return what the operating system would not do as such, anything else as a fault of ours."""
    from kcompact.errors import KcompactError, StorageError

    if isinstance(problem, OSError) and isinstance(problem.filename, str | bytes | PathLike):
        return StorageError(path=fsdecode(problem.filename), problem=problem)
    if isinstance(problem, OSError) and problem.strerror:
        return KcompactError(f"{problem.strerror}\nRun again with --debug to see where it happened.")
    return KcompactError(
        f"unexpected error, a fault of kcompact's: {type(problem).__name__}: {problem}\n"
        "Run again with --debug to see where it happened."
    )


def _show_traceback(problem: Exception) -> None:
    from kcompact.cli.output import streams

    streams.tell("".join(traceback.format_exception(problem)).rstrip())


def complain(problem: KcompactError) -> None:
    """Say on standard error what went wrong."""
    from kcompact.cli.output import streams
    from kcompact.cli.output.text import relative_to_here

    streams.tell(relative_to_here(f"error: {problem}"))
