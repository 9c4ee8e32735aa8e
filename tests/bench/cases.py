"""What is measured: logs, cases, and the goals that stand beside the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product

GENERATOR_VERSION = 1
"""Part of the name of a cached log: raise it when the generator writes other bytes."""

START_MS = 1_750_000_000_000
KAFKA = "kafka"
KAFKA_WARM = "kafka-warm"
SPARK = "spark"
IN_PROCESS = "in-process"
DRY_RUN = "dry-run"
INSPECT = "inspect"
PLAN = "plan"
VERIFY = "verify"
ENGINES = (KAFKA, KAFKA_WARM, SPARK, IN_PROCESS, DRY_RUN, INSPECT, PLAN, VERIFY)
CLEANS = (KAFKA, KAFKA_WARM, SPARK, IN_PROCESS)
"""Those that rewrite the log: each gets a copy of its own, and its result is compared."""

DIRTY = "dirty"
CLEAN_AND_DIRTY = "clean-and-dirty"
LISTING = "listing"
UNIQUE = "unique"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many records, with values of how many bytes."""

    records: int
    value_bytes: int


SIZES = {
    "10MB": Size(records=85_000, value_bytes=91),
    "117MB": Size(records=1_000_000, value_bytes=91),
    "200MB": Size(records=1_700_000, value_bytes=91),
    "1.2GB": Size(records=10_000_000, value_bytes=100),
}
"""Named for what they take up uncompressed: 117 bytes a record, 126 the last, with everything around the value."""

CODECS = ("none", "lz4", "zstd", "gzip", "snappy")
SURVIVE_PERCENT = (10, 50, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """A log to be built; `keys` 0 gives each record its own, `clean_records` are cleaned before the others come."""

    records: int
    value_bytes: int
    keys: int
    codec: str = "none"
    clean_records: int = 0
    values: str = "random"
    seed: int = 1

    @property
    def name(self) -> str:
        """The directory of the cached log: everything that its bytes depend on."""
        parts = [f"v{GENERATOR_VERSION}", f"{self.records}x{self.value_bytes}", self.values]
        parts += [f"keys{self.keys}" if self.keys else "unique", self.codec]
        parts += [f"clean{self.clean_records}"] if self.clean_records else []
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def last_timestamp_ms(self) -> int:
        return START_MS + (self.records - 1) // 10

    @property
    def now_ms(self) -> int:
        """When the log is cleaned: a minute after the last record, so that its producer still counts as active."""
        return self.last_timestamp_ms + 60_000

    @property
    def arguments(self) -> list[str]:
        """The generator's options, without the directory."""
        options = asdict(self) | {"start_ms": START_MS}
        return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]

    @property
    def estimated_bytes(self) -> int:
        """About how much it takes up on the disk, uncompressed."""
        return self.records * (self.value_bytes + 27)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A limit for one figure of one engine: `of` is a column of the results, at most or at least `limit`."""

    engine: str
    of: str
    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        match self.of:
            case "ratio":
                return f"{sign} {self.limit:g} x Kafka"
            case "wall_s":
                return f"{sign} {self.limit:g} s"
            case "peak_bytes":
                return f"{sign} {self.limit / 1e9:g} GB"
            case "bytes_per_cpu_s":
                return f"{sign} {self.limit / 1e9:g} GB/s a core"
        raise AssertionError(self.of)

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log, what is run on it, how often, and what is hoped for."""

    name: str
    log: LogSpec
    engines: tuple[str, ...]
    runs: int
    goals: tuple[Goal, ...] = ()

    def runs_in(self, engine: str, round_number: int) -> bool:
        """Whether an engine has its turn in this round; the warm Kafka costs two cleanings and has every other one."""
        return engine != KAFKA_WARM or round_number % 2 == 0


def keys_for(records: int, survive_percent: float) -> int:
    """Return from how many keys to draw so that about this share of the records is the latest of its key; 0: unique.

    Of K keys drawn N times, K(1 - exp(-N/K)) are expected to turn up.
    """
    if not 0 < survive_percent <= 100:
        raise ValueError(f"{survive_percent} % of the records cannot survive")
    if survive_percent == 100:
        return 0
    low, high = 1e-9, 1e9  # of N/K, over which the share falls
    while high - low > 1e-9 * high:
        middle = math.sqrt(low * high)
        if -math.expm1(-middle) / middle > survive_percent / 100:
            low = middle
        else:
            high = middle
    return max(1, round(records / low))


def order(engines: Sequence[str], round_number: int) -> list[str]:
    """Return the order of a round: there, and back in the next, so that no engine always follows the same one."""
    return list(engines) if round_number % 2 == 0 else list(reversed(engines))


def goals_of(size: str, codec: str, scenario: str) -> tuple[Goal, ...]:
    """Return the goals that a cleaning of a wholly dirty log of this size has."""
    if scenario != DIRTY:
        return ()
    if size == "10MB":
        return (
            Goal(engine=SPARK, of="wall_s", limit=3.0),
            Goal(engine=IN_PROCESS, of="wall_s", limit=0.7),
        )
    limits = {
        ("117MB", "none"): (1.6, 0.4),
        ("1.2GB", "none"): (0.5, 0.25),
        ("1.2GB", "lz4"): (0.6, 0.4),
        ("1.2GB", "zstd"): (0.6, 0.4),
    }.get((size, codec))
    if limits is None:
        return ()
    return (
        Goal(engine=SPARK, of="ratio", limit=limits[0]),
        Goal(engine=IN_PROCESS, of="ratio", limit=limits[1]),
    )


