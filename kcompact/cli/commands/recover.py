"""`recover`: finishes or undoes a swap that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kcompact.cli.entries import RecoveryEntry, shared_exit_code
from kcompact.cli.failures import complain, delivered, storage_errors
from kcompact.cli.locks import Locks
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, recovery_entry
from kcompact.cli.planning import named_partitions
from kcompact.cli.signals import stop_request
from kcompact.errors import KcompactError
from kcompact.swap.recovery import RecoveryReport, recover


def run(paths: Sequence[Path], *, as_json: bool) -> int:
    """Finish or undo the interrupted swap of each partition, and return the exit code."""
    with stop_request(), ExitStack() as stack:
        locks = Locks(stack, only_check=False)
        directories, unusable = named_partitions(paths)
        entries = [_recovered(directory, locks) for directory in directories]
        entries += [_failed(entry.directory, entry.error) for entry in unusable if entry.error is not None]

    def show() -> None:
        if as_json:
            described = [recovery_entry(entry) for entry in entries]
            streams.echo(dumps(document("recover", None, partitions=described)))
        else:
            from kcompact.cli.output.outcome import show_recovery
            from kcompact.cli.output.printer import Printer

            show_recovery(entries, Printer())

    lost = delivered(show)
    for entry in entries:
        if entry.error is not None:
            complain(entry.error)
    return shared_exit_code(entry.exit_code for entry in entries) or lost


def _recovered(directory: Path, locks: Locks) -> RecoveryEntry:
    try:
        with storage_errors(directory):
            locks.of(directory)
            report = recover(directory, log_dir=directory.parent)
    except KcompactError as problem:
        return _failed(directory, problem)
    return RecoveryEntry(directory=directory, report=report, status=action_of(report))


def _failed(directory: Path, problem: KcompactError) -> RecoveryEntry:
    return RecoveryEntry(directory=directory, report=RecoveryReport(), status="failed", error=problem)


def action_of(report: RecoveryReport) -> str:
    """Return what recovery did: `finished`, `undone`, `tidied` or `nothing-to-do`."""
    if report.finished is not None:
        return "finished"
    if report.undone is not None:
        return "undone"
    return "tidied" if report.changed else "nothing-to-do"
