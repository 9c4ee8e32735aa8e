"""`recover`: finishes or undoes a swap that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.delivery import deliver
from kcompact.cli.output import streams
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.readable import counted
from kcompact.remarks import Note, RemarkCode

if TYPE_CHECKING:
    from kcompact.cleaner.in_use import Locks, UseCheck
    from kcompact.errors import KcompactError
    from kcompact.plan.selection import Selection
    from kcompact.plan.walk import Answer
    from kcompact.swap.recovery.end import Recovery, RecoveryReport


@options.command("recover", settings=False, selects=True)
@options.paths
@click.option("--foreign", is_flag=True, help="Finish or undo also what a broker's own interrupted cleaning has left.")
@options.journal(what="about each partition that is recovered")
def command(paths: tuple[Path, ...], selection: Selection, foreign: bool, journal: Path | None, as_json: bool) -> int:
    """Finish or undo a swap that was interrupted.

    A swap whose new segment was committed is finished, any other swap is undone, and the staging directory is removed.
    Every clean does this first. A second run changes nothing. Files that a broker left are listed and not changed, and
    the exit code is 8: the broker finishes or undoes its own swaps when it starts. With --foreign kcompact does it, by
    the rules of the broker, after it has verified the new segments.

    \b
    Example:
      kcompact recover /var/lib/kafka
    """
    from kcompact.cleaner.in_use import Locks, UseCheck
    from kcompact.cleaner.journal import default_journal, journal_at
    from kcompact.cleaner.recovery import recover_each
    from kcompact.cli.entries import complain_of
    from kcompact.cli.json.recovery import RECOVER
    from kcompact.cli.output.entries import show_recovery
    from kcompact.engine.spark.scratch import sweep_scratch
    from kcompact.exit_codes import gravest_exit_code
    from kcompact.log.lock import require_local
    from kcompact.plan.walk import named_partitions

    with stop_request() as stop, ExitStack() as stack:
        directories, unusable = named_partitions(paths, selection)
        require_local(directory.parent for directory in directories)
        stop.is_deferred = True  # The recovery of a partition that has begun is always finished.
        locks, in_use = Locks(stack), UseCheck()
        begin = partial(_begun, locks=locks, in_use=in_use, stop=stop, foreign=foreign)
        written = stack.enter_context(journal_at(journal or default_journal(), directories))
        recovered = recover_each(directories, begin, journal=written)
        entries = [_entry(directory, recovered[directory]) for directory in directories]
        removed = [*locks.removed, *sweep_scratch()]
        entries += unusable
        reports = [(entry.directory, entry.found) for entry in entries if entry.found is not None]
        if any(report.changed for _, report in reports):
            streams.tell_notes(in_use.notes)
        streams.tell_notes(note for _, report in reports for note in report.notes)
        streams.tell_notes(
            _note_on(directory, report.only_copies) for directory, report in reports if report.only_copies
        )

    lost = deliver(
        RECOVER,
        lambda: {"partitions": entries, "removed": removed},
        partial(show_recovery, entries, removed),
        as_json=as_json,
        only_reads=False,
    )
    complain_of(entries)
    return stop.exit_code or gravest_exit_code(entry.exit_code for entry in entries) or lost


def _note_on(directory: Path, only_copies: Sequence[int]) -> Note:
    base_offset, *others = only_copies
    more = f" and those of {counted(len(others), 'more segment')}" if others else ""
    return Note.of(RemarkCode.ONLY_COPY_LEFT, name=directory.name, offset=base_offset, more=more)


def _entry(directory: Path, recovered: RecoveryReport | KcompactError) -> Answer[RecoveryReport]:
    from kcompact.errors import KcompactError
    from kcompact.plan.walk import Answer

    if isinstance(recovered, KcompactError):
        return Answer.failed(directory, recovered)
    return Answer(directory=directory, found=recovered)


def _begun(
    directory: Path, locks: Locks, in_use: UseCheck, stop: StopRequest, *, foreign: bool
) -> Recovery | RecoveryReport:
    from kcompact.swap.recovery.interrupted_round import begin_recovery

    stop.check(directory)
    lock = locks.of(directory)
    assert lock is not None, "only a dry run and a copy take no locks"
    in_use.look_at(directory)
    return begin_recovery(directory, log_dir=directory.parent, foreign=foreign, lock=lock)
