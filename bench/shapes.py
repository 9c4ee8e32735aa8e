"""Which logs are measured: sizes, codecs and shapes, the goals of each, and the lists that options choose."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from bench import many, queries
from bench.cases import (
    COMPARE,
    ENGINES,
    IN_PROCESS,
    INSPECT,
    KAFKA,
    LIST,
    LISTS,
    PLAN,
    REPLICAS,
    SPARK,
    VERIFY,
    Case,
    Goal,
    LogSpec,
    keys_for,
)

COLD_CLEANERS = (KAFKA, SPARK, IN_PROCESS)
"""What runs where not all engines do: the others say nothing about a shape, or take longer than the cleaning."""

CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
BEFORE_ZSTD = 2
"""The formats below this magic know no zstd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many records, with values of how many bytes."""

    records: int
    value_bytes: int

    @property
    def log_bytes(self) -> int:
        return self.records * (self.value_bytes + 26)


SIZES = {
    "10MB": Size(records=85_000, value_bytes=91),
    "117MB": Size(records=1_000_000, value_bytes=91),
    "180MB": Size(records=1_500_000, value_bytes=94),
    "200MB": Size(records=1_700_000, value_bytes=91),
    "1GB": Size(records=8_550_000, value_bytes=91),
    "1.2GB": Size(records=10_000_000, value_bytes=100),
}
"""Named for what they take up uncompressed, with 26 bytes around each value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What makes a log another than the plain one.

    `record_bytes` is what a record takes up where it is not what `Size` says: there are so many more or fewer then.
    """

    log: Mapping[str, Any] = field(default_factory=dict)
    size: str = "117MB"
    record_bytes: int | None = None


PLAIN = "plain"
ONE_RECORD = "one-record"
TRANSACTIONAL = "transactional"
SHORT_TRANSACTIONS = "short-transactions"
HALF = "half-compressible"
ALL_SURVIVING = "all-surviving"
CLEAN_AND_DIRTY = "clean-and-dirty"
PARTITIONS = "partitions"
ONE_RECORD_LOG = {"batch_records": 1, "value_bytes": 33}

SHAPES = {
    PLAIN: Shape(),
    ONE_RECORD: Shape(log=ONE_RECORD_LOG, size="180MB", record_bytes=120),
    TRANSACTIONAL: Shape(log=ONE_RECORD_LOG | {"transaction_records": 100}, size="180MB", record_bytes=120),
    SHORT_TRANSACTIONS: Shape(
        log=ONE_RECORD_LOG | {"transaction_records": 3, "abort_every": 10}, size="180MB", record_bytes=120
    ),
    "tombstones": Shape(log={"values": "none", "value_bytes": 0}, record_bytes=26),
    "1KiB-values": Shape(log={"value_bytes": 1024}, record_bytes=1054),
    "100KiB-values": Shape(log={"value_bytes": 102_400}, record_bytes=102_490),
    HALF: Shape(log={"values": "half", "batch_records": 100}),
    ALL_SURVIVING: Shape(log={"keys": 0}),
    # As many bytes on the disk: what is left of the first part (37 %), and a tail of 60 % with the same keys.
    CLEAN_AND_DIRTY: Shape(),
    PARTITIONS: Shape(log={"partitions": 200}, size="1GB"),
    "magic-0": Shape(log={"magic": 0}, size="10MB", record_bytes=133),
    "magic-1": Shape(log={"magic": 1}, size="10MB", record_bytes=141),
}

LISTING = "listing"
UNIQUE = "unique"
ARTICLE = "article"
LISTED = {
    "text-records": LogSpec(records=1_000_000, value_bytes=91, keys=0),
    "binary-records": LogSpec(records=1_000_000, value_bytes=91, keys=0, values="binary"),
    "small-partitions": LogSpec(records=1000, value_bytes=91, keys=0, partitions=1000),
}
"""The logs of which all records are listed, 117 MB each."""
COMPARED = {
    "replicas": LogSpec(records=4_000_000, value_bytes=91, keys=400_000),
    "replicas-one-record": LogSpec(records=1_500_000, value_bytes=91, keys=150_000, batch_records=1),
    "replicas-transactional": LogSpec(
        records=1_500_000, value_bytes=91, keys=150_000, batch_records=1, transaction_records=3, abort_every=5
    ),
}
"""The logs that are compared with their cleaned copies."""
FIXED_SHAPES = (LISTING, *LISTED, *COMPARED, *many.SHAPES, *many.IN_SEGMENTS, *queries.SHAPES, UNIQUE, ARTICLE)
"""Shapes that exist in one size only."""

UNIQUE_RECORDS = 60_000_000
ARTICLE_RECORDS = 49_042_590
ARTICLE_SURVIVORS = 33_931_680
ARTICLE_KEYS = 5_300_000
"""Of which 94 % turn up in the tail: 89 % of what Kafka's default offset map holds, so that one pass is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for; empty lists: the usual ones."""

    quick: bool = False
    goals: bool = False
    scaling: bool = False
    large: bool = False
    sizes: Sequence[str] = ()
    codecs: Sequence[str] = ()
    survive: Sequence[int] = ()
    batches: Sequence[int] = ()
    shapes: Sequence[str] = ()
    engines: Sequence[str] = ()
    runs: int = 5
    large_runs: int = 1
    large_records: int = UNIQUE_RECORDS
    article_scale: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One case of a list; `batch_records` 0: as the shape has it."""

    size: str
    codec: str = "none"
    survive: int = 10
    shape: str = PLAIN
    batch_records: int = 0


QUICK = [Wanted(size="10MB"), Wanted(size="117MB")]
GOALS = [
    *(Wanted(size="1.2GB", codec=codec, shape=HALF) for codec in CODECS),
    Wanted(size="180MB", shape=TRANSACTIONAL),
    Wanted(size="1GB", shape=PARTITIONS),
]
USUAL = [
    *QUICK,
    Wanted(size="1.2GB"),
    Wanted(size="1.2GB", codec="lz4"),
    Wanted(size="1.2GB", codec="zstd"),
    Wanted(size="1.2GB", survive=50),
    Wanted(size="1.2GB", survive=100),
    Wanted(size="1.2GB", shape=CLEAN_AND_DIRTY),
    *(Wanted(size="1.2GB", codec=codec, shape=HALF) for codec in ("zstd", "gzip", "snappy")),
    *(Wanted(size=SHAPES[name].size, shape=name) for name in (ONE_RECORD, TRANSACTIONAL, SHORT_TRANSACTIONS)),
    *(Wanted(size=SHAPES[name].size, shape=name) for name in ("tombstones", "1KiB-values", "100KiB-values", "magic-1")),
    Wanted(size="1GB", shape=PARTITIONS),
]
"""Not every combination: from the plain log, one thing is varied at a time."""

SCALING = [Wanted(size="1.2GB", codec=codec, shape=HALF) for codec in CODECS]


def chosen(options: Options) -> list[Case]:
    """Return the cases that the options ask for.

    Without any of sizes, codecs, survive, batches and shapes a list; with any, each combination of them, where what is
    missing is a plain one. Raises ValueError for a combination that Kafka does not know.
    """
    combines = bool(options.sizes or options.codecs or options.survive or options.batches or options.shapes)
    if combines:
        wanted = _combined(options)
    elif options.quick or options.goals:
        wanted = QUICK if options.quick else GOALS
    else:
        wanted = SCALING if options.scaling else USUAL
    cases = [_case(one, options) for one in wanted]
    is_usual = not (combines or options.quick or options.goals or options.scaling)
    if LISTING in options.shapes or is_usual:
        cases.append(listing_case(options))
    cases += [listed_case(name, options) for name in LISTED if name in options.shapes or is_usual]
    cases += [compared_case(name, options) for name in COMPARED if name in options.shapes or is_usual]
    cases += [many_case(name, options) for name in (*many.SHAPES, *many.IN_SEGMENTS) if name in options.shapes]
    cases += [case for name in queries.SHAPES if name in options.shapes for case in query_cases(name, options)]
    if UNIQUE in options.shapes or options.large:
        cases.append(unique_case(options))
    if ARTICLE in options.shapes:
        cases.append(article_case(options))
    return [_on_each_number_of_cores(case) for case in cases] if options.scaling else cases


def _combined(options: Options) -> list[Wanted]:
    found: dict[str, Wanted] = {}
    for name in options.shapes or [PLAIN]:
        if name in FIXED_SHAPES:
            continue
        sizes, batches = options.sizes or [SHAPES[name].size], options.batches or [0]
        for size, codec, survive, count in product(sizes, options.codecs or ["none"], options.survive or [10], batches):
            wanted = Wanted(size=size, codec=codec, survive=survive, shape=name, batch_records=count)
            found.setdefault(_name(wanted), wanted)  # A shape with batches of its own is the same for each `count`.
    return list(found.values())


def _name(wanted: Wanted) -> str:
    log = SHAPES[wanted.shape].log
    parts = [wanted.size, wanted.codec]
    parts += [f"{wanted.survive}%"] if _follows_survive(wanted.shape) else []
    parts += [wanted.shape] if wanted.shape != PLAIN else []
    parts += [f"{wanted.batch_records} a batch"] if wanted.batch_records and "batch_records" not in log else []
    return " ".join(parts)


def _follows_survive(shape: str) -> bool:
    return shape not in (ALL_SURVIVING, CLEAN_AND_DIRTY)


def _case(wanted: Wanted, options: Options) -> Case:
    plain = wanted.shape == PLAIN and not wanted.batch_records and not options.scaling
    log = log_of(wanted, seed=options.seed)
    return Case(
        name=_name(wanted),
        log=log,
        engines=_engines(options, ENGINES if plain else COLD_CLEANERS),
        runs=options.runs,
        goals=goals_of(wanted),
        beside=replace(log, transaction_records=0, abort_every=0) if wanted.shape == TRANSACTIONAL else None,
    )


def log_of(wanted: Wanted, *, seed: int) -> LogSpec:
    """Return the log of one case. Raises ValueError where Kafka knows no such log."""
    size, shape = SIZES[wanted.size], SHAPES[wanted.shape]
    partitions = shape.log.get("partitions", 1)
    records = size.records if shape.record_bytes is None else size.log_bytes // shape.record_bytes
    records = max(1, records // partitions)
    keys = keys_for(records, wanted.survive)
    fields: dict[str, Any] = {
        "records": records,
        "value_bytes": size.value_bytes,
        "keys": keys,
        "batch_records": wanted.batch_records,
    }
    if wanted.shape == CLEAN_AND_DIRTY:
        fields |= {"records": records + records * 6 // 10, "clean_records": records, "keys": records * 4 // 10}
    log = LogSpec(codec=wanted.codec, seed=seed, **{**fields, **shape.log})
    if log.codec == "zstd" and log.magic < BEFORE_ZSTD:
        raise ValueError(f"a log of magic {log.magic} has no zstd")
    return log


def _engines(options: Options, default: Iterable[str], allowed: Iterable[str] = ENGINES) -> tuple[str, ...]:
    return tuple(name for name in options.engines or default if name in allowed)


# -- goals --------------------

LIMITS = {
    ("117MB", "none"): (1.6, 0.4),
    ("1.2GB", "none"): (0.5, 0.25),
    ("1.2GB", "lz4"): (0.6, 0.4),
    ("1.2GB", "zstd"): (0.6, 0.4),
}
"""Of the ratio to Kafka on a wholly dirty log, by size and codec: for Spark and in-process."""

LIMITS_AT_10_PERCENT = {
    "none": (0.32, 0.13),
    "lz4": (0.38, 0.20),
    "zstd": (0.42, 0.28),
    "gzip": (0.45, 0.35),
    "snappy": (0.45, 0.35),
}
"""The same for 10 million records with 1 million keys, by codec; for zstd with values that it about halves."""

LIMITS_OF_PARTITIONS = (0.5, 0.3)


def goals_of(wanted: Wanted) -> tuple[Goal, ...]:
    """Return the goals for the cleaning of such a log."""
    key = (wanted.size, wanted.codec)
    if wanted.shape == TRANSACTIONAL and key == ("180MB", "none"):
        of = [("beside", 1.5), ("peak_bytes", 400e6)]
        return tuple(Goal(engine=engine, of=name, limit=limit) for engine in (SPARK, IN_PROCESS) for name, limit in of)
    if wanted.shape == PARTITIONS and key == ("1GB", "none"):
        return _ratio_goals(LIMITS_OF_PARTITIONS)
    if wanted.shape not in (PLAIN, HALF) or wanted.batch_records:
        return ()
    if wanted.size == "10MB" and wanted.shape == PLAIN:
        return (
            Goal(engine=SPARK, of="wall_s", limit=3.0),
            Goal(engine=IN_PROCESS, of="wall_s", limit=0.7),
        )
    if wanted.size == "1.2GB" and wanted.survive == 10 and (wanted.shape == HALF or wanted.codec != "zstd"):
        return _ratio_goals(LIMITS_AT_10_PERCENT[wanted.codec])
    return _ratio_goals(LIMITS[key]) if key in LIMITS else ()


def _ratio_goals(limits: tuple[float, float]) -> tuple[Goal, ...]:
    return tuple(
        Goal(engine=engine, of="ratio", limit=limit) for engine, limit in zip((SPARK, IN_PROCESS), limits, strict=True)
    )


# -- cases of one size --------------------


def listing_case(options: Options) -> Case:
    """Return the case of a partition of 10 GB that is only looked at: few records, all with the same value."""
    return Case(
        name="10GB none, only read",
        log=LogSpec(records=9_700_000, value_bytes=1000, keys=0, values="fixed", seed=options.seed),
        engines=_engines(options, ENGINES, (INSPECT, PLAN, VERIFY)),
        runs=options.runs,
        goals=(
            Goal(engine=INSPECT, of="wall_s", limit=1.0),
            Goal(engine=PLAN, of="wall_s", limit=1.0),
            Goal(engine=VERIFY, of="bytes_per_cpu_s", limit=1e9, at_least=True),
        ),
    )


def listed_case(name: str, options: Options) -> Case:
    """Return the case of a log of which kcompact and Kafka's tool list all records with their contents."""
    return Case(
        name=f"117MB none, {name} listed",
        log=replace(LISTED[name], seed=options.seed),
        engines=_engines(options, LISTS, LISTS),
        runs=options.runs,
        goals=(Goal(engine=LIST, of="cpu_ratio", limit=0.5),),
    )


