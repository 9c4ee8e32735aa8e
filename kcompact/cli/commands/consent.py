"""Shows the plans before anything is cleaned, and asks a person on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kcompact.cli.commands.request import Request
from kcompact.cli.entries import Entry
from kcompact.cli.output import streams
from kcompact.cli.output.explanations import plan_forecast
from kcompact.cli.output.printer import counted


def show(entries: Sequence[Entry], request: Request) -> None:
    """Print the plans. Raises BrokenPipeError and StorageError, because without a reader there is no consent."""
    if request.as_json:
        if streams.was_closed():
            raise BrokenPipeError
        return
    from kcompact.cli.output.plans import show_plans
    from kcompact.cli.output.printer import Printer

    show_plans(entries, Printer())


def is_needed(entries: Sequence[Entry], request: Request) -> bool:
    """Return whether something will change and there is a person to ask."""
    if request.assume_yes or request.only_reads or request.as_json:
        return False
    return any(_changes(entry, request) for entry in entries) and sys.stdin.isatty() and sys.stdout.isatty()


def is_given(entries: Sequence[Entry], request: Request) -> bool:
    """Ask, and return whether the answer is yes. Raises click.Abort at Ctrl-C and at the end of the input."""
    count = sum(_changes(entry, request) for entry in entries)
    streams.echo()
    return click.confirm(f"Clean {counted(count, 'partition')}?", err=True)


def _changes(entry: Entry, request: Request) -> bool:
    return entry.is_eligible or _loses_segments(entry, request)


def _loses_segments(entry: Entry, request: Request) -> bool:
    """Return whether retention will delete segments of the partition, cleaned or not."""
    if not request.options.apply_retention or entry.error is not None or entry.plan is None:
        return False
    return any(not due.is_postponed for due in plan_forecast(entry.plan))
