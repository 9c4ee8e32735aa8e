"""Turns errors into messages on standard error and into exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kcompact.errors import KcompactError

DEBUG = "kcompact.debug"
"""The key under which click's context holds the value of `--debug`."""
MOST_ERRORS = 2
"""So many errors of partitions are printed on a terminal without --verbose."""
CLOSED_PIPE = 141
"""The exit code of a process that SIGPIPE ends: what a shell shows for `git` or `grep` whose reader leaves early.

Not 0: what was not read by then may be damaged.
"""


def exit_code_of(problem: Exception, *, debug: bool) -> int:
    """Print an error that ends the command, and return the exit code."""
    from kcompact.cli.output import streams
    from kcompact.failures import as_failure

    if debug:
        _show_traceback(problem)
    if isinstance(problem, BrokenPipeError):
        # A reader may close the pipe early, so there is no message. A stream that was closed from the start gets one.
        streams.forget_output()
        if not streams.was_closed():
            return CLOSED_PIPE
        streams.tell("error: standard output is closed")
        return 1
    failure = as_failure(problem)
    complain(failure, traced=debug)
    return failure.exit_code


def _show_traceback(problem: BaseException) -> None:
    from kcompact.cli.output import streams

    streams.tell("".join(traceback.format_exception(problem)).rstrip())


def complain(problem: KcompactError, *, traced: bool = False, directories: Sequence[Path] = ()) -> None:
    """Print an error on standard error; with --debug also the traceback of a bug or of Spark, unless it was printed.

    If several `directories` have the error, its message is that about all of them, and some of them are named.
    """
    from kcompact.cli.output import streams
    from kcompact.errors import EngineError, NotLoadedError, UnexpectedError
    from kcompact.readable import relative_to_here, some_of, within

    command = click.get_current_context(silent=True)
    is_debugging = command is not None and command.meta.get(DEBUG)
    if is_debugging and not traced and isinstance(problem, UnexpectedError | NotLoadedError | EngineError):
        _show_traceback(problem)
    message = str(problem)
    if len(directories) > 1:
        names = some_of([directory.name for directory in directories])
        message = f"{within(directories[0], problem.cause)}\n{len(directories):,} partitions: {names}"
    streams.tell(relative_to_here(f"error: {message}"))


def complain_of_each(problems: Iterable[tuple[Path, KcompactError]]) -> None:
    """Print the errors of directories on standard error. An error that several partitions have is printed once.

    On a terminal only the gravest are printed, so that the totals above stay on the screen.
    """
    from kcompact.cli.output import streams
    from kcompact.exit_codes import gravest_first
    from kcompact.format.names import TopicPartition
    from kcompact.readable import within

    groups: dict[tuple[type, str], list[tuple[Path, KcompactError]]] = {}
    for directory, problem in problems:
        is_partition = TopicPartition.parse(directory.name) is not None
        message = within(directory, problem.cause) if is_partition else str(problem)
        groups.setdefault((type(problem), message), []).append((directory, problem))
    shown = list(groups.values())
    context = click.get_current_context(silent=True)
    options = context.params if context is not None else {}
    if sys.stderr.isatty() and not options.get("is_verbose"):
        shown = gravest_first(shown, lambda equal_problems: equal_problems[0][1].exit_code)[:MOST_ERRORS]
    for equal_problems in shown:
        complain(equal_problems[0][1], directories=[directory for directory, _ in equal_problems])
    if len(shown) < len(groups):
        way = "-v" if "is_verbose" in options else "--json"
        streams.tell(f"and {len(groups) - len(shown):,} more errors; {way} lists them")
