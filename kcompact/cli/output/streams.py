"""The standard streams: one may be closed, its disk full, its reader gone. None of that may harm a log."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from kcompact.cli.output.text import safe_lines
from kcompact.errors import StorageError

OUTPUT = "standard output"


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before we started: nothing can be written to it."""

    encoding = "utf-8"

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "closed")


class Unheard(io.TextIOBase):
    """Standard error that was closed before we started: what is written to it goes nowhere."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)


def open_missing() -> None:
    """Put something in the place of closed streams, so that no file of a log is opened under their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given out. Children inherit it: they are no better off without.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = Unheard()


def was_closed() -> bool:
    """Whether standard output was closed from the start."""
    return isinstance(sys.stdout, ClosedOutput)


def echo(line: str = "", stream: TextIO | None = None) -> None:
    """Print to standard output, or another stream. Raises BrokenPipeError and StorageError."""
    with errors(stream):
        click.echo(line, file=sys.stdout if stream is None and was_closed() else stream)


@contextmanager
def errors(stream: TextIO | None) -> Iterator[None]:
    """Raise what is wrong with a stream as a StorageError, but for BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise _of(stream, problem) from None


def tell(line: str) -> None:
    """Say something on standard error. That nobody can hear it is no reason to stop."""
    with suppress(OSError):
        click.echo(safe_lines(line), err=True)


def flush() -> None:
    """Flush both output streams at the end of the process. Raises BrokenPipeError and StorageError."""
    try:
        sys.stderr.flush()
    except OSError:
        _to_nowhere(2)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        raise
    except OSError as problem:
        forget_output()
        raise _of(None, problem) from None


def forget_output() -> None:
    """Let the interpreter flush into nothing what could not be printed."""
    if not was_closed():
        _to_nowhere(1)


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _of(stream: TextIO | None, problem: OSError) -> StorageError:
    return StorageError(path="standard error" if stream is sys.stderr else OUTPUT, problem=problem)
