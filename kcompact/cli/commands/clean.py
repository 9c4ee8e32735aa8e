"""`clean`: shows the plans of a round, asks, and shows its results. `cleaner.round` does the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcompact.cli import options
from kcompact.cli.delivery import delivered
from kcompact.cli.failures import complain
from kcompact.cli.option_types import NamedPath, Size
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import command_after, typed_arguments
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.errors import CleaningAbortedError, KcompactError, StorageError
from kcompact.readable import some_of
from kcompact.remarks import Note, RemarkCode

if TYPE_CHECKING:
    from kcompact.cleaner.cleaning import CleanOptions
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cleaner.outcome import RoundResult
    from kcompact.cleaner.round import Round
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.discovery import LeftOut
    from kcompact.plan.options import PlanOptions


@options.command("clean")
@options.paths
@click.option("--dry-run", is_flag=True, help="Do all the work, but write nothing.")
@click.option("--force", is_flag=True, help="Clean at any ratio. All other reasons not to clean still hold.")
@click.option(
    "--output",
    type=NamedPath(file_okay=False, writes_buckets=True),
    metavar="DIR",
    help="Write a compacted copy of each partition into DIR, new or empty, or to s3://BUCKET/PREFIX, and leave PATH "
    "unchanged.",
)
@click.option(
    "--keep-replaced",
    type=NamedPath(file_okay=False),
    metavar="DIR",
    help="Keep the segments that are replaced, as hard links in DIR, new or empty, on the same file system. No space "
    "is freed until DIR is removed. `kcompact restore DIR` puts them back.",
)
@options.journal(what="before and after the cleaning of each partition")
@click.option("--keep-tombstones", is_flag=True, help="Set delete horizons, but keep all tombstones.")
@click.option(
    "--apply-retention",
    is_flag=True,
    help="After the cleaning, delete the whole segments that a broker would delete: below the log start and, if the "
    "policy contains delete, past retention.bytes and retention.ms. Also of topics that are not compacted. Refused if "
    "the broker's own settings are unknown: pass --broker-config.",
)
@click.option("--rebuild-indexes", is_flag=True, help="Ignore all indexes: read the batches and write new indexes.")
@options.replicas
@options.unclean
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help="Do not ask for confirmation. Without a terminal, and with --json, kcompact never asks.",
)
@click.option(
    "--ask",
    is_flag=True,
    help="Change nothing before a person has said yes: ask with --json too, and refuse without a terminal.",
)
@options.engine
@options.memory(what="keys and for data being read and written")
@click.option(
    "--max-bytes-per-second",
    type=Size(),
    metavar="SIZE",
    help="Upper limit for reading and writing together, on average, such as 50m.",
)
@options.verbosity(quiet="Print only errors, and the question.")
def command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    force: bool,
    yes: bool,
    ask: bool,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
    engine: EngineOptions,
    **cleaning: Any,
) -> int:
    """Clean the partitions that are eligible, dirtiest first.

    Replaces the dirty segments with compacted ones, as Kafka's cleaner does, and writes the new checkpoint. The log
    directory is locked during the run, so no broker can start on it. If an earlier run was interrupted, its swap is
    finished or undone first. A failure of one partition does not stop the others.

    With --dry-run or --output nothing in PATH changes.

    \b
    Examples:
      kcompact clean --dry-run /var/lib/kafka
      kcompact clean --broker-config server.properties --topic 'orders*' /var/lib/kafka
      kcompact clean --force --output /backup/compacted orders-0
    """
    from kcompact.cleaner.cleaning import CleanOptions
    from kcompact.cleaner.round import begin_round
    from kcompact.cli import consent
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.discovery import left_out

    if yes and ask:
        raise click.UsageError("--yes and --ask exclude each other")
    clean_options = _with_journal(CleanOptions(**cleaning))  # The remaining options have the names of its fields.
    plan_options = replace(plan_options, force=force)
    with (
        stop_request() as stop,
        begin_round(paths, plan_options, clean_options, engine, uninterrupted=stop.deferred) as round_,
    ):
        left_out_directories = left_out(paths, plan_options.selection)
        printer = None if as_json or is_quiet else Printer(verbose=is_verbose)
        ask = ask or bool(consent.missing_log_dirs(round_.outcomes))
        asks = consent.is_needed(round_.outcomes, clean_options, assume_yes=yes, must_ask=ask, as_json=as_json)
        _tell_notes(round_, without_doubts=asks, is_quiet=is_quiet)
        if asks:
            round_.check_engine()
        else:
            with stop.deferred():  # A signal must not interrupt the start halfway.
                round_.begin_engine()
        if refused := _refused(round_, clean_options, left_out_directories, printer, asks=asks, must_ask=ask):
            return refused
        result = _cleaned(round_, stop, is_quiet=is_quiet, only_bars=as_json)
        if as_json:
            lost = delivered(lambda: _print_json(result, left_out_directories, plan_options))
        else:
            lost = delivered(lambda: _show_result(result, clean_options, printer))
        _complain_of(result)
        return stop.exit_code or result.exit_code or lost


def _with_journal(options: CleanOptions) -> CleanOptions:
    """Return the options with the journal of this user, unless they name one."""
    from kcompact.cleaner.journal import default_journal

    if options.journal is not None or options.only_reads:
        return options
    journal = default_journal()
    if journal is None:
        streams.tell_notes([Note.of(RemarkCode.NO_JOURNAL)])
    return replace(options, journal=journal)


def _refused(
    round_: Round,
    options: CleanOptions,
    left_out_directories: Sequence[LeftOut],
    printer: Printer | None,
    *,
    asks: bool,
    must_ask: bool,
) -> int:
    """Show the plans and ask, if somebody is to be asked. Return 0 if the cleaning may begin, else the exit code."""
    from kcompact.cli import consent

    unchanged = "nothing was cleaned" if any(each.recovered for each in round_.outcomes) else "nothing was changed"
    try:
        # The report of a copy says itself what is not copied.
        consent.show(round_.outcomes, options, left_out_directories if options.output is None else (), printer)
    except (BrokenPipeError, StorageError) as problem:
        why = problem if isinstance(problem, StorageError) else f"{streams.OUTPUT} was closed"
        streams.tell(f"{unchanged}: {why}")
        streams.forget_output()
        return KcompactError.exit_code
    if not asks:
        return 0
    if must_ask:
        consent.require_person(round_.outcomes, unchanged)
    try:
        overrides = round_.plan_options.overrides
        if consent.is_given(round_.outcomes, options, overrides, doubts=round_.doubts):
            return 0
    except click.Abort:  # The end of the input.
        streams.tell("")  # The question still stands in this line.
    streams.tell(unchanged)
    return CleaningAbortedError.exit_code


def _cleaned(round_: Round, stop: StopRequest, *, is_quiet: bool, only_bars: bool) -> RoundResult:
    """Clean, with progress. A signal stops the round between two steps."""
    from kcompact.cli.output.stage_progress import CleaningProgress

    progress = CleaningProgress(stop, round_.outcomes, is_quiet=is_quiet, only_bars=only_bars)
    stop.is_deferred = True
    try:
        return round_.clean(progress)
    finally:
        progress.end()


def _tell_notes(round_: Round, *, without_doubts: bool, is_quiet: bool) -> None:
    """Print the notes, and why an engine was chosen.

    A question starts with the doubts, so they are not printed twice.
    """
    streams.tell_notes(note for note in round_.notes if not (without_doubts and note in round_.doubts))
    with suppress(OSError):
        if os.geteuid() == 0 and any(each.directory.stat().st_uid != 0 for each in round_.outcomes):
            streams.tell_notes([Note.of(RemarkCode.RUNNING_AS_ROOT)])
    if round_.engine is not None and round_.engine.why and not is_quiet:
        streams.tell(str(round_.engine))


def _print_json(result: RoundResult, left_out_directories: Sequence[LeftOut], options: PlanOptions) -> None:
    from kcompact.cli.json.clean import CLEAN, WITH_OUTPUT
    from kcompact.cli.json.partitions import WITH_REPLICA

    given = set() if result.copied is None else {WITH_OUTPUT}
    given |= {WITH_REPLICA} if options.replicas else set()
    content = {
        "notes": result.notes,
        "partitions": result.partitions,
        "left_out": left_out_directories,
        "copy": result.copied,
    }
    streams.echo(CLEAN.text(given, now_ms=options.now_ms, **content))


def _show_result(result: RoundResult, options: CleanOptions, printer: Printer | None) -> None:
    from kcompact.plan.run_notes import running_notes

    if printer is None:
        return
    from kcompact.cli.output.next_command import show_next
    from kcompact.views.outcome import copy_parts, outcome_parts

    parts = outcome_parts(result, printer.space, is_dry_run=options.dry_run)
    if result.copied is not None:
        parts += copy_parts(result.copied)
    if parts:
        printer.line()
        printer.parts(parts)
    if options.dry_run and result.cleaned and result.exit_code == 0 and not running_notes(result.partitions):
        show_next(command_after(typed_arguments(), "clean", without=["--dry-run"]), printer)


def _complain_of(result: RoundResult) -> None:
    """Print the errors, and the notes on cleaned partitions.

    A request to stop is one message about all partitions that it kept from being cleaned.
    """
    from kcompact.cli.entries import complain_of

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
