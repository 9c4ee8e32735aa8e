"""Shows the plans before anything is cleaned, and asks a person on a terminal."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kcompact import readable
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cli.output import streams
from kcompact.errors import RefusedError
from kcompact.plan.discovery import LeftOut
from kcompact.plan.setting_notes import decided_for_all
from kcompact.plan.totals import deleted_by_retention
from kcompact.remarks import Note
from kcompact.views.sentences import amount_of

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer
    from kcompact.config.settings import Override
    from kcompact.log.segments import Segment

ANSWERS = " [y/N]: "
"""What click prints after the question."""


def show(
    outcomes: Sequence[PartitionOutcome],
    options: CleanOptions,
    left_out_directories: Sequence[LeftOut],
    printer: Printer | None,
) -> None:
    """Print the plans. Raises BrokenPipeError and StorageError, because without a reader there is no consent."""
    if streams.was_closed():
        raise BrokenPipeError
    if printer is not None:
        from kcompact.views.plans import plans_parts

        retention = options.apply_retention
        printer.parts(plans_parts(outcomes, printer.space, left_out=left_out_directories, applies_retention=retention))


def is_needed(
    outcomes: Sequence[PartitionOutcome], options: CleanOptions, *, assume_yes: bool, must_ask: bool, as_json: bool
) -> bool:
    """Return whether something will change, and a person has to confirm it or is there to be asked."""
    if assume_yes or options.only_reads:
        return False
    changes = any(each.is_eligible for each in outcomes) or bool(_deleted(outcomes, options))
    return changes and (must_ask or (not as_json and _is_person_there()))


def missing_log_dirs(outcomes: Sequence[PartitionOutcome]) -> list[str]:
    """Return the log directories of the brokers that were not found: a person has to be asked before a change."""
    plans = [each.plan for each in outcomes if each.plan is not None]
    return list(dict.fromkeys(path for plan in plans for path in plan.config.broker.missing))


def require_person(outcomes: Sequence[PartitionOutcome], unchanged: str) -> None:
    """Raise RefusedError if nobody can be asked. `unchanged` says that nothing was changed."""
    if not _is_person_there():
        missing = readable.some_of(list(map(readable.shown, missing_log_dirs(outcomes))))
        why = f"log directories of the broker were not found: {missing}; " if missing else ""
        problem = f"{why}no terminal, so there is nobody to ask; {unchanged}; --yes cleans without a question"
        raise RefusedError(path="standard input", problem=problem)


def _is_person_there() -> bool:
    """Return whether a person can answer, whom standard error reaches."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_given(
    outcomes: Sequence[PartitionOutcome],
    options: CleanOptions,
    overrides: Sequence[Override],
    *,
    doubts: Sequence[Note],
) -> bool:
    """Ask, and return whether the answer is yes. Raises click.Abort at Ctrl-C and at the end of the input.

    `doubts` say why the decisions may be wrong. What was typed before the question is no answer.
    """
    streams.tell("")
    streams.tell_notes(doubts)
    with suppress(termios.error, OSError, ValueError):  # Not a terminal.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    question = " ".join((_question(outcomes, options), *_decided(outcomes, options, overrides)))
    return click.confirm(streams.wrapped(question, room_for=ANSWERS), err=True)


def _decided(
    outcomes: Sequence[PartitionOutcome], options: CleanOptions, overrides: Sequence[Override]
) -> Iterator[str]:
    """Yield for which of the topics to be changed a setting for all topics decides."""
    changed = [each for each in outcomes if each.is_eligible or _deleted([each], options)]
    plans = [each.plan for each in changed if each.plan is not None]
    for setting, topics in decided_for_all(plans, overrides).items():
        yield f"{setting} decides for {readable.some_of(list(map(readable.shown, topics)))}."


def _question(outcomes: Sequence[PartitionOutcome], options: CleanOptions) -> str:
    eligible = [each for each in outcomes if each.is_eligible]
    deleted = _deleted(outcomes, options)
    retention = f"retention deletes {amount_of(deleted)}" if deleted else ""
    if not eligible:
        return f"Nothing is to be cleaned, but {retention}. Go on?"
    cleaned_bytes = sum(segment.size_bytes for each in eligible if each.turn for segment in each.turn.segments)
    cleaning = f"Clean {readable.counted(len(eligible), 'partition')}, {readable.size(cleaned_bytes)} of segments"
    fate = "deleted" if options.keep_replaced is None else "kept"
    replaced = f"Each segment that is replaced is {fate}"
    return f"{cleaning}? {replaced}, and {retention}." if retention else f"{cleaning}? {replaced}."


def _deleted(outcomes: Sequence[PartitionOutcome], options: CleanOptions) -> list[Segment]:
    return deleted_by_retention(outcomes) if options.apply_retention else []
