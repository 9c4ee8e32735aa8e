"""Where offsets of a partition are missing, what each reader finds, and what that proves about compaction."""

from __future__ import annotations

from collections.abc import Iterator

from kcompact import readable
from kcompact.questions.gaps.walks import Gaps, GapWalk, Label
from kcompact.views.parts import Cell, Items, Part, Section, Table, Tone, cell, offset, row

_TONES = {Label.PROOF: Tone.GOOD, Label.HINT: Tone.CAUTION}
_MISSING = {
    "between_batches": "between batches",
    "inside_batches": "inside batches",
    "in_lost_tails": "in lost tails of batches",
    "in_empty_batches": "in empty batches",
}
"""What took offsets, in `OffsetCounts` and in words."""
_COLUMNS = ("reader", "rows", "gaps", "first gap", "last gap", "its row", "its time", "last offset", "rows since")


def gaps_section(gaps: Gaps) -> Section:
    """Return how much of a partition is there, what each reader finds, and what that proves."""
    parts: list[Part] = [Items(items=tuple(_offsets(gaps)), width=7)]
    if gaps.on_disk.rows:
        parts.append(_readers(gaps))
    facts = tuple((Cell(text=fact.label, tone=_TONES[fact.label]), fact.text) for fact in gaps.evidence)
    parts.append(Items(items=facts, width=max(map(len, Label)), caption="What that proves about compaction"))
    return Section(title="Gaps, and what they prove", parts=tuple(parts))


def _offsets(gaps: Gaps) -> Iterator[tuple[Cell, str]]:
    counts = gaps.counts
    yield cell("offsets"), _present(gaps)
    if counts.missing:
        parts = [f"{getattr(counts, name):,} {words}" for name, words in _MISSING.items() if getattr(counts, name)]
        yield cell("missing"), ", ".join(parts)
    if gaps.counted_to_offset < gaps.log_end_offset:
        end = gaps.log_end_offset
        yield cell("counted"), f"up to offset {gaps.counted_to_offset}, because of damage; the log ends at {end}"


def _present(gaps: Gaps) -> str:
    if gaps.on_disk.offsets_present_ratio is None:
        ends = "starts and ends" if gaps.log_start_offset == gaps.log_end_offset else "starts"
        return f"none, the log {ends} at {gaps.log_start_offset}"
    offsets = gaps.counted_to_offset - gaps.log_start_offset
    share = readable.percent(gaps.counts.present, offsets)
    present = f"{gaps.counts.present:,} of {offsets:,} have a record ({share})"
    missing = f"{gaps.counts.missing:,} are missing; {readable.counted(gaps.on_disk.gaps, 'gap')} between records"
    return f"{gaps.log_start_offset} to {gaps.counted_to_offset}: {present}, {missing}"


def _readers(gaps: Gaps) -> Table:
    """Return what is on the disk, and what consumers see if that is something else."""
    walks = {"the files": gaps.on_disk}
    if gaps.read_uncommitted != gaps.on_disk:
        walks["a consumer"] = gaps.read_uncommitted
    if gaps.read_committed not in (gaps.read_uncommitted, gaps.on_disk):
        walks["read_committed"] = gaps.read_committed
    return Table(
        caption="As a reader sees it",
        columns=_COLUMNS,
        rows=tuple(_walk(name, walk) for name, walk in walks.items()),
        numbers=[name for name in _COLUMNS if name not in ("reader", "its time")],
        whole=_COLUMNS,
        optional=("first gap", "last offset", "gaps", "its time"),
    )


def _walk(reader: str, walk: GapWalk) -> tuple[Cell, ...]:
    return row(
        reader,
        walk.rows,
        walk.gaps,
        offset(walk.first_gap_offset),
        offset(walk.last_gap_offset),
        walk.last_gap_row,
        readable.time(walk.last_gap_timestamp_ms),
        offset(walk.last_offset),
        walk.contiguous_rows_since_gap,
    )