def compared_case(name: str, options: Options) -> Case:
    """Return the case of a log that is compared with its cleaned copy, beside a count of the keys of both."""
    return Case(
        name=f"none, {name}",
        log=replace(COMPARED[name], seed=options.seed),
        engines=_engines(options, REPLICAS, REPLICAS),
        runs=options.runs,
        goals=(Goal(engine=COMPARE, of="cpu_ratio", limit=1.5),),
    )


def many_case(name: str, options: Options) -> Case:
    """Return the case of a log directory with many partitions, or of a partition with many segments."""
    return many.case(name, engines=options.engines, runs=options.runs, seed=options.seed, quick=options.quick)


def query_cases(name: str, options: Options) -> list[Case]:
    """Return the cases of a log that Spark queries: one for each query."""
    return queries.cases(name, runs=options.runs, seed=options.seed, quick=options.quick)


def unique_case(options: Options) -> Case:
    """Return the case of more keys than Kafka's offset map holds: each record has its own."""
    return Case(
        name=f"{options.large_records / 1e6:g} M unique keys",
        log=LogSpec(records=options.large_records, value_bytes=84, keys=0, seed=options.seed),
        engines=_engines(options, COLD_CLEANERS, COLD_CLEANERS),
        runs=options.large_runs,
        goals=(
            Goal(engine=SPARK, of="ratio", limit=0.15),
            Goal(engine=SPARK, of="peak_bytes", limit=2e9),
        ),
    )


