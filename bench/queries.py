"""Queries of Spark on the data source `kafka-log`, and the logs that they read. `spark_session` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bench.cases import ASKED, KAFKA_LOG, Case, Goal, LogSpec

ALL = "spark-source"
"""Stands for all of SHAPES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked of a DataFrame. `columns` are those that the data source is asked for; empty: all."""

    columns: str
    run: Callable[[Any], None]


def _keys(frame: Any) -> None:
    frame.groupBy(frame.key.substr(1, 2)).count().collect()


def _values(frame: Any) -> None:
    frame.selectExpr("sum(length(value))").collect()


def _tenth(frame: Any) -> None:
    frame.where("offset % 10 = 0").select("key", "value", "offset").write.format("noop").mode("overwrite").save()


def _all(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


QUERIES = {
    "keys": Query(columns="key", run=_keys),
    "values": Query(columns="value", run=_values),
    "tenth": Query(columns="key,value,offset", run=_tenth),
    "all": Query(columns="", run=_all),
}

_PLAIN = LogSpec(records=3_000_000, value_bytes=91, keys=300_000)

SHAPES = {
    "source-plain": _PLAIN,
    "source-lz4": replace(_PLAIN, codec="lz4"),
    "source-zstd": replace(_PLAIN, codec="zstd"),
    "source-one-record": LogSpec(records=1_500_000, value_bytes=33, keys=150_000, batch_records=1),
    "source-small-values": LogSpec(records=6_000_000, value_bytes=4, keys=600_000),
}
"""The log of the goal, and such on which a record costs more: compressed, in batches of its own, hardly any bytes."""

CPU_RATIO = 1.25
"""Of the processor time of a query to that of the same query on uncompressed Parquet."""
QUICK_SHARE = 50


def cases(name: str, *, runs: int, seed: int, quick: bool = False) -> list[Case]:
    """Return the cases of a shape, one for each query; `quick`: with a fiftieth of its records, without goals."""
    log = replace(SHAPES[name], seed=seed)
    if quick:
        log = replace(log, records=log.records // QUICK_SHARE, keys=log.keys // QUICK_SHARE)
    goals = () if quick else (Goal(engine=KAFKA_LOG, of="cpu_ratio", limit=CPU_RATIO),)
    return [
        Case(name=f"{name}: {query}", log=log, engines=ASKED, runs=runs, goals=goals, query=query) for query in QUERIES
    ]
