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
from kcompact.cli.output.explanations import amount_of
from kcompact.plan.discovery import LeftOut
from kcompact.plan.totals import deleted_by_retention

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer
    from kcompact.log.segments import Segment

ANSWERS = " [y/N]: "
"""What click prints after the question."""


def show(
    outcomes: Sequence[PartitionOutcome], options: CleanOptions, beside: Sequence[LeftOut], printer: Printer | None
) -> None:
    """Print the plans. Raises BrokenPipeError and StorageError, because without a reader there is no consent."""
    if streams.was_closed():
        raise BrokenPipeError
    if printer is not None:
        from kcompact.cli.output.plans import show_plans

        show_plans(outcomes, printer, left_out=beside, applies_retention=options.apply_retention)


def is_needed(outcomes: Sequence[PartitionOutcome], options: CleanOptions, *, assume_yes: bool, as_json: bool) -> bool:
    """Return whether something will change and there is a person to ask, whom standard error reaches."""
    if assume_yes or options.only_reads or as_json:
        return False
    changes = any(each.is_eligible for each in outcomes) or bool(_deleted(outcomes, options))
    return changes and sys.stdin.isatty() and sys.stderr.isatty()


def is_given(outcomes: Sequence[PartitionOutcome], options: CleanOptions, *, doubts: Sequence[str]) -> bool:
    """Ask, and return whether the answer is yes. Raises click.Abort at Ctrl-C and at the end of the input.

    `doubts` say why the decisions may be wrong.
    """
    streams.tell("")
    streams.tell_notes(doubts)
    return click.confirm(streams.wrapped(_question(outcomes, options), room_for=ANSWERS), err=True)


def _question(outcomes: Sequence[PartitionOutcome], options: CleanOptions) -> str:
    eligible = [each for each in outcomes if each.is_eligible]
    deleted = _deleted(outcomes, options)
    retention = f"retention deletes {amount_of(deleted)}" if deleted else ""
    if not eligible:
        return f"Nothing is to be cleaned, but {retention}. Go on?"
    cleaned_bytes = sum(segment.size_bytes for each in eligible if each.plan for segment in each.plan.segments)
    cleaning = f"Clean {readable.counted(len(eligible), 'partition')}, {readable.size(cleaned_bytes)} of segments"
    fate = "deleted" if options.keep_replaced is None else "kept"
    replaced = f"Each segment that is replaced is {fate}"
    return f"{cleaning}? {replaced}, and {retention}." if retention else f"{cleaning}? {replaced}."


def _deleted(outcomes: Sequence[PartitionOutcome], options: CleanOptions) -> list[Segment]:
    return deleted_by_retention(outcomes) if options.apply_retention else []