def case(
    size: str, codec: str, survive_percent: int, scenario: str, *, engines: Iterable[str], runs: int, seed: int
) -> Case:
    """Return one case of the usual kind."""
    records, value_bytes = SIZES[size].records, SIZES[size].value_bytes
    keys = keys_for(records, survive_percent)
    name = f"{size} {codec} {survive_percent}%"
    log = LogSpec(records=records, value_bytes=value_bytes, keys=keys, codec=codec, seed=seed)
    if scenario == CLEAN_AND_DIRTY:
        # As many bytes on the disk: what is left of the first part (37 %), and a tail of 60 % with the same keys.
        name = f"{size} {codec} {CLEAN_AND_DIRTY}"
        log = LogSpec(
            records=records + records * 6 // 10,
            clean_records=records,
            value_bytes=value_bytes,
            keys=records * 4 // 10,
            codec=codec,
            seed=seed,
        )
    return Case(name=name, log=log, engines=tuple(engines), runs=runs, goals=goals_of(size, codec, scenario))


def listing_case(*, engines: Iterable[str], runs: int, seed: int) -> Case:
    """Return the case of a partition of 10 GB that is only looked at: few records, all with the same value."""
    return Case(
        name="10GB none, only read",
        log=LogSpec(records=9_700_000, value_bytes=1000, keys=0, values="fixed", seed=seed),
        engines=tuple(engine for engine in engines if engine in (INSPECT, PLAN, VERIFY)),
        runs=runs,
        goals=(
            Goal(engine=INSPECT, of="wall_s", limit=1.0),
            Goal(engine=PLAN, of="wall_s", limit=1.0),
            Goal(engine=VERIFY, of="bytes_per_cpu_s", limit=1e9, at_least=True),
        ),
    )


def unique_case(records: int, *, engines: Iterable[str], runs: int, seed: int) -> Case:
    """Return the case of more keys than Kafka's offset map holds: each record has its own."""
    return Case(
        name=f"{records / 1e6:g} M unique keys",
        log=LogSpec(records=records, value_bytes=84, keys=0, seed=seed),
        engines=tuple(engine for engine in engines if engine in (KAFKA, SPARK, IN_PROCESS)),
        runs=runs,
        goals=(
            Goal(engine=SPARK, of="ratio", limit=0.15),
            Goal(engine=SPARK, of="peak_bytes", limit=2e9),
        ),
    )


QUICK = [("10MB", "none", 10, DIRTY), ("117MB", "none", 10, DIRTY)]
USUAL = [
    *QUICK,
    ("117MB", "lz4", 10, DIRTY),
    ("117MB", "zstd", 10, DIRTY),
    ("117MB", "none", 50, DIRTY),
    ("117MB", "none", 100, DIRTY),
    ("200MB", "none", 10, DIRTY),
    ("1.2GB", "none", 10, DIRTY),
    ("1.2GB", "none", 50, DIRTY),
    ("1.2GB", "none", 100, DIRTY),
    ("1.2GB", "lz4", 10, DIRTY),
    ("1.2GB", "zstd", 10, DIRTY),
    ("1.2GB", "none", 0, CLEAN_AND_DIRTY),
]
"""Not every combination: from the plain log, one thing is varied at a time."""


def chosen(
    *,
    quick: bool,
    sizes: Sequence[str],
    codecs: Sequence[str],
    survive: Sequence[int],
    scenarios: Sequence[str],
    engines: Sequence[str],
    runs: int,
    seed: int,
    large_records: int,
    large_runs: int = 1,
) -> list[Case]:
    """Return the cases that the options ask for.

    Without any of `sizes`, `codecs`, `survive` and `scenarios` the usual list; with any, each combination of them,
    where what is missing is a plain one. `large_records` above 0 adds the case of unique keys.
    """
    usual = not (sizes or codecs or survive or scenarios)
    if usual:
        wanted = QUICK if quick else USUAL
    else:
        dirty = [name for name in scenarios or [DIRTY] if name == DIRTY]
        wanted = list(product(sizes or ["117MB"], codecs or ["none"], survive or [10], dirty))
        if CLEAN_AND_DIRTY in scenarios:
            wanted += list(product(sizes or ["117MB"], codecs or ["none"], [0], [CLEAN_AND_DIRTY]))
    cases = [
        case(size, codec, percent or 100, scenario, engines=engines, runs=runs, seed=seed)
        for size, codec, percent, scenario in wanted
    ]
    if LISTING in scenarios or (usual and not quick):
        cases.append(listing_case(engines=engines, runs=runs, seed=seed))
    if large_records:
        cases.append(unique_case(large_records, engines=engines, runs=large_runs, seed=seed))
    return cases
