"""The lines of a log as `cli.output.dump` defines them, one batch and one record after the other."""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.cli.output.dump import LineForm
from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.format.batch import read_records
from kcompact.log.past_damage import LeftOutParts, Unreadable, readable_batches, unreadable_records


def dump_log(form: LineForm, left_out: LeftOutParts) -> Iterator[str]:
    """Yield the lines of a log file. The unreadable parts are added to `left_out`."""
    yield form.heading()
    for part in readable_batches(form.file):
        if isinstance(part, Unreadable):
            yield _unreadable(form, left_out, part)
            continue
        try:
            records = read_records(part, file=str(form.file))
        except (CorruptBatchError, BatchTooLargeError) as problem:
            yield _unreadable(form, left_out, unreadable_records(part, problem))
            continue
        if form.with_batches:
            yield form.batch_line(part.header, part.position, is_valid=True)
        for record in records:
            yield form.record_line(part.header, part.position, record)


def _unreadable(form: LineForm, left_out: LeftOutParts, part: Unreadable) -> str:
    left_out.add(part)
    return form.unreadable_lines(part)
