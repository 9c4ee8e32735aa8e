"""The program `kcompact`: its commands, and every error as a message and an exit code.

The module of a command is imported when the command is called, and imports at its top only what its help needs. So
`--help` is fast, and commands that only read load neither Spark nor the kernels.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from kcompact.cli.failures import DEBUG, exit_code_of
from kcompact.cli.options import Command, Helpful, answer, commands_of
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import keep_arguments, typed_arguments
from kcompact.readable import shell_word, shown

SECTIONS = {
    "Look": (
        "inspect",
        "verify",
        "records",
        "keys",
        "gaps",
        "transactions",
        "groups",
        "compare",
        "search-key",
        "report",
    ),
    "Decide": ("plan", "doctor"),
    "Change": ("clean", "recover", "restore"),
    "Set up": ("completion", "man"),
}
"""The commands as the help lists them."""


class Commands(Helpful, click.Group):
    """The group of commands. Every error of a command becomes a message and an exit code here."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Its module is imported now."""
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module = import_module(f"kcompact.cli.commands.{cmd_name.replace('-', '_')}")
            self.add_command(module.command)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by what they are for."""
        commands = commands_of(ctx)
        longest = max(map(len, commands))
        width = formatter.width - 6 - longest
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), commands[name].get_short_help_str(width)) for name in names])

    def main(self, args: Any = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command line and end the process with its exit code."""
        from kcompact.wording import of_the_command_line

        with of_the_command_line():
            self._main(args, prog_name, *rest, **extra)

    def _main(self, args: Any, prog_name: str | None, *rest: Any, **extra: Any) -> NoReturn:
        streams.open_missing()
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, *rest, **extra)
        except click.ClickException as problem:
            _show_usage_problem(problem)
            code = problem.exit_code
        except click.Abort:
            streams.tell("interrupted")
            code = 130
        except Exception as problem:  # From printing help or the version; `invoke` handles errors of commands.
            code = exit_code_of(problem, debug=False)
        code = code if isinstance(code, int) else 0
        try:
            streams.flush()
        except Exception as problem:
            code = code or exit_code_of(problem, debug=False)
        sys.exit(code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they were typed."""
        keep_arguments(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and return its exit code. `main` handles the errors of click."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            # If a module cannot be loaded, the options of its command are not parsed yet.
            return exit_code_of(problem, debug=bool(ctx.meta.get(DEBUG)) or "--debug" in typed_arguments(ctx))


# Wrong usage: what is wrong, and what to type instead

_SAME_AS = {
    "compact": "clean",
    "compaction": "clean",
    "dry-run": "clean --dry-run",
    "check": "verify",
    "dump": "records",
    "show": "inspect",
    "list": "inspect",
    "ls": "inspect",
    "repair": "recover",
    "help": "--help",
    "version": "--version",
}
"""Words that people type for a command, and what kcompact calls it."""


def _show_usage_problem(problem: click.ClickException) -> None:
    """Print what is wrong with a command line. Without any argument, print the help."""
    if isinstance(problem, click.exceptions.NoArgsIsHelpError):
        streams.tell(problem.format_message())
        return
    context = getattr(problem, "ctx", None)
    if context is not None:
        streams.tell(context.get_usage())
        streams.tell(f"Try '{context.command_path} --help' for help.\n")
    hint = _hint(problem)
    message = f"{shown(problem.message)}\n{hint}" if hint else shown(problem.format_message())
    streams.tell(f"error: {message}")


def _hint(problem: click.ClickException) -> str:
    """Return what to type instead, or an empty text where click's own suggestion is enough."""
    if isinstance(problem, click.exceptions.NoSuchCommand):
        return _hint_on_command(problem.command_name)
    if isinstance(problem, click.NoSuchOption) and problem.ctx is not None:
        return _hint_on_option(problem.option_name, problem.ctx)
    return ""


def _hint_on_command(name: str) -> str:
    if name in _SAME_AS:
        return f"Did you mean kcompact {_SAME_AS[name]}?"
    if os.sep in name or Path(name).exists():
        return f"Put a command before the path, as in kcompact plan {shell_word(name)}"
    return ""


def _hint_on_option(option: str, context: click.Context) -> str:
    """Return where an option belongs, if kcompact has it in another place."""
    program = context.find_root()
    commands = commands_of(program)
    if context.info_name == "inspect" and option.removeprefix("--") in commands:
        return f"It is a command of its own: {program.info_name} {option.removeprefix('--')}"
    owners = [name for name, command in commands.items() if _has(command, option)]
    if _has(program.command, option):
        return f"Type {program.info_name} {option}"
    if owners and context is program:
        example = "plan" if "plan" in owners else owners[0]
        return f"Put it after the command, as in {program.info_name} {example} {option}"
    return f"It is an option of {program.info_name} {owners[0]}" if owners else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


# The program


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kcompact import __version__, kernels

        answer(ctx, f"kcompact {__version__}\nkernels: {kernels.state()}")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Inspect and compact Kafka partition directories while no broker runs.

    PATH is a partition directory (orders-0) or a log directory (one entry of log.dirs).

    \b
    Exit codes: 0 done, also when nothing was eligible; 1 failed; 2 usage;
    3 corrupt data; 4 refused or unsupported; 5 locked, a broker is running;
    6 changed during the run; 7 not enough space; 8 recovery needed;
    9 replicas differ; 10 undecided, or a key was found;
    130, 143, 129 stopped by Ctrl-C, SIGTERM, SIGHUP; 141 by a closed pipe.
    """
