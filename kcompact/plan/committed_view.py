"""Where the view of a consumer ends."""

from __future__ import annotations

from kcompact.errors import CorruptDataError
from kcompact.log.index_files import position_near
from kcompact.log.segment_reader import headers
from kcompact.plan.clean_plan import CleanPlan


def end_of_view(plan: CleanPlan) -> int:
    """Return the first offset that a `read_committed` reader does not see: the last stable one, or that of its batch.

    Rule: `FetchIsolation.TXN_COMMITTED`.
    """
    return _end_of_fetch(plan, plan.last_stable_offset)


def end_of_uncommitted_view(plan: CleanPlan) -> int:
    """Return the same of a `read_uncommitted` reader: the high watermark, or the first offset of its batch.

    Rule: `FetchIsolation.HIGH_WATERMARK`.
    """
    return _end_of_fetch(plan, plan.high_watermark)


def _end_of_fetch(plan: CleanPlan, offset: int) -> int:
    """Return where a fetch ends that must not reach an offset: before the batch that the offset lies in.

    Rule: LocalLog.convertToOffsetMetadataOrThrow, LogSegment.read.
    """
    log = plan.log
    segment = next((each for each in reversed(log.segments) if each.base_offset <= offset), None)
    if segment is None or offset >= log.log_end_offset:
        return offset
    path, before = log.directory / segment.log_name, segment.base_offset
    start_position = 0 if log.ignores_indexes else position_near(path, offset - 1)
    try:
        for _, header in headers(path, start_position=start_position, end_position=segment.size_bytes):
            if header.last_offset >= offset:
                # The header of a compressed batch of format 0 or 1 does not have its first offset.
                has_base_offset = header.magic == 2 or not header.codec_id
                is_whole = has_base_offset and header.base_offset >= offset
                return offset if is_whole else max(log.log_start_offset, min(before, offset))
            before = header.next_offset
    except CorruptDataError:  # Found again, and reported, by what reads the records.
        pass
    return offset
