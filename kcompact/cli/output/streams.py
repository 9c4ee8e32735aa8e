"""The standard streams. A closed stream, a full disk or a closed pipe must not harm a log."""

from __future__ import annotations

import errno
import io
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from kcompact.errors import StorageError
from kcompact.readable import safe_lines, shown
from kcompact.remarks import Note

OUTPUT = "standard output"
_WIDTH_UNKNOWN = 80
_NARROWEST = 20
"""Messages are not wrapped more narrowly than this."""


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed when the process started: writing fails."""

    encoding = "utf-8"

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "closed")


class ClosedErrors(io.TextIOBase):
    """Standard error that was closed when the process started: writing has no effect."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)


def open_missing() -> None:
    """Replace closed streams. Otherwise a file of a log could get the descriptor of a standard stream."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free descriptor. Child processes inherit it, for the same reason.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = ClosedErrors()


def was_closed() -> bool:
    """Return whether standard output was closed when the process started."""
    return isinstance(sys.stdout, ClosedOutput)


def echo(line: str = "", stream: TextIO | None = None) -> None:
    """Print to standard output, or another stream. Raises BrokenPipeError and StorageError."""
    with errors(stream):
        click.echo(line, file=sys.stdout if stream is None and was_closed() else stream)


def write(text: bytes | memoryview) -> None:
    """Write encoded text to standard output. Raises BrokenPipeError and StorageError."""
    with errors(None):
        click.echo(bytes(text), file=sys.stdout if was_closed() else None, nl=False)


def encoded(text: str) -> bytes:
    """Return text in the encoding of standard output."""
    return text.encode(sys.stdout.encoding or "utf-8", sys.stdout.errors or "strict")


@contextmanager
def errors(stream: TextIO | None) -> Iterator[None]:
    """Raise an OSError of a stream as a StorageError, except BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise _of(stream, problem) from None


def tell(line: str) -> None:
    """Print a message on standard error, wrapped on a terminal. Failures are ignored."""
    with suppress(OSError):
        click.echo(wrapped(safe_lines(line)), err=True)


def wrapped(message: str, *, room_for: str = "") -> str:
    """Return a message with its lines broken between words at the width of the terminal that standard error is.

    Paths and other long words stay whole, and without a terminal the message is unchanged. `room_for` is text that
    follows on the last line.
    """
    try:
        width = (os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH_UNKNOWN) - len(room_for)
    except (OSError, ValueError):
        return message
    lines = [
        part
        for line in message.split("\n")
        for part in (
            textwrap.wrap(
                line,
                max(width, _NARROWEST),
                subsequent_indent=" " * (len(line) - len(line.lstrip())),
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
                expand_tabs=False,
            )
            if len(line) > width
            else [line]
        )
    ]
    return "\n".join(lines)


def tell_notes(notes: Iterable[Note]) -> None:
    """Print notes on a whole run on standard error."""
    for note in notes:
        tell(f"note: {shown(note.text)}")


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
    """Discard the buffer of standard output, so that flushing it at exit cannot fail."""
    if not was_closed():
        _to_nowhere(1)


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _of(stream: TextIO | None, problem: OSError) -> StorageError:
    return StorageError(path="standard error" if stream is sys.stderr else OUTPUT, problem=problem)
