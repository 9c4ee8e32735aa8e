"""The command to type next, made from the arguments of the command that was typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kcompact.bucket.path import is_address
from kcompact.readable import shell_word

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer

_OF_THE_REPORT = re.compile(r"--verbose|--quiet|--json|-[vq]+")
"""Options that change only how the result is shown."""
_ARGUMENTS = "kcompact.arguments"
"""The key under which click's context holds the arguments of this process."""


def keep_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep the arguments of this process as they were typed, from the name of the command on."""
    context.meta[_ARGUMENTS] = tuple(arguments)


def typed_arguments(context: click.Context | None = None) -> tuple[str, ...]:
    """Return the arguments of this process as they were typed, from the name of the command on."""
    arguments: tuple[str, ...] = (context or click.get_current_context()).meta.get(_ARGUMENTS, ())
    return arguments


def command_after(arguments: Sequence[str], command: str, *, without: Sequence[str] = ()) -> str:
    """Return a command line for `command` with the arguments of the one that was typed, except those in `without`.

    `arguments` begins with the name of the command that was typed. After `--` there are only paths.
    """
    words = list(arguments[1:])
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word not in without and not _OF_THE_REPORT.fullmatch(word)]
    if command == "clean" and any(map(is_address, words)):
        kept = ["--output", "DIR", *kept]  # Nothing is changed in a bucket.
    return " ".join(map(shell_word, ["kcompact", command, *kept, *words[end:]]))


def show_next(command: str, printer: Printer, limit: str = "") -> None:
    """Print the command that a person may want to type next, below what the command before has not looked at."""
    printer.line()
    if limit:
        printer.line(limit)
    printer.line(f"next: {command}")
