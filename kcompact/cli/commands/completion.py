"""`completion`: the function with which a shell completes command lines of kcompact."""

from __future__ import annotations

import click

from kcompact.cli.completion import shells
from kcompact.cli.output import streams


def run(shell: str) -> int:
    """Print the function for a shell. Return the exit code."""
    root = click.get_current_context().find_root()
    streams.echo(shells.source_of(shell, root.command).rstrip())
    return 0
