"""What a measurement consists of: a log, what is run on it in which order, and the goals beside the figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import NamedTuple, TypeVar

GENERATOR_VERSION = 1
"""Part of the name of a cached log: raise it when the generator writes other bytes."""

CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
"""The ratio of 0 lets Kafka go on until nothing is dirty, when its offset map is too small for the log."""

START_MS = 1_750_000_000_000
KAFKA = "kafka"
KAFKA_WARM = "kafka-warm"
SPARK = "spark"
IN_PROCESS = "in-process"
DRY_RUN = "dry-run"
INSPECT = "inspect"
PLAN = "plan"
VERIFY = "verify"
DOCTOR = "doctor"
REPORT = "report"
DUMP_LOG = "dump-log"
LIST = "list"
KEYS = "keys"
COMPARE = "compare"
PARQUET = "parquet"
KAFKA_LOG = "kafka-log"
ENGINES = (KAFKA, KAFKA_WARM, SPARK, IN_PROCESS, DRY_RUN, INSPECT, PLAN, VERIFY)
LISTS = (DUMP_LOG, LIST)
"""Those that list the records of a log: Kafka's tool and kcompact."""
MANY = (KAFKA_WARM, IN_PROCESS, DRY_RUN, PLAN, INSPECT, DOCTOR, REPORT)
"""Those that run on many partitions or segments. The warm Kafka is the one that the others are compared with."""
REPLICAS = (KEYS, COMPARE)
"""Those that read a log and a replica of it, which is its cleaned copy."""
ASKED = (PARQUET, KAFKA_LOG)
"""What a query of Spark reads: the records as Parquet, or the log itself as the data source `kafka-log`."""
REFERENCES = {
    **dict.fromkeys(LISTS, DUMP_LOG),
    **dict.fromkeys(REPLICAS, KEYS),
    **dict.fromkeys(ASKED, PARQUET),
}
"""With what an engine is compared, if not with Kafka's cleaner."""
CLEANS = (KAFKA, KAFKA_WARM, SPARK, IN_PROCESS)
"""Those that rewrite the log: each gets a copy of its own, and its result is compared."""

BATCH_HEADER_BYTES = 61
MARKER_BYTES = 78
NAMED_IN_SHORT = {"records", "value_bytes", "values", "keys", "codec", "clean_records", "seed"}
OLD_FORMAT_BYTES = 24
"""About what a record of magic 0 or 1 takes up more than one of magic 2 in a batch of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """A log to be built; the fields are options of the generator, which `BuildLog.java` describes.

    `records` are those of each partition. `keys` 0 gives each record its own, `batch_records` 0 closes a batch by its
    size, `tail_value_bytes` 0 is `value_bytes`. With `segments` each partition has so many closed ones, each with fewer
    than ten batches, and a cleaning joins no two of them.
    """

    records: int
    value_bytes: int
    keys: int
    codec: str = "none"
    clean_records: int = 0
    base_records: int = 0
    tail_value_bytes: int = 0
    values: str = "random"
    batch_records: int = 0
    transaction_records: int = 0
    abort_every: int = 0
    magic: int = 2
    partitions: int = 1
    segments: int = 1
    seed: int = 1

    @property
    def parts(self) -> int:
        """How many partitions there are, or segments of a partition."""
        return self.partitions * self.segments

    @property
    def one_part(self) -> LogSpec:
        """The log with one partition, or one segment, of the same size."""
        return replace(self, partitions=1, segments=1, records=self.records // self.segments)

    @property
    def config(self) -> dict[str, str]:
        """The settings of the topic. The batches of one segment fit its size, and no more."""
        if self.segments == 1:
            return CONFIG
        return CONFIG | {"internal.segment.bytes": str(self.estimated_bytes // self.parts * 11 // 10)}

    @property
    def name(self) -> str:
        """The directory of the cached log: everything that its bytes depend on."""
        parts = [f"v{GENERATOR_VERSION}", f"{self.records}x{self.value_bytes}", self.values]
        parts += [f"keys{self.keys}" if self.keys else "unique", self.codec]
        parts += [f"clean{self.clean_records}"] if self.clean_records else []
        parts += [
            f"{field.name.replace('_', '-')}{getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in NAMED_IN_SHORT and getattr(self, field.name) != field.default
        ]
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
        del options["segments"]  # They follow from the settings.
        if not self.tail_value_bytes:
            del options["tail_value_bytes"]
        return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]

    @property
    def estimated_bytes(self) -> int:
        """About how much it takes up on the disk, uncompressed."""
        largest = max(self.value_bytes, self.tail_value_bytes)
        base = self.base_records * (largest - self.value_bytes)
        return self.partitions * (self.records * (largest + 27 + self._bytes_around_a_record) - base)

    @property
    def _bytes_around_a_record(self) -> int:
        """What batches of few records, markers of short transactions and old formats take up for each record."""
        batch = BATCH_HEADER_BYTES // self.batch_records if self.batch_records else 0
        marker = MARKER_BYTES // self.transaction_records if self.transaction_records else 0
        return batch + marker + (OLD_FORMAT_BYTES if self.magic < 2 else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A limit for one figure of one engine: `of` is a field of `results.Row`, at most or at least `limit`.

    `cores` is how many the engine was bound to; None: to none.
    """

    engine: str
    of: str
    limit: float
    at_least: bool = False
    cores: int | None = None

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.in_words(self.limit)}"

    def in_words(self, value: float) -> str:
        """Return a figure with its unit."""
        match self.of:
            case "ratio":
                return f"{value:.3g} x Kafka"
            case "cpu_ratio":
                others = "Kafka's CPU s"
                whose = {KEYS: "the CPU s of keys", PARQUET: "the CPU s of Parquet"}
                return f"{value:.3g} x {whose.get(REFERENCES.get(self.engine, KAFKA), others)}"
            case "beside":
                return f"{value:.3g} x the same without transactions"
            case "one_core":
                return f"{value:.3g} x one core"
            case "wall_s":
                return f"{value:.3g} s"
            case "part_cpu_s":
                return f"{value * 1e3:.3g} ms a partition"
            case "stats" | "opens":
                return f"{value:.3g} {self.of} a partition"
            case "peak_bytes":
                return f"{value / 1e9:.3g} GB" if value >= 1e9 else f"{value / 1e6:.3g} MB"
            case "bytes_per_cpu_s":
                return f"{value / 1e9:.3g} GB/s a core"
        raise AssertionError(self.of)

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


