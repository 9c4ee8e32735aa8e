"""`completion`: the function with which a shell completes command lines of kcompact."""

from __future__ import annotations

import click

from kcompact.cli import options
from kcompact.cli.output import streams


@options.command("completion", settings=False, as_json=False)
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print the completion of commands for bash, zsh or fish.

    Tab then completes commands, options, paths, and the values of options that have only a few.

    \b
    Examples:
      kcompact completion bash >~/.local/share/bash-completion/completions/kcompact
      kcompact completion zsh >~/.zfunc/_kcompact
      kcompact completion fish >~/.config/fish/completions/kcompact.fish
    """
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    root = click.get_current_context().find_root()
    streams.echo(completion(root.command, {}, "kcompact", "_KCOMPACT_COMPLETE").source().rstrip())
    return 0