def article_case(options: Options) -> Case:
    """Return the case of the log that a broker reported on: 25.7 GB, of which 12.4 GB are dirty.

    Each of the 33.9 million records that survive has its own key, and the checkpoint says that they are clean; the
    others are a tail of larger records with keys of theirs.
    """
    scale = options.article_scale
    survivors = round(ARTICLE_SURVIVORS * scale)
    goals = (
        Goal(engine=SPARK, of="wall_s", limit=70),
        Goal(engine=IN_PROCESS, of="wall_s", limit=60),
        Goal(engine=IN_PROCESS, of="peak_bytes", limit=2e9),
    )
    return Case(
        name="the article's log" + (f", {scale:.2g} of it" if scale != 1 else ""),
        log=LogSpec(
            records=round(ARTICLE_RECORDS * scale),
            base_records=survivors,
            keys=round(ARTICLE_KEYS * scale),
            value_bytes=366,
            tail_value_bytes=794,
            seed=options.seed,
        ),
        engines=_engines(options, COLD_CLEANERS, COLD_CLEANERS),
        runs=options.large_runs,
        goals=goals if scale == 1 else (),
        linked=True,
    )


# -- scaling --------------------


def _on_each_number_of_cores(case: Case) -> Case:
    """Return the same case with a turn of each cleaner on 1, 2, 4 … all cores."""
    return replace(
        case,
        engines=tuple(name for name in case.engines if name in COLD_CLEANERS),
        cores=tuple(numbers_of_cores(len(os.sched_getaffinity(0)))),
        goals=(Goal(engine=IN_PROCESS, of="one_core", limit=0.6, cores=2),),
        beside=None,
    )


def numbers_of_cores(most: int) -> list[int]:
    """Return 1, 2, 4 … and `most`."""
    return sorted({1 << power for power in range(most.bit_length())} | {most})
