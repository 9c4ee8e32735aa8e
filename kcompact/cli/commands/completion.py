"""`completion`: the function with which a shell completes command lines of kcompact."""

from __future__ import annotations

import click

from kcompact.cli import options
from kcompact.cli.completion import shells
from kcompact.cli.output import streams


@options.command("completion", settings=False, as_json=False)
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print the completion of commands for bash, zsh or fish.

    Tab then completes commands, options, directories, the topics in directories that are already typed, and the names
    of Kafka's settings. Only names of directories are read.

    \b
    Examples:
      kcompact completion bash >~/.local/share/bash-completion/completions/kcompact
      kcompact completion zsh >~/.zfunc/_kcompact
      kcompact completion fish >~/.config/fish/completions/kcompact.fish
    """
    root = click.get_current_context().find_root()
    streams.echo(shells.source_of(shell, root.command).rstrip())
    return 0
