"""The log directories with many partitions: which there are, and their goals.

The partitions of a shape are all alike. `very-many-small` has more of the partitions of `many-small`, so that the costs
of a partition among few and among many can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.bench.cases import DOCTOR, IN_PROCESS, INSPECT, MANY, PLAN, REPORT, Case, Goal, LogSpec, keys_for

ALL = "many"
"""Stands for all of SHAPES."""

SURVIVE_PERCENT = 10
SMALL_RECORDS = 170  # 20 kB
QUICK_SHARE = 50
FEW, MOST = 1000, 5000

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

RATIOS = {"many-1MB": 0.5, "many-10MB": 0.3}
"""Of wall and processor time to a warm Kafka."""
GROWTH = 1.1
"""Of the processor time of a partition among MOST by that among FEW."""
STATS, OPENS = 100, 60
PLAN_S = 0.002


def case(name: str, *, engines: Sequence[str], runs: int, seed: int, quick: bool = False) -> Case:
    """Return the case of a shape; `quick`: with a fiftieth of its partitions."""
    log = replace(SHAPES[name], seed=seed)
    if quick:
        log = replace(log, partitions=max(2, log.partitions // QUICK_SHARE))
    return Case(
        name=f"{log.partitions:,} partitions, {name}",
        log=log,
        engines=tuple(engine for engine in engines or MANY if engine in MANY),
        runs=runs,
        goals=() if quick else tuple(_goals(name)),
        has_many=True,
    )


def is_small(case_name: str) -> bool:
    """Return whether this is the name of the case of `many-small` or of `very-many-small`."""
    return case_name.endswith("many-small")


def _goals(name: str) -> Iterable[Goal]:
    for figure in ("ratio", "cpu_ratio"):
        if name in RATIOS:
            yield Goal(engine=IN_PROCESS, of=figure, limit=RATIOS[name])
    yield Goal(engine=IN_PROCESS, of="stats", limit=STATS)
    yield Goal(engine=IN_PROCESS, of="opens", limit=OPENS)
    yield Goal(engine=PLAN, of="partition_cpu_s", limit=PLAN_S)


GROWING = (IN_PROCESS, PLAN, INSPECT, DOCTOR, REPORT)
"""The engines whose growth has a goal."""
