"""Prints where offsets of a partition are missing, and what that proves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcompact import readable
from kcompact.cli.output.printer import Printer, cell
from kcompact.inspect.gap_facts import Gaps, GapWalk, Label
from kcompact.readable import counted

_STYLES = {Label.PROOF: "bold green", Label.HINT: "yellow"}

_MISSING = {
    "between_batches": "between batches",
    "inside_batches": "inside batches",
    "in_lost_tails": "in lost tails of batches",
    "in_empty_batches": "in empty batches",
}
"""What took offsets, in `OffsetCounts` and in words."""

_COLUMNS = ("reader", "rows", "gaps", "first gap", "last gap", "its row", "its time", "last offset", "rows since")


def show_gaps(gaps: Gaps, printer: Printer) -> None:
    """Print the gaps of a partition: how much is there, what each reader finds, and what that proves."""
    printer.items(((cell(name), cell(sentence)) for name, sentence in _offsets(gaps)), width=7)
    _show_readers(gaps, printer)
    printer.line()
    facts = ((cell(fact.label, _STYLES[fact.label]), cell(fact.text)) for fact in gaps.evidence)
    printer.items(facts, width=max(map(len, Label)))


def _offsets(gaps: Gaps) -> Iterator[tuple[str, str]]:
    counts = gaps.counts
    yield "offsets", _present(gaps)
    if counts.missing:
        parts = [f"{getattr(counts, name):,} {words}" for name, words in _MISSING.items() if getattr(counts, name)]
        yield "missing", ", ".join(parts)
    if gaps.counted_to_offset < gaps.log_end_offset:
        end = gaps.log_end_offset
        yield "counted", f"up to offset {gaps.counted_to_offset}, because of damage; the log ends at {end}"


def _present(gaps: Gaps) -> str:
    ratio = gaps.on_disk.offsets_present_ratio
    if ratio is None:
        ends = "starts and ends" if gaps.log_start_offset == gaps.log_end_offset else "starts"
        return f"none, the log {ends} at {gaps.log_start_offset}"
    offsets = gaps.counted_to_offset - gaps.log_start_offset
    present = f"{gaps.counts.present:,} of {offsets:,} have a record ({100 * ratio:.1f} %)"
    missing = f"{gaps.counts.missing:,} are missing; {counted(gaps.on_disk.gaps, 'gap')} between records"
    return f"{gaps.log_start_offset} to {gaps.counted_to_offset}: {present}, {missing}"


def _show_readers(gaps: Gaps, printer: Printer) -> None:
    """Print what is on the disk, and what consumers see if that is something else."""
    if not gaps.on_disk.rows:
        return
    walks = {"the files": gaps.on_disk}
    if gaps.read_uncommitted != gaps.on_disk:
        walks["a consumer"] = gaps.read_uncommitted
    if gaps.read_committed not in (gaps.read_uncommitted, gaps.on_disk):
        walks["read_committed"] = gaps.read_committed
    printer.line()
    rows = [dict(zip(_COLUMNS, _cells(name, walk), strict=True)) for name, walk in walks.items()]
    numbers = [name for name in _COLUMNS if name not in ("reader", "its time")]
    optional = ("first gap", "last offset", "gaps", "its time")
    printer.table(_COLUMNS, rows, numbers=numbers, whole=_COLUMNS, optional=optional)


def _cells(name: str, walk: GapWalk) -> list[Any]:
    timestamp = walk.last_gap_timestamp_ms
    numbers = (walk.first_gap_offset, walk.last_gap_offset, walk.last_gap_row)
    return [
        cell(name),
        cell(walk.rows),
        cell(walk.gaps),
        *map(cell, numbers),
        cell(readable.time(timestamp)),
        cell(walk.last_offset),
        cell(walk.contiguous_rows_since_gap),
    ]
