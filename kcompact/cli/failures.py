"""Turns errors into messages on standard error and into exit codes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kcompact.errors import KcompactError

DEBUG = "kcompact.debug"
"""The key under which click's context holds the value of `--debug`."""


def exit_code_of(problem: Exception, *, debug: bool) -> int:
    """Print an error that ends the command, and return the exit code."""
    from kcompact.cli.output import streams
    from kcompact.errors import as_failure

    if debug:
        _show_traceback(problem)
    if isinstance(problem, BrokenPipeError):
        # A reader may close the pipe early, so there is no message. A stream that was closed from the start gets one.
        if streams.was_closed():
            streams.tell("error: standard output is closed")
        streams.forget_output()
        return 1
    failure = as_failure(problem)
    complain(failure, traced=debug)
    return failure.exit_code


def _show_traceback(problem: BaseException) -> None:
    from kcompact.cli.output import streams

    streams.tell("".join(traceback.format_exception(problem)).rstrip())


def complain(problem: KcompactError, *, traced: bool = False) -> None:
    """Print an error on standard error; with --debug also the traceback of a bug or of Spark, unless it was printed."""
    from kcompact.cli.output import streams
    from kcompact.cli.output.text import relative_to_here
    from kcompact.errors import EngineError, UnexpectedError

    command = click.get_current_context(silent=True)
    is_debugging = command is not None and command.meta.get(DEBUG)
    if is_debugging and not traced and isinstance(problem, UnexpectedError | EngineError):
        _show_traceback(problem)
    streams.tell(relative_to_here(f"error: {problem}"))


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
