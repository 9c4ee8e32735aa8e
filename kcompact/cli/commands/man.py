"""`man`: a page for each command, made from its help.

The page is in the `man` macros of roff, as described in man(7) and groff_man(7). It has no date, so that the same help
gives the same page. `click-man` is no help: it escapes nothing but hyphens, and breaks the lines of examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from kcompact import __version__
from kcompact.cli import options
from kcompact.cli.option_types import NamedPath
from kcompact.cli.options import commands_of
from kcompact.cli.output import streams

_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
"""Characters that roff would take for a command or replace by a typographic one."""
_SECTIONS = {"Exit codes": "EXIT STATUS", "Example": "EXAMPLES"}
"""Headings in the help, and the names that man pages give to sections with this content."""

KEPT_LINES = "\b"
"""The first line of a paragraph whose lines click does not join."""


@options.command("man", settings=False, as_json=False)
@click.argument("directory", metavar="DIR", type=NamedPath(file_okay=False))
def command(directory: Path) -> int:
    """Write the man pages into a directory.

    These are kcompact.1 and one for each command. DIR is made if it does not exist. Pages of another version are
    replaced.

    \b
    Example:
      kcompact man ~/.local/share/man/man1 && man kcompact-clean
    """
    root = click.get_current_context().find_root()
    contexts = [root, *(click.Context(each, root, name) for name, each in sorted(commands_of(root).items()))]
    directory.mkdir(parents=True, exist_ok=True)
    for context in contexts:
        file = directory / f"{context.command_path.replace(' ', '-')}.1"
        file.write_text(page_of(context), encoding="utf-8")
        streams.echo(str(file))
    return 0


def page_of(context: click.Context) -> str:
    """Return the man page of a command in section 1."""
    command = context.command
    name = context.command_path.replace(" ", "-")
    paragraphs = [text.splitlines() for text in inspect.cleandoc(command.help or "").split("\n\n")]
    summary = " ".join(paragraphs[0]).rstrip(".")
    lines = [
        f'.TH {_escaped(name.upper())} 1 "" "kcompact {__version__}" "kcompact"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary)}",
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        "\n.PP\n".join(_escaped(" ".join(text)) for text in paragraphs if text[0] != KEPT_LINES),
        ".SH OPTIONS",
        *_options(context),
    ]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_commands(context, name)]
    for text in paragraphs:
        if text[0] == KEPT_LINES:
            lines += _section(text[1:])
    if context.parent is not None:
        root = context.find_root().command_path
        lines += [".SH SEE ALSO", f".BR {_escaped(root)} (1),", "whose page lists the commands and the exit codes"]
    return "\n".join(lines) + "\n"


def _section(lines: list[str]) -> Iterator[str]:
    """Yield a paragraph that keeps its lines as a section. Its first line starts with the heading."""
    heading, _, first = lines[0].partition(":")
    yield f".SH {_SECTIONS.get(heading, heading.upper())}"
    yield from (".nf", *(_escaped(line) for line in (first.strip(), *lines[1:]) if line), ".fi")


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            names = ", ".join(sorted(parameter.opts, key=len))
            value = record[0].removeprefix(names)
            yield ".TP"
            yield f"\\fB{_escaped(names)}\\fR" + (f"\\fI{_escaped(value)}\\fR" if value else "")
            yield _escaped(" ".join(record[1].split()))


def _commands(context: click.Context, name: str) -> Iterator[str]:
    for each, command in sorted(commands_of(context).items()):
        yield from (".TP", f"\\fB{_escaped(name)}\\-{_escaped(each)}\\fR(1)", _escaped(command.get_short_help_str(100)))


def _escaped(text: str) -> str:
    """Return a line of text as roff prints it: a line must not start like a request."""
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
