"""Prints the entries of `cli.entries` for people: the name of each partition or file, and the views of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output.printer import Printer
from kcompact.views.parts import lines

if TYPE_CHECKING:
    from kcompact.cli.entries import KeysEntry, TopicKeys


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
            printer.heading(topic.topic, f"{counted:,}{of_all} partitions")
            names = [entry.name for entry in topic.incomplete]
            printer.parts(topic_section(topic.counted, incomplete=names, print_data=print_data).parts)


def _show_keys_of_partition(entry: KeysEntry, older_than_ms: int | None, printer: Printer, *, print_data: bool) -> None:
    from kcompact.views import keys

    printer.heading(entry.name, readable.path_from_here(entry.directory))
    if entry.keys is None:
        # The whole error, with the next command, is on standard error.
        message = "nothing can be read" if entry.error is None else readable.relative_to_here(str(entry.error))
        printer.parts([lines(f"not counted: {message.splitlines()[0]}")])
        return
    section = keys.keys_section(entry.keys, older_than_ms=older_than_ms, print_data=print_data)
    parts = list(section.parts)
    if entry.plan is not None and entry.keys.counts.undecided_records.number:
        parts += [keys.undecided(entry.keys, entry.plan), lines(*_notes(entry), is_close=True)]
    printer.parts(parts)


def _notes(entry: KeysEntry) -> list[str]:
    return [] if entry.plan is None else [f"note: {note}" for note in entry.plan.log.notes]
