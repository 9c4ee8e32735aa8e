"""Prints the entries of `cli.entries` for people: the name of each partition or file, and the views of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output import dump
from kcompact.cli.output.printer import Printer
from kcompact.errors import CorruptDataError
from kcompact.views.parts import Cell, Heading, Part, Table, Tone, lines, offset, row
from kcompact.views.sentences import unlocked

_MOST_NAMED = 20
"""So many files are named; of more only the number is shown."""

if TYPE_CHECKING:
    from pathlib import Path

    from kcompact.cli.entries import (
        FileEntry,
        GroupsEntry,
        InspectedPartition,
        KeysEntry,
        RecoveryEntry,
        RestoreEntry,
        TopicKeys,
    )
    from kcompact.plan.clean_plan import CleanPlan
    from kcompact.swap.recovery_end import RecoveryReport


# keys


def show_keys(topics: Sequence[TopicKeys], older_than_ms: int | None, *, print_data: bool) -> None:
    """Print each partition, and each topic with several partitions. `older_than_ms` is the age that was asked for."""
    printer = Printer()
    is_first = True
    for topic in topics:
        for entry in topic.entries:
            if not is_first:
                printer.line()
            is_first = False
            _show_keys_of_partition(entry, older_than_ms, printer, print_data=print_data)
        if len(topic.entries) > 1 and topic.counted.logs:
            from kcompact.views.keys import topic_section

            printer.line()
            counted = len(topic.counted.logs)
            of_all = "" if counted == len(topic.entries) else f" of {len(topic.entries):,}"
            printer.parts([Heading(name=topic.topic, detail=f"{counted:,}{of_all} partitions")])
            names = [entry.name for entry in topic.incomplete]
            printer.parts(topic_section(topic.counted, incomplete=names, print_data=print_data).parts)


def _show_keys_of_partition(entry: KeysEntry, older_than_ms: int | None, printer: Printer, *, print_data: bool) -> None:
    from kcompact.views import keys
    from kcompact.views.segments import notes

    printer.parts([Heading(name=entry.name, detail=readable.path_from_here(entry.directory))])
    if entry.keys is None:
        # The whole error, with the next command, is on standard error.
        message = "nothing can be read" if entry.error is None else readable.relative_to_here(str(entry.error))
        printer.parts([lines(f"not counted: {message.splitlines()[0]}")])
        return
    section = keys.keys_section(entry.keys, older_than_ms=older_than_ms, print_data=print_data)
    parts = list(section.parts)
    if entry.plan is not None and entry.keys.counts.undecided_records.number:
        parts += [keys.undecided(entry.keys, entry.plan), notes(entry.plan)]
    printer.parts(parts)


# inspect, verify, gaps, transactions


def show_inspection(entry: InspectedPartition, printer: Printer) -> None:
    """Print what one of these commands found in a partition."""
    from kcompact.views import segments

    printer.parts([Heading(name=entry.name, detail=readable.path_from_here(entry.directory))])
    plan = entry.plan
    if plan is None:
        _show_error(entry, printer)
        return
    if entry.gaps is not None or entry.transactions is not None:
        printer.parts(_history(entry, plan))
        _show_error(entry, printer)
        return
    parts = [*segments.facts_parts(plan, entry), *segments.segments_section(plan, entry.contents).parts]
    parts += [segments.notes(plan), segments.other_files(plan)]
    printer.parts([*parts, segments.findings_part(entry.findings)] if entry.findings is not None else parts)
    # The findings name the damage already.
    if entry.findings is None or not isinstance(entry.error, CorruptDataError):
        _show_error(entry, printer)


def _history(entry: InspectedPartition, plan: CleanPlan) -> list[Part]:
    """Return the gaps or the transactions of one partition, whichever there are."""
    from kcompact.views.segments import notes

    parts: list[Part] = []
    if entry.gaps is not None:
        from kcompact.views.gaps import gaps_section

        parts += gaps_section(entry.gaps).parts
    if entry.transactions is not None:
        from kcompact.views.transactions import transactions_section

        parts += transactions_section(entry.transactions).parts
    if plan.last_stable_offset < plan.log.log_end_offset or plan.log.is_cluster_metadata:
        parts.append(notes(plan))  # They say where the view of a consumer ends, and why.
    return parts


def _show_error(entry: InspectedPartition, printer: Printer) -> None:
    if entry.error is not None:
        printer.lines(f"  error: {readable.relative_to_here(str(entry.error))}")


def show_file(entry: FileEntry, printer: Printer) -> None:
    """Print what was found in a single file."""
    from kcompact.cli.json.inspect import FILE
    from kcompact.views.segments import VERIFIED

    printer.line(f"{entry.path}: {entry.kind or 'unknown'}, {entry.size_bytes or 0:,} bytes")
    for fields in entry.entries or ():
        printer.line("  " + dump.line(fields))
    if entry.contents is not None:
        counts = {name: value for name, value in FILE.of(entry)["contents"].items() if value is not None}
        printer.line("  " + ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in counts.items()))
    for finding in entry.findings or ():
        location = (("position", finding.position), ("offset", finding.offset))
        where = "".join(f", {name} {value}" for name, value in location if value is not None)
        printer.line(f"  {finding.severity}: {finding.file}{where}: {finding.problem}")
    if entry.findings is not None and not entry.findings:
        printer.line(f"  {VERIFIED}")
    if entry.error:
        printer.lines(f"  error: {entry.error}")


# groups


def show_groups(entries: Sequence[GroupsEntry]) -> None:
    """Print the groups of all partitions in one table, and the totals."""
    from kcompact.views.groups import groups_parts

    read = [(entry.directory.name.rpartition("-")[2], entry.groups) for entry in entries if entry.groups is not None]
    if read:
        Printer().parts(groups_parts(read))


# recover, restore


def show_recovery(entries: Sequence[RecoveryEntry], removed: Sequence[Path], printer: Printer) -> None:
    """Print what recovery did to each partition; of many on a terminal only where there was something to do.

    `removed` is what killed runs had left elsewhere.
    """
    from kcompact.swap.recovery_end import RecoveryReport
    from kcompact.views.outcome import FEW, by_status

    listed = unlocked(entries)
    is_folded = printer.lines_to_fill is not None and len(listed) > FEW
    nothing = RecoveryReport().action
    shown = [entry for entry in listed if not is_folded or entry.status != nothing]
    table = Table(
        columns=("partition", "status", "what"),
        rows=tuple(
            row(entry.directory.name, _status(entry), "; ".join(_recovery_steps(entry.report or RecoveryReport())))
            for entry in shown
        ),
        whole=("status",),
    )
    paths = [readable.relative_to_here(readable.safe(str(path))) for path in removed]
    said = [f"removed what a killed run had left: {path}" for path in paths]
    if len(shown) < len(listed):
        said.append(by_status(sorted((entry.status for entry in entries), key=lambda status: status == nothing)))
    printer.parts([*([table] if shown else []), lines(*said, is_close=True, is_indented=False)])


def _status(entry: RecoveryEntry | RestoreEntry) -> Cell:
    return Cell(text=entry.status, tone=Tone.BAD if entry.error else None)


def _recovery_steps(report: RecoveryReport) -> list[str]:
    steps = []
    if report.finished is not None:
        steps.append(f"the swap of segment {report.finished} was finished")
    if report.undone is not None:
        steps.append(f"the swap of segment {report.undone} was undone")
    if report.checkpoint is not None:
        steps.append(f"checkpoint {report.checkpoint} written")
    steps += [f"{name} removed" for name in report.removed_staging]
    if report.broker_files:
        names = f": {', '.join(report.broker_files)}" if len(report.broker_files) <= _MOST_NAMED else ""
        steps.append(f"{readable.counted(len(report.broker_files), 'file')} of a broker renamed or removed{names}")
    steps += [f"{name} left for the broker" for name in report.left_behind]
    return steps


def show_restore(entries: Sequence[RestoreEntry], printer: Printer) -> None:
    """Print what `restore` did to each partition."""
    listed = unlocked(entries)
    table = Table(
        columns=("partition", "status", "files", "size", "checkpoint"),
        rows=tuple(
            row(
                entry.directory.name,
                _status(entry),
                entry.files,
                None if entry.size_bytes is None else readable.size(entry.size_bytes),
                offset(entry.checkpoint),
            )
            for entry in listed
        ),
        whole=("status",),
    )
    printer.parts([table] if listed else [])
