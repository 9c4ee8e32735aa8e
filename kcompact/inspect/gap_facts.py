"""What is found about the missing offsets of a log, and what shows that a compaction has rewritten it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kcompact.errors import KcompactError
from kcompact.inspect.gap_batches import OffsetCounts
from kcompact.inspect.gap_walk import Walk


class Label(StrEnum):
    """How much a fact says."""

    PROOF = "proof"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact: a sentence, and its values by name. `name` is stable, the text is not."""

    label: Label
    name: str
    text: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapWalk:
    """What one reader of the log finds: rows, gaps between them, and the first and the last gap.

    Rows and offsets are None without a row, and the gap fields without a gap; then all rows are contiguous. The ratio
    is that of the rows to the offsets of the log, None for a log without offsets.
    """

    rows: int
    gaps: int
    first_gap_offset: int | None
    last_gap_offset: int | None
    last_gap_row: int | None
    last_gap_timestamp_ms: int | None
    last_offset: int | None
    last_row: int | None
    contiguous_rows_since_gap: int | None
    offsets_present_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGaps:
    """The offsets of one segment. `first_offset` is that of its first record, of data or of a marker.

    `first_gap_offset` and `last_gap_offset` are rows of this segment; a gap before its first row is not among them.
    """

    base_offset: int
    end_offset: int
    counts: OffsetCounts
    first_offset: int | None
    gaps: int
    first_gap_offset: int | None
    last_gap_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Where offsets of a log are missing.

    `on_disk` is the walk over the files, in which markers are no gaps. In `read_uncommitted` and `read_committed`, the
    walks of consumers, they are; the former ends at the high watermark, the latter at the last stable offset, and has
    aborted records as gaps. `dirty` are the rows and the missing offsets from the first dirty offset on. What is
    missing before the first row and after the last one is None without a row. The count ended at `counted_to_offset`,
    with `damage` before the log end. Damage to records that were not needed is not found.
    """

    log_start_offset: int
    log_end_offset: int
    counted_to_offset: int
    first_dirty_offset: int
    checkpoint_offset: int | None
    on_disk: GapWalk
    read_uncommitted: GapWalk
    read_committed: GapWalk
    dirty: Walk
    missing_before_first_row: int | None
    missing_after_last_row: int | None
    counts: OffsetCounts
    segments: tuple[SegmentGaps, ...]
    evidence: tuple[Evidence, ...]
    damage: KcompactError | None = None
