"""The log directories with many partitions, and the partitions with many segments: which there are, and their goals.

The partitions of a shape are all alike. `very-many-small` has more of the partitions of `many-small`, so that the costs
of a partition among few and among many can be compared; `many-segments` has more of the segments of `few-segments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bench.cases import DOCTOR, IN_PROCESS, INSPECT, MANY, PLAN, REPORT, Case, Goal, LogSpec, keys_for

ALL = "many"
"""Stands for all of SHAPES."""
SEGMENTS = "segments"
"""Stands for all of IN_SEGMENTS."""

SURVIVE_PERCENT = 10
SMALL_RECORDS = 170  # 20 kB
QUICK_SHARE = 50
FEW, MOST = 1000, 5000
FEW_SEGMENTS, MOST_SEGMENTS = 250, 2000
BATCHES_OF_SEGMENT = 5

_SMALL = LogSpec(records=SMALL_RECORDS, value_bytes=91, keys=keys_for(SMALL_RECORDS, SURVIVE_PERCENT))
_UNFRIENDLY = replace(_SMALL, partitions=200)

SHAPES = {
    "many-1MB": LogSpec(records=8550, value_bytes=91, keys=keys_for(8550, SURVIVE_PERCENT), partitions=1000),
    "many-10MB": LogSpec(records=85_500, value_bytes=91, keys=keys_for(85_500, SURVIVE_PERCENT), partitions=300),
    "many-small": replace(_SMALL, partitions=FEW),
    "very-many-small": replace(_SMALL, partitions=MOST),
    "many-one-record": replace(_UNFRIENDLY, batch_records=1),
    "many-transactional": replace(_UNFRIENDLY, batch_records=1, transaction_records=3, abort_every=10),
    "many-lz4": replace(_UNFRIENDLY, codec="lz4"),
    "many-zstd": replace(_UNFRIENDLY, codec="zstd"),
    "many-sparse": replace(_UNFRIENDLY, clean_records=SMALL_RECORDS * 2 // 3),
}
"""`many-sparse` has been cleaned by Kafka before: offsets are missing, and a third of the records is a dirty tail."""


def _in_segments(segments: int) -> LogSpec:
    """Return a log in one partition, with the records of a small partition in each segment."""
    records = segments * SMALL_RECORDS
    keys, batch_records = keys_for(records, SURVIVE_PERCENT), SMALL_RECORDS // BATCHES_OF_SEGMENT
    return LogSpec(records=records, value_bytes=91, keys=keys, batch_records=batch_records, segments=segments)


IN_SEGMENTS = {"few-segments": _in_segments(FEW_SEGMENTS), "many-segments": _in_segments(MOST_SEGMENTS)}

RATIOS = {"many-1MB": 0.5, "many-10MB": 0.3}
"""Of wall and processor time to a warm Kafka."""
STATS, OPENS = 100, 60
PLAN_S = 0.002


def case(name: str, *, engines: Sequence[str], runs: int, seed: int, quick: bool = False) -> Case:
    """Return the case of a shape; `quick`: with a fiftieth of its partitions or segments."""
    log = replace((SHAPES | IN_SEGMENTS)[name], seed=seed)
    if quick and name in IN_SEGMENTS:
        log = replace(_in_segments(max(2, log.segments // QUICK_SHARE)), seed=seed)
    elif quick:
        log = replace(log, partitions=max(2, log.partitions // QUICK_SHARE))
    return Case(
        name=f"{log.parts:,} {'segments' if name in IN_SEGMENTS else 'partitions'}, {name}",
        log=log,
        engines=tuple(engine for engine in engines or MANY if engine in MANY),
        runs=runs,
        goals=() if quick or name in IN_SEGMENTS else tuple(_goals(name)),
        has_many=True,
    )


def _goals(name: str) -> Iterable[Goal]:
    for figure in ("ratio", "cpu_ratio"):
        if name in RATIOS:
            yield Goal(engine=IN_PROCESS, of=figure, limit=RATIOS[name])
    yield Goal(engine=IN_PROCESS, of="stats", limit=STATS)
    yield Goal(engine=IN_PROCESS, of="opens", limit=OPENS)
    yield Goal(engine=PLAN, of="part_cpu_s", limit=PLAN_S)


class Growth(NamedTuple):
    """A goal: the processor time of a part in one shape by that of a part in another, which has fewer of them."""

    few: str
    most: str
    most_parts: int
    part: str
    limit: float


GROWTHS = (
    Growth(few="many-small", most="very-many-small", most_parts=MOST, part="partition", limit=1.1),
    Growth(few="few-segments", most="many-segments", most_parts=MOST_SEGMENTS, part="segment", limit=1.2),
)
GROWING = (IN_PROCESS, PLAN, INSPECT, DOCTOR, REPORT)
"""The engines whose growth has a goal."""
