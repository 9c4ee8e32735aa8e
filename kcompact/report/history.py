"""Where offsets are missing, and what that proves about compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.report.facts import PartitionFacts
from kcompact.report.parts import Illustrated, page_section
from kcompact.views.parts import Cell, Section, Table, Tone, row

if TYPE_CHECKING:
    from kcompact.inspect.gap_facts import GapWalk

_READERS = ("on_disk", "read_uncommitted", "read_committed")
_NAMES = {"on_disk": "the files", "read_uncommitted": "a consumer", "read_committed": "a read_committed consumer"}


def history_section(facts: PartitionFacts) -> Section | Illustrated | None:
    """Return the section about gaps; None if no offset was counted."""
    gaps = facts.gaps
    if gaps is None or gaps.on_disk.rows == 0:
        return None
    from kcompact.inspect.gap_facts import Label

    offsets = gaps.counted_to_offset - gaps.log_start_offset
    missing = gaps.counts.missing
    rule = "Kafka gives every record the next offset, so compaction has removed those that are missing."
    texts = [
        f"{gaps.counts.present:,} of {offsets:,} offsets have a record, "
        f"{readable.percent(gaps.counts.present, offsets)}; "
        + (f"{missing:,} are missing. {rule}" if missing else "none is missing.")
    ]
    if gaps.counted_to_offset < gaps.log_end_offset:
        texts.append(f"Counted up to offset {gaps.counted_to_offset}, because of damage.")
    facts_table = Table(
        caption="What that proves about compaction",
        columns=("label", "fact"),
        rows=tuple(
            (Cell(text=str(each.label), tone=Tone.GOOD if each.label is Label.PROOF else Tone.CAUTION), *row(each.text))
            for each in gaps.evidence
        ),
        sentences=frozenset({"fact"}),
    )
    walks: dict[str, GapWalk] = {}
    for name in _READERS:
        walk: GapWalk = getattr(gaps, name)
        if walk not in walks.values():
            walks[_NAMES[name]] = walk
    readers = Table(
        caption="As a reader sees it",
        columns=("reader", "rows", "gaps", "first gap", "last gap", "its row", "rows since"),
        rows=tuple(
            row(
                name,
                walk.rows,
                walk.gaps,
                _offset(walk.first_gap_offset),
                _offset(walk.last_gap_offset),
                walk.last_gap_row,
                walk.contiguous_rows_since_gap,
            )
            for name, walk in walks.items()
        ),
        numbers=frozenset({"rows", "gaps", "first gap", "last gap", "its row", "rows since"}),
    )
    return page_section(title="Gaps, and what they prove", text=tuple(texts), tables=(facts_table, readers))


def _offset(offset: int | None) -> str | None:
    return None if offset is None else str(offset)
