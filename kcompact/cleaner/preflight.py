"""What stops a cleaning, found out before anything is written.

The run and the dry run call the same function, so a dry run ends with the error that the run would end with. Nothing
is tried here: the run also finds out by doing. The free space is checked by `space`, because it needs the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.cleaner.options import CleanOptions
from kcompact.errors import KcompactError, storage_errors
from kcompact.format.names import Suffix
from kcompact.log.lock import require_lockable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import expired_segments
from kcompact.swap.attributes import require_same_owners
from kcompact.swap.checkpoint import require_checkpoint
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.staging import require_stageable, require_writable


def obstacle(plan: CleanPlan, options: CleanOptions) -> KcompactError | None:
    """Return the error that stops what `options` want done with a partition, None if nothing does.

    A lock that another process holds is not an obstacle here: the run takes the lock before it plans. The output of
    copies is checked by `copies.output_of`, for all partitions together.
    """
    try:
        with storage_errors(plan.log.directory):
            if options.output is None:
                _require_changeable(plan, options)
    except KcompactError as problem:
        return problem
    return None


def _require_changeable(plan: CleanPlan, options: CleanOptions) -> None:
    log_dir = plan.log.log_dir.path
    require_lockable(log_dir)
    if plan.eligible:
        require_stageable(plan.log.directory)
        with OpenDirectory(plan.log.directory) as directory:
            require_same_owners(directory, _models(plan))
    elif options.apply_retention and plan.config.compacts and _expires(plan):
        require_writable(plan.log.directory)
    if plan.eligible or (plan.checkpoint_reset and plan.config.compacts):
        require_checkpoint(log_dir)


def _expires(plan: CleanPlan) -> bool:
    return bool(expired_segments(plan.log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark))


def _models(plan: CleanPlan) -> Iterator[str]:
    """Yield the files whose owners the new files get: the first of each kind in a group (`attributes.carry_over`)."""
    for group in plan.groups:
        names = [file.name for segment in group for file in segment.files]
        for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
            yield from [name for name in names if name.endswith(suffix)][:1]
