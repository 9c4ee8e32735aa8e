"""Which batches of a compacted log wait for their delete horizons: read from headers, and not more than a few.

A tombstone that a cleaning keeps gets a horizon, in the header of its batch; so does the marker of a transaction. The
first cleaning after the horizon drops it (KIP-534). Only a few headers are read, so that an explanation stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from kcompact.errors import KcompactError
from kcompact.log.batch_headers import headers
from kcompact.plan.clean_plan import CleanPlan
from kcompact.values import dataclass

MOST_BATCHES = 20_000
"""So many headers are read for all partitions together: a fifth of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizons:
    """The delete horizons of some batches, in Unix milliseconds: `waiting` at the time of the plan, or `passed`.

    `batches` were looked at, from the start of the log; `is_complete`: all of the closed segments were.
    """

    batches: int
    is_complete: bool
    waiting: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


def read_horizons(plan: CleanPlan, *, most_batches: int) -> Horizons:
    """Return the horizons in the closed segments of a log. Damage ends the look: other commands report it."""
    seen, is_complete = 0, False
    horizons_ms: list[int] = []
    segments = plan.log.segments[:-1]
    all_headers = (headers(plan.log.file(each.log_name), end_position=each.size_bytes) for each in segments)
    with suppress(KcompactError, OSError):
        for _, header in chain.from_iterable(all_headers):
            if seen == most_batches:
                break
            seen += 1
            if header.delete_horizon_ms is not None:
                horizons_ms.append(header.delete_horizon_ms)
        else:
            is_complete = True
    return Horizons(
        batches=seen,
        is_complete=is_complete,
        waiting=tuple(sorted(each for each in horizons_ms if each > plan.now_ms)),
        passed=tuple(sorted(each for each in horizons_ms if each <= plan.now_ms)),
    )


def read_all_horizons(plans: Sequence[CleanPlan]) -> list[Horizons | None]:
    """Return the horizons of each log, None for one that is not compacted. All share the headers that may be read."""
    left, logs = MOST_BATCHES, sum(plan.config.compacts for plan in plans)
    horizons: list[Horizons | None] = []
    for plan in plans:
        one = read_horizons(plan, most_batches=left // logs) if plan.config.compacts else None
        if one is not None:
            left, logs = left - one.batches, logs - 1
        horizons.append(one)
    return horizons
