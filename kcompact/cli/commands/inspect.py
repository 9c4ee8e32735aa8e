"""`inspect`: shows what is on the disk, by partition, by batch and record, or by file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli.commands import history
from kcompact.cli.commands.single_files import file_entry, is_file, refused_file
from kcompact.cli.entries import FileEntry, InspectedPartition, complain_of
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, file_fields, inspect_entry, left_out_fields, note_fields
from kcompact.errors import (
    ConfigError,
    CorruptDataError,
    CorruptIndexError,
    CorruptTransactionIndexError,
    KcompactError,
    storage_errors,
)
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import Suffix
from kcompact.log.directory import LogDir
from kcompact.log.settled import read_settled
from kcompact.notes import Note
from kcompact.plan.discovery import LeftOut, left_out
from kcompact.plan.notes import option_notes, plan_notes
from kcompact.plan.options import PlanOptions
from kcompact.plan.partitions import LogDirs, named_partitions, noted, plan_despite_damage
from kcompact.plan.planned import gravest_exit_code

if TYPE_CHECKING:
    from kcompact.cli.commands.records import Listing
    from kcompact.config.resolve import Configured
    from kcompact.inspect.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of an `inspect` command line, except the configuration."""

    listing: Listing | None = None
    """What is to be listed, if anything is."""
    verify: bool = False
    history: frozenset[str] = frozenset()
    """What of the history of partitions is asked for: `gaps`, `transactions`."""
    as_json: bool = False
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """What may be held for a batch."""


def run(paths: Sequence[Path], options: PlanOptions, request: Request) -> int:
    """Show the contents of the paths and return the exit code."""
    files = [path for path in paths if is_file(path)]
    named = [path for path in paths if path not in files]
    directories, unusable = _partitions(named, options) if named else ([], [])
    if request.history:
        needy = " or ".join(f"--{name}" for name in sorted(request.history))
        unusable += [refused_file(path, needy) for path in files]
        files = []
    notes = option_notes(directories, options, explains=bool(request.history)) if named else []
    streams.tell_notes(notes)
    codes: list[int] = []
    if request.listing is not None:
        from kcompact.cli.commands.records import list_logs

        codes += list_logs(files, directories, request.listing, unusable, options)
    if request.verify or request.listing is None:
        entries = list(_entries(directories, options, request))
        file_entries = [file_entry(file, verify=request.verify, memory_bytes=request.memory_bytes) for file in files]
        doubts = plan_notes(entries, options)
        streams.tell_notes(doubts)
        codes += [entry.exit_code for entry in entries] + [entry.exit_code for entry in file_entries]
        beside = left_out(named, topics=options.topics)
        if request.as_json and request.listing is None:
            _print_json([*entries, *unusable], file_entries, beside, options, request, [*notes, *doubts])
        else:
            _print(entries, file_entries, beside, request)
    if request.listing is not None or not request.as_json:
        complain_of(unusable)
    codes += [entry.exit_code for entry in unusable]
    return gravest_exit_code(codes)


def _print_json(
    entries: Sequence[InspectedPartition],
    file_entries: Sequence[FileEntry],
    beside: Sequence[LeftOut],
    options: PlanOptions,
    request: Request,
    notes: Sequence[Note],
) -> None:
    content: dict[str, object] = {
        "notes": note_fields(notes),
        "partitions": [inspect_entry(entry) | history.fields(entry, request.history) for entry in entries],
        "left_out": [left_out_fields(each) for each in beside],
    }
    if file_entries:
        content["files"] = [file_fields(entry) for entry in file_entries]
    streams.echo(dumps(document("inspect", options.now_ms, **content)))


def _print(
    entries: Sequence[InspectedPartition],
    file_entries: Sequence[FileEntry],
    beside: Sequence[LeftOut],
    request: Request,
) -> None:
    """Print for people; on standard error where standard output carries JSON Lines."""
    from kcompact.cli.output.inspection import show_file, show_inspection
    from kcompact.cli.output.left_out import show_left_out
    from kcompact.cli.output.printer import Printer

    printer = Printer(sys.stderr if request.as_json else None)
    for number, entry in enumerate(entries):
        if number:
            printer.line()
        show_inspection(entry, printer)
    for number, single in enumerate(file_entries):
        if number or entries:
            printer.line()
        show_file(single, printer)
    show_left_out(beside, printer)


