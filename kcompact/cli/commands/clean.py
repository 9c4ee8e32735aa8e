"""`clean`: shows the plans of a round, asks, and shows its results. `cleaner.round` does the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kcompact.cleaner.engines import EngineOptions
from kcompact.cleaner.options import CleanOptions
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import Round, begin_round
from kcompact.cli.commands import consent
from kcompact.cli.entries import complain_of
from kcompact.cli.failures import complain, delivered
from kcompact.cli.output import streams
from kcompact.cli.output.json import clean_entry, copy_fields, document, dumps
from kcompact.cli.output.progress import ProgressBar
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.errors import CleaningAbortedError, KcompactError, StorageError
from kcompact.plan.options import PlanOptions


def run(
    paths: Sequence[Path],
    plan_options: PlanOptions,
    options: CleanOptions,
    engine_options: EngineOptions,
    *,
    assume_yes: bool,
    as_json: bool,
) -> int:
    """Clean the eligible partitions and return the exit code."""
    with stop_request() as stop, begin_round(paths, plan_options, options, engine_options) as round_:
        asks = consent.is_needed(round_.outcomes, options, assume_yes=assume_yes, as_json=as_json)
        _tell_notes(round_, without_doubts=asks)
        if asks:
            round_.check_engine()
        else:
            _begin_engine(round_, stop)
        unchanged = "nothing was cleaned" if any(each.recovered for each in round_.outcomes) else "nothing was changed"
        try:
            consent.show(round_.outcomes, as_json=as_json)
        except (BrokenPipeError, StorageError) as problem:
            why = problem if isinstance(problem, StorageError) else f"{streams.OUTPUT} was closed"
            streams.tell(f"{unchanged}: {why}")
            streams.forget_output()
            return KcompactError.exit_code
        if asks and not consent.is_given(round_.outcomes, options, doubts=round_.doubts):
            streams.tell(unchanged)
            return CleaningAbortedError.exit_code

        progress = ProgressBar(stop, quiet=as_json)
        stop.is_deferred = True
        try:
            result = round_.clean(progress)
        finally:
            progress.end()
        lost = _report(result, plan_options.now_ms, as_json=as_json)
        return stop.exit_code or result.exit_code or lost


def _begin_engine(round_: Round, stop: StopRequest) -> None:
    with stop.deferred():  # A signal must not interrupt the start halfway.
        round_.begin_engine()


def _tell_notes(round_: Round, *, without_doubts: bool) -> None:
    """Print the notes on standard error. A question starts with the doubts, so they are not printed twice."""
    streams.tell_notes(note for note in round_.notes if not (without_doubts and note in round_.doubts))
    with suppress(OSError):
        if os.geteuid() == 0 and any(each.directory.stat().st_uid != 0 for each in round_.outcomes):
            streams.tell("note: running as root; the broker's own user is safer. Files keep their owners.")


def _report(result: RoundResult, now_ms: int, *, as_json: bool) -> int:
    """Print what was done, and return 1 if it could not be printed."""

    def show() -> None:
        if as_json:
            described = [clean_entry(outcome) for outcome in result.partitions]
            whole = {} if result.copied is None else {"copy": copy_fields(result.copied)}
            streams.echo(dumps(document("clean", now_ms, notes=list(result.notes), partitions=described, **whole)))
        else:
            from kcompact.cli.output.outcome import show_copy, show_outcome
            from kcompact.cli.output.printer import Printer

            show_outcome(result.partitions, Printer())
            if result.copied is not None:
                show_copy(result.copied, Printer())

    lost = delivered(show)
    complain_of(result.partitions)
    if result.copied is not None and result.copied.error is not None:
        complain(result.copied.error)
    return lost
