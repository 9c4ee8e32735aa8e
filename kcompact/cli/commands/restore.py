"""`restore`: puts back what `clean --keep-replaced` has replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.delivery import deliver
from kcompact.cli.option_types import NamedPath
from kcompact.cli.output import streams
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.errors import KcompactError, storage_errors
from kcompact.readable import shown, some_of
from kcompact.remarks import Note, RemarkCode

if TYPE_CHECKING:
    from kcompact.cleaner.in_use import Locks, UseCheck
    from kcompact.cleaner.restore import RestoredPartition
    from kcompact.cli.entries import Restored
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.walk import Answer


@options.command("restore", settings=False)
@click.argument("kept", metavar="DIR", type=NamedPath(readable=False))
@click.option("--check", "only_check", is_flag=True, help="Only verify DIR and the partitions. Change nothing.")
def command(kept: Path, only_check: bool, as_json: bool) -> int:
    """Put back what `clean --keep-replaced DIR` has replaced.

    Every kept file is verified first, and that the partition is still as the cleaning has left it. Then the files and
    the checkpoint are put back as they were, under the lock of the log directory. DIR is not changed. If this is
    interrupted, run it again.

    \b
    Example:
      kcompact restore --check /var/lib/kept
    """
    from kcompact.cleaner.in_use import Locks, UseCheck
    from kcompact.cleaner.restore import kept_partitions
    from kcompact.cli.entries import complain_of
    from kcompact.cli.json.recovery import RESTORE
    from kcompact.exit_codes import gravest_exit_code

    with stop_request() as stop, ExitStack() as stack:
        partitions = kept_partitions(kept)
        locks, in_use = Locks(stack, only_check=only_check, notes_held=only_check), UseCheck(only_notes=only_check)
        stop.is_deferred = True  # A swap that has begun is always finished.
        entries = [_entry(each, kept, locks, in_use, stop, only_check=only_check) for each in partitions]
        entries.sort(key=lambda each: each.directory)
        streams.tell_notes([*locks.notes, *in_use.notes])

    def show(printer: Printer) -> None:
        from kcompact.cli.output.entries import show_restore

        show_restore(entries, printer)
        if any(entry.found and entry.found.status.startswith("restored") for entry in entries):
            streams.tell_notes([_on_links(kept, entries)])

    content = {"kept": kept, "checked": only_check, "partitions": entries}
    lost = deliver(RESTORE, lambda: content, show, as_json=as_json, only_reads=False)
    complain_of(entries)
    return stop.exit_code or gravest_exit_code(entry.exit_code for entry in entries) or lost


def _on_links(kept: Path, entries: Sequence[Answer[Restored]]) -> Note:
    """Return what to do with the directory of `keep_replaced`: only when all is back it holds no old segment alone."""
    missing = [shown(entry.directory.name) for entry in entries if entry.error is not None]
    if missing:
        return Note.of(RemarkCode.KEPT_NEEDED, path=shown(kept), names=some_of(missing, at_most=1))
    return Note.of(RemarkCode.KEPT_RESTORED, path=shown(kept))


def _entry(
    partition: RestoredPartition, kept: Path, locks: Locks, in_use: UseCheck, stop: StopRequest, *, only_check: bool
) -> Answer[Restored]:
    from kcompact.cleaner.restore import restore_partition
    from kcompact.cli.entries import Restored
    from kcompact.plan.walk import Answer

    directory = Path(partition.subject.directory) if partition.subject else kept / partition.name
    try:
        if partition.error is not None:
            raise partition.error
        if partition.subject is None:  # The cleaning was killed before anything was replaced.
            return Answer(directory=directory, found=Restored("nothing-to-do"))
        stop.check(directory)
        with storage_errors(directory):
            verified = restore_partition(
                kept, partition.subject, locks, in_use, check=lambda: stop.check(directory), only_check=only_check
            )
    except KcompactError as problem:
        return Answer(directory=directory, error=problem)
    status = "nothing-to-do" if verified.is_done else "restorable" if only_check else "restored"
    restored = Restored(
        status=f"{status}-in-part" if verified.left_out else status,
        files=sum(len(group.old) for group in verified.groups),
        size_bytes=verified.size_bytes,
        checkpoint=verified.checkpoint_offset,
        not_restored=tuple(group.base_offset for group in verified.left_out),
    )
    return Answer(directory=directory, found=restored, error=verified.moved_on)