# Partitions


def _partitions(paths: Sequence[Path], options: PlanOptions) -> tuple[list[Path], list[InspectedPartition]]:
    directories, unusable = named_partitions(paths, topics=options.topics, what="file or directory")
    return directories, [
        InspectedPartition(directory=each.directory, error=each.error, is_partition=each.is_partition)
        for each in unusable
    ]


def _entries(directories: Sequence[Path], options: PlanOptions, request: Request) -> Iterator[InspectedPartition]:
    configs = options.configs_of(directories)
    log_dirs = LogDirs()
    for directory in directories:
        try:
            with storage_errors(directory):
                yield _settled_entry(directory, configs[directory], options, log_dirs, request)
        except ConfigError:
            raise
        except KcompactError as problem:
            yield InspectedPartition.failed(directory, problem)


def _settled_entry(
    directory: Path, configured: Configured, options: PlanOptions, log_dirs: LogDirs, request: Request
) -> InspectedPartition:
    """Return the entry of a partition, beside a running broker that of a moment."""
    log_dir, damage = log_dirs.despite_damage(directory)

    def entry(log_dir: LogDir) -> InspectedPartition:
        return _entry(directory, configured, options, log_dir, damage, request)

    return read_settled(directory, log_dir, entry)


def _entry(
    directory: Path,
    configured: Configured,
    options: PlanOptions,
    log_dir: LogDir,
    damage_beside: CorruptDataError | None,
    request: Request,
) -> InspectedPartition:
    """Return the entry of a partition. For damage outside its segments it has both plan and error."""
    from kcompact.inspect.contents import log_contents
    from kcompact.inspect.findings import of_error
    from kcompact.inspect.small_files import log_dir_findings
    from kcompact.inspect.transactions import log_transaction_findings
    from kcompact.inspect.verify import verify_log

    error = configured.problem
    findings: tuple[Finding, ...] = (of_error(error),) if isinstance(error, CorruptDataError) else ()
    if damage_beside is not None:
        error = damage_beside
        findings += (of_error(damage_beside),)
    plan, damage = plan_despite_damage(directory, configured.config, options, log_dir=log_dir)
    plan = noted(plan, configured.notes)
    error = error or damage
    if not request.verify:
        contents = log_contents(plan.log)
        if error is None and not any(segment.damage for segment in contents.segments):
            error = _worst_of(directory, tuple(log_transaction_findings(plan.log, contents.segments)))
        entry = InspectedPartition(directory=directory, plan=plan, error=error, contents=contents)
        return history.added(entry, request.history, request.memory_bytes) if request.history else entry
    contents = verify_log(
        plan.log, index_interval_bytes=plan.config.index_interval_bytes, memory_bytes=request.memory_bytes
    )
    findings += (*contents.findings, *log_dir_findings(log_dir))
    error = error or _worst_of(directory, contents.findings)
    if error is None:
        error = next((each.damage for each in contents.segments if each.damage is not None), None)
    return InspectedPartition(directory=directory, plan=plan, error=error, contents=contents, findings=findings)


_INDEX_ERRORS = {
    Suffix.INDEX: CorruptIndexError,
    Suffix.TIME_INDEX: CorruptIndexError,
    Suffix.TXN_INDEX: CorruptTransactionIndexError,
}


def _worst_of(directory: Path, findings: tuple[Finding, ...]) -> CorruptDataError | None:
    """Return the first finding as an error if it is damage. The findings are sorted, the worst first."""
    from kcompact.inspect.findings import Severity

    if not findings or findings[0].severity is not Severity.DAMAGE:
        return None
    worst = findings[0]
    kind = next((kind for suffix, kind in _INDEX_ERRORS.items() if worst.file.endswith(suffix)), CorruptDataError)
    return kind(file=directory / worst.file, position=worst.position, offset=worst.offset, problem=worst.problem)
