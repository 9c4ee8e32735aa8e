"""Measures one query in one session of Spark: on a log as `kafka-log`, and on the same rows as Parquet, in turns.

Prints a list of runs as JSON. `runner.Bench` runs it as a program.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cases import KAFKA_LOG, PARQUET, order
from bench.queries import QUERIES

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
USER_TICKS, SYSTEM_TICKS = 11, 12  # of /proc/PID/stat, counted from the state
PARENT = 1
MOST_TRIES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log_dir", type=Path)
    parser.add_argument("parquet", type=Path, help="where the same rows are, or are to be written")
    parser.add_argument("--query", choices=QUERIES, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=8, help="rounds before the first that counts")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of the session")
    wanted = parser.parse_args()
    with _session(dict(each.split("=", 1) for each in wanted.conf)) as spark:
        if not (wanted.parquet / "_SUCCESS").exists():
            frame = spark.read.format("kafka-log").load(str(wanted.log_dir))
            frame.write.mode("overwrite").option("compression", "none").parquet(str(wanted.parquet))
        loads = _loads(spark, wanted, QUERIES[wanted.query].columns)
        contents = {engine: _content(load()) for engine, load in loads.items()}
        if contents[PARQUET] != contents[KAFKA_LOG]:
            raise RuntimeError(f"the rows differ: {contents}")
        runs = list(_runs(loads, QUERIES[wanted.query].run, wanted.warm_up, wanted.runs))
    print(json.dumps(runs))


@contextmanager
def _session(settings: dict[str, str]) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    import kcompact.spark_source  # noqa: F401 - registers the format with the session

    try:
        yield spark
    finally:
        spark.stop()


def _loads(spark: Any, wanted: argparse.Namespace, columns: str) -> dict[str, Callable[[], Any]]:
    """Return what makes a DataFrame with some columns, or with all, of Parquet and of the log."""
    chosen = columns.split(",") if columns else ["*"]
    options = {"columns": columns} if columns else {}
    return {
        PARQUET: lambda: spark.read.parquet(str(wanted.parquet)).select(*chosen),
        KAFKA_LOG: lambda: spark.read.format("kafka-log").options(**options).load(str(wanted.log_dir)),
    }


def _content(frame: Any) -> Any:
    """Return a number that depends on each value of each row, but not on the order of the rows, and their count."""
    return frame.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()


def _runs(
    loads: dict[str, Callable[[], Any]], ask: Callable[[Any], None], warm_up: int, runs: int
) -> Iterator[dict[str, Any]]:
    """Yield what each engine took in each round, from the load to the result."""
    for number in range(-warm_up, runs):
        for engine in order(list(loads), number):
            used = _measured(ask, loads[engine])
            if number >= 0:
                yield {"engine": engine, "round": number, **used}


def _measured(ask: Callable[[Any], None], load: Callable[[], Any]) -> dict[str, float]:
    """Return the wall time and the processor time of a query.

    A process that ended meanwhile takes its processor time along, so the query is then repeated: Spark ends a Python
    worker that had nothing to do for a minute.
    """
    for _ in range(MOST_TRIES):
        before, started = _used_s(), time.perf_counter()
        ask(load())
        wall_s, after = time.perf_counter() - started, _used_s()
        if before.keys() <= after.keys():
            return {"wall_s": wall_s, "cpu_s": sum(after.values()) - sum(before.values())}
    raise RuntimeError(f"a process ended in each of {MOST_TRIES} runs")


def _used_s() -> dict[int, float]:
    """Return the processor time of this process and of each that it started, directly or not, by process id."""
    fields = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # It has ended.
                continue
            fields[int(process.name)] = stat.rpartition(")")[2].split()
    ours, found = {os.getpid()}, 0
    while len(ours) > found:
        found = len(ours)
        ours |= {pid for pid, words in fields.items() if int(words[PARENT]) in ours}
    return {pid: (int(fields[pid][USER_TICKS]) + int(fields[pid][SYSTEM_TICKS])) / TICKS_PER_S for pid in ours}


if __name__ == "__main__":
    main()
