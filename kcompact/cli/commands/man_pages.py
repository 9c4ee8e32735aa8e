"""`man`: writes the man pages."""

from __future__ import annotations

from pathlib import Path

import click

from kcompact.cli.declaration import commands_of
from kcompact.cli.output import streams
from kcompact.cli.output.man_page import page_of


def run(directory: Path) -> int:
    """Write a page for kcompact and for each of its commands. Return the exit code. Raises OSError."""
    root = click.get_current_context().find_root()
    contexts = [root, *(click.Context(each, root, name) for name, each in sorted(commands_of(root).items()))]
    directory.mkdir(parents=True, exist_ok=True)
    for context in contexts:
        file = directory / f"{context.command_path.replace(' ', '-')}.1"
        file.write_text(page_of(context), encoding="utf-8")
        streams.echo(str(file))
    return 0
