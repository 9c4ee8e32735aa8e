"""The splits of a cleaning."""

from __future__ import annotations

from dataclasses import replace

from kcompact.config.settings import LONG_MAX
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.job import Split
from kcompact.stages.splits import cut


def number_splits(
    plan: CleanPlan,
    split_bytes: int,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    *,
    on_other_machines: bool = False,
) -> dict[int, list[Split]]:
    """Return the splits of each segment, by base offset. Numbers rise over all segments.

    A split is not much larger than `split_bytes`, unless one of its batches is. Raises CorruptDataError, and
    BatchTooLargeError for a batch that `memory_bytes` do not allow to be read.
    """
    numbered_splits, number = {}, 0
    horizon_ms = legacy_horizon_ms(plan)
    for segment in plan.segments:
        end_offset = min(plan.log.end_of(segment), plan.first_uncleanable_offset)
        splits = cut(plan.log, segment, split_bytes, memory_bytes, end_offset=end_offset)
        identity = segment.files[0].elsewhere() if on_other_machines else segment.files[0]
        numbered_splits[segment.base_offset] = [
            replace(
                split,
                number=number + index,
                identity=identity,
                keeps_legacy_tombstones=segment.last_modified_ms > horizon_ms,
            )
            for index, split in enumerate(splits)
        ]
        number += len(splits)
    return numbered_splits


def legacy_horizon_ms(plan: CleanPlan) -> int:
    """Return the legacy delete horizon: segments modified at or before it lose their tombstones of magic 0 and 1.

    The horizon is the modification time of the last clean segment minus `delete.retention.ms`; 0 without a clean
    segment. Rule: `Cleaner.doClean`. With a `delete.retention.ms` that the topic may not have, no segment is so old.
    """
    if not plan.config.expires_without_horizon:
        return -LONG_MAX
    clean = [segment for segment in plan.log.segments if segment.base_offset < plan.first_dirty_offset]
    return clean[-1].last_modified_ms - plan.config.delete_retention_ms if clean else 0
