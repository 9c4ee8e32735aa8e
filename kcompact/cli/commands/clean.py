"""`clean`: shows the plans of a round, asks, and shows its results. `cleaner.round` does the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.engines import EngineOptions
from kcompact.cleaner.journal import default_journal
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import Round, begin_round
from kcompact.cli.commands import consent
from kcompact.cli.declaration import typed_arguments
from kcompact.cli.entries import complain_of
from kcompact.cli.failures import complain, delivered
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import command_after
from kcompact.cli.output.progress import ProgressBar
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.errors import CleaningAbortedError, KcompactError, StorageError
from kcompact.notes import Note, NoteCode
from kcompact.plan.discovery import LeftOut, left_out
from kcompact.plan.notes import running_notes
from kcompact.plan.options import PlanOptions
from kcompact.readable import some_of

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer


def run(
    paths: Sequence[Path],
    plan_options: PlanOptions,
    options: CleanOptions,
    engine_options: EngineOptions,
    *,
    assume_yes: bool,
    must_ask: bool = False,
    is_verbose: bool = False,
    is_quiet: bool = False,
    as_json: bool,
) -> int:
    """Clean the eligible partitions and return the exit code."""
    options = _with_journal(options)
    with (
        stop_request() as stop,
        begin_round(paths, plan_options, options, engine_options, uninterrupted=stop.deferred) as round_,
    ):
        beside = left_out(paths, topics=plan_options.topics)
        printer = None if as_json or is_quiet else _printer(is_verbose=is_verbose)
        asks = consent.is_needed(round_.outcomes, options, assume_yes=assume_yes, must_ask=must_ask, as_json=as_json)
        _tell_notes(round_, without_doubts=asks)
        if round_.engine is not None and round_.engine.why and not is_quiet:
            streams.tell(str(round_.engine))
        if asks:
            round_.check_engine()
        else:
            _begin_engine(round_, stop)
        unchanged = "nothing was cleaned" if any(each.recovered for each in round_.outcomes) else "nothing was changed"
        try:
            # The report of a copy says itself what is not copied.
            consent.show(round_.outcomes, options, beside if options.output is None else (), printer)
        except (BrokenPipeError, StorageError) as problem:
            why = problem if isinstance(problem, StorageError) else f"{streams.OUTPUT} was closed"
            streams.tell(f"{unchanged}: {why}")
            streams.forget_output()
            return KcompactError.exit_code
        if asks:
            if must_ask:
                consent.require_person(unchanged)
            if refused := _refused(round_, options):
                streams.tell(unchanged)
                return refused

        progress = ProgressBar(stop, round_.outcomes, is_quiet=is_quiet, only_bars=as_json)
        stop.is_deferred = True
        try:
            result = round_.clean(progress)
        finally:
            progress.end()
        if as_json:
            lost = delivered(lambda: _print_json(result, beside, plan_options.now_ms))
        else:
            lost = delivered(lambda: _show_result(result, options, printer))
        _complain_of(result)
        return stop.exit_code or result.exit_code or lost


def _with_journal(options: CleanOptions) -> CleanOptions:
    """Return the options with the journal of this user, unless they name one."""
    if options.journal is not None or options.only_reads:
        return options
    journal = default_journal()
    if journal is None:
        streams.tell_notes([Note.of(NoteCode.NO_JOURNAL)])
    return replace(options, journal=journal)


def _refused(round_: Round, options: CleanOptions) -> int:
    """Ask, and return 0 for a yes, else the exit code."""
    try:
        return 0 if consent.is_given(round_.outcomes, options, doubts=round_.doubts) else CleaningAbortedError.exit_code
    except click.Abort:  # The end of the input.
        streams.tell("")  # The question still stands in this line.
        return CleaningAbortedError.exit_code


def _printer(*, is_verbose: bool) -> Printer:
    from kcompact.cli.output.printer import Printer

    return Printer(verbose=is_verbose)


def _begin_engine(round_: Round, stop: StopRequest) -> None:
    with stop.deferred():  # A signal must not interrupt the start halfway.
        round_.begin_engine()


def _tell_notes(round_: Round, *, without_doubts: bool) -> None:
    """Print the notes on standard error. A question starts with the doubts, so they are not printed twice."""
    streams.tell_notes(note for note in round_.notes if not (without_doubts and note in round_.doubts))
    with suppress(OSError):
        if os.geteuid() == 0 and any(each.directory.stat().st_uid != 0 for each in round_.outcomes):
            streams.tell_notes([Note.of(NoteCode.RUNNING_AS_ROOT)])


def _print_json(result: RoundResult, beside: Sequence[LeftOut], now_ms: int) -> None:
    from kcompact.cli.json.clean import CLEAN, WITH_OUTPUT

    given = set() if result.copied is None else {WITH_OUTPUT}
    content = {"notes": result.notes, "partitions": result.partitions, "left_out": beside, "copy": result.copied}
    streams.echo(CLEAN.text(given, now_ms=now_ms, **content))


def _show_result(result: RoundResult, options: CleanOptions, printer: Printer | None) -> None:
    if printer is None:
        return
    from kcompact.cli.output.next_command import show_next
    from kcompact.views.outcome import copy_parts, outcome_parts

    found = outcome_parts(result, printer.space, is_dry_run=options.dry_run)
    if result.copied is not None:
        found += copy_parts(result.copied)
    if found:
        printer.line()
        printer.parts(found)
    if options.dry_run and result.cleaned and result.exit_code == 0 and not running_notes(result.partitions):
        show_next(command_after(typed_arguments(), "clean", without=["--dry-run"]), printer)


def _complain_of(result: RoundResult) -> None:
    """Print the errors, and the notes on cleaned partitions.

    A request to stop is one message about all partitions that it kept from being cleaned.
    """
    streams.tell_notes(note for each in result.partitions if each.result is not None for note in each.result.notes)
    stopped = [each for each in result.partitions if isinstance(each.error, CleaningAbortedError)]
    complain_of([each for each in result.partitions if not isinstance(each.error, CleaningAbortedError)])
    unfinished = None if result.copied is None else result.copied.error
    if stopped:
        # Of an unfinished copy, its own message says how to go on.
        more = "" if unfinished else "\nNothing is half done. Run the same command again to go on."
        names = some_of([each.name for each in stopped])
        streams.tell(f"interrupted: {len(result.cleaned):,} cleaned, {len(stopped):,} not: {names}{more}")
    if unfinished is not None:
        complain(unfinished)