class Turn(NamedTuple):
    """An engine's turn in a round: bound to so many cores, or to none; on the case's log, or on the one beside it."""

    engine: str
    cores: int | None = None
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log, what is run on it, how often, and what is hoped for.

    With `cores` each engine has a turn on each of these numbers of cores. `beside` is a log that kcompact cleans as
    well, to compare the times. A `linked` log is too large for a copy: its closed `.log` files are linked instead, so
    that the original keeps them. With `has_many`, for many partitions or segments, the others are compared with
    the warm Kafka, and the system calls of kcompact's commands are counted, in runs that are not measured. With `query`
    the engines are those of ASKED, and answer this query of `queries` in one session of Spark.
    """

    name: str
    log: LogSpec
    engines: tuple[str, ...]
    runs: int
    goals: tuple[Goal, ...] = ()
    cores: tuple[int, ...] = ()
    beside: LogSpec | None = None
    linked: bool = False
    has_many: bool = False
    query: str = ""

    @property
    def reference(self) -> str:
        """The engine whose times and results those of the other cleaners are compared with."""
        return KAFKA_WARM if self.has_many else KAFKA

    def turns(self, round_number: int) -> list[Turn]:
        """Return who has a turn in this round; the warm Kafka costs two cleanings and has every other one.

        Where the warm Kafka is the reference it has a turn in each round.
        """
        rare = {KAFKA_WARM} - {self.reference}
        engines = [name for name in self.engines if name not in rare or round_number % 2 == 0]
        turns = [Turn(engine, cores) for engine in engines for cores in self.cores or [None]]
        if self.beside:
            turns += [Turn(engine, beside=True) for engine in engines if engine in (SPARK, IN_PROCESS)]
        return order(turns, round_number)

    @property
    def disk_bytes(self) -> int:
        """About what its turns need on the disk beside the original: a copy, its result, and that of the floor.

        A query needs its records as Parquet.
        """
        if self.query:
            return self.log.estimated_bytes
        if not set(self.engines) & set(CLEANS):
            return 0
        return (1 if self.linked else 3) * self.log.estimated_bytes


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


def cores_in_words(number: int) -> str:
    return f"{number} core{'s' if number != 1 else ''}"


T = TypeVar("T")


def order(turns: Sequence[T], round_number: int) -> list[T]:
    """Return the order of a round: there, and back in the next, so that no engine always follows the same one."""
    return list(turns) if round_number % 2 == 0 else list(reversed(turns))
