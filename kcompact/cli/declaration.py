"""How a command is declared: its help, which shows shared options last, and its arguments as they were typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from kcompact.cli.failures import exit_code_of

_ARGUMENTS = "kcompact.arguments"
"""The key under which click's context holds the arguments of this process."""


class Helpful(click.Command):
    """A command whose help is printed as its answers are: a failure is one of standard output."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


class SharedOption(click.Option):
    """An option that several commands have. The help of each shows it last."""


class Command(Helpful):
    """A command of kcompact. Its help shows its own options before the shared ones."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, with a heading for the shared ones."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                is_shared = isinstance(parameter, SharedOption) or parameter is self.get_help_option(ctx)
                (shared if is_shared else own).append(record)
        for heading, records in (("Options", own), ("Shared options", shared)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def command(name: str) -> Callable[[Callable[..., int]], Command]:
    """Return a decorator that makes the command of this name. The function's docstring is its help."""
    return click.command(name, cls=Command)


def commands_of(context: click.Context) -> dict[str, click.Command]:
    """Return the commands of the group of a context by their names. The module of each is imported."""
    group = context.command
    if not isinstance(group, click.Group):
        return {}
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def _show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        answer(ctx, ctx.get_help())


def answer(ctx: click.Context, text: str) -> None:
    """Print a text and end the command."""
    from kcompact.cli.output import streams

    try:
        streams.echo(text)
    except BrokenPipeError as problem:  # Click would end the process with 1.
        ctx.exit(exit_code_of(problem, debug=False))
    ctx.exit()


def keep_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep the arguments of this process, from the name of the command on."""
    context.meta[_ARGUMENTS] = tuple(arguments)


def typed_arguments(context: click.Context | None = None) -> tuple[str, ...]:
    """Return the arguments of this process as they were typed, from the name of the command on."""
    arguments: tuple[str, ...] = (context or click.get_current_context()).meta.get(_ARGUMENTS, ())
    return arguments
