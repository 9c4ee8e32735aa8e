"""Shows the plans before anything is cleaned, and asks a person on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kcompact import readable
from kcompact.cleaner.options import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cli.output import streams
from kcompact.cli.output.explanations import plan_forecast
from kcompact.plan.discovery import LeftOut

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer


def show(outcomes: Sequence[PartitionOutcome], beside: Sequence[LeftOut], printer: Printer | None) -> None:
    """Print the plans. Raises BrokenPipeError and StorageError, because without a reader there is no consent."""
    if streams.was_closed():
        raise BrokenPipeError
    if printer is not None:
        from kcompact.cli.output.plans import show_plans

        show_plans(outcomes, printer, left_out=beside)


def is_needed(outcomes: Sequence[PartitionOutcome], options: CleanOptions, *, assume_yes: bool, as_json: bool) -> bool:
    """Return whether something will change and there is a person to ask, whom standard error reaches."""
    if assume_yes or options.only_reads or as_json:
        return False
    return any(_changes(each, options) for each in outcomes) and sys.stdin.isatty() and sys.stderr.isatty()


def is_given(outcomes: Sequence[PartitionOutcome], options: CleanOptions, *, doubts: Sequence[str]) -> bool:
    """Ask, and return whether the answer is yes. Raises click.Abort at Ctrl-C and at the end of the input.

    `doubts` say why the time of the decisions is probably wrong.
    """
    changed = [each for each in outcomes if _changes(each, options)]
    cleaned_bytes = sum(segment.size_bytes for each in changed if each.plan for segment in each.plan.segments)
    streams.tell("")
    streams.tell_notes(doubts)
    return click.confirm(
        f"Clean {readable.counted(len(changed), 'partition')}, {readable.size(cleaned_bytes)} of segments? "
        "Each segment that is replaced is deleted.",
        err=True,
    )


def _changes(outcome: PartitionOutcome, options: CleanOptions) -> bool:
    return outcome.is_eligible or _loses_segments(outcome, options)


def _loses_segments(outcome: PartitionOutcome, options: CleanOptions) -> bool:
    """Return whether retention will delete segments of the partition, cleaned or not."""
    if not options.apply_retention or outcome.error is not None or outcome.plan is None:
        return False
    return any(not due.is_postponed for due in plan_forecast(outcome.plan))
