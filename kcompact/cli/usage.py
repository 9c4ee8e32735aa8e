"""Turns wrong usage into messages on standard error: what is wrong, and what to type instead."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kcompact.cli.options import commands_of
from kcompact.cli.output import streams
from kcompact.readable import shell_word, shown

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


def show_usage_problem(problem: click.ClickException) -> None:
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
    owners = [name for name, command in commands.items() if _has(command, option)]
    if _has(program.command, option):
        return f"Type {program.info_name} {option}"
    if owners and context is program:
        example = "plan" if "plan" in owners else owners[0]
        return f"Put it after the command, as in {program.info_name} {example} {option}"
    return f"It is an option of {program.info_name} {owners[0]}" if owners else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)
