"""The command to type next, made from the arguments of the command that was typed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcompact.cli.output.printer import Printer
from kcompact.readable import shell_word

_OF_THE_REPORT = re.compile(r"--verbose|--quiet|--json|-[vq]+")
"""Options that change only how the result is shown."""


def command_after(arguments: Sequence[str], command: str, *, without: Sequence[str] = ()) -> str:
    """Return a command line for `command` with the arguments of the one that was typed, except those in `without`.

    `arguments` begins with the name of the command that was typed. After `--` there are only paths.
    """
    words = list(arguments[1:])
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word not in without and not _OF_THE_REPORT.fullmatch(word)]
    return " ".join(map(shell_word, ["kcompact", command, *kept, *words[end:]]))


def show_next(command: str, printer: Printer) -> None:
    """Print the command that a person may want to type next."""
    printer.line()
    printer.line(f"next: {command}")
