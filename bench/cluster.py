"""What partitions cost on a standalone cluster: `python -m bench.cluster --partitions 4,8`.

A cluster of workers with one core each, on this machine, cleans log directories that Kafka's own code wrote. Spark's
event log says when each task ran, the operating system what the driver took. These are the terms of
`bench.scale_out`. The result is compared with that of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import kcompact
from bench import logs
from bench.__main__ import ROOT
from bench.cases import CONFIG, LogSpec, keys_for
from kcompact.engine.spark import OnSpark
from kcompact.host import other_processes
from kcompact.host.other_processes import OpenFiles
from tests.support.spark_cluster import Cluster, started

_GB = 8_547_000
"""So many records of 117 bytes are 1 GB."""


@dataclass(frozen=True, kw_only=True)
class Took:
    """One cleaning. `tasks` are the starts and ends of the tasks; processor times are those of the driver.

    `looks` is how often the driver has looked at the open files of other processes, `looks_s` what that took of its
    processor time.
    """

    partitions: int
    wall_s: float
    python_s: float
    looks: int
    looks_s: float
    jvm_s: float
    tasks: tuple[tuple[float, float], ...]

    @property
    def task_s(self) -> float:
        """The time of all tasks together."""
        return sum(end - start for start, end in self.tasks)

    def efficiency(self, slots: int) -> float:
        """Return the part of the slots' time, from the first start of a task to the last end, in which tasks ran."""
        available_s: float = slots * (max(end for _, end in self.tasks) - min(start for start, _ in self.tasks))
        return self.task_s / available_s


def clean(cluster: Cluster, log_dir: Path, partitions: int, events: Path) -> Took:
    """Clean a log directory in a driver of its own, on the session of which the event log is kept."""
    events.mkdir()
    conf = cluster.conf | {
        "spark.master": cluster.master,
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    command = [sys.executable, "-m", "bench.cluster", "--drive", str(log_dir)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    began = time.monotonic()
    done = subprocess.run(command, input=json.dumps(conf), capture_output=True, text=True, check=False, env=environment)
    wall_s = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr)
    return Took(partitions=partitions, wall_s=wall_s, tasks=_tasks(events), **json.loads(done.stdout))


def drive(log_dir: str) -> None:
    """Clean as the driver, with the settings on standard input. Print its processor time and that of its JVM."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in json.load(sys.stdin).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    look, looks = other_processes.look, list[float]()

    def timed(devices: Collection[int]) -> OpenFiles:
        began = time.thread_time()
        found = look(devices)
        looks.append(time.thread_time() - began)
        return found

    other_processes.look = timed
    before = resource.getrusage(resource.RUSAGE_SELF)
    kcompact.clean_log_dir(log_dir, CONFIG, engine=OnSpark(spark)).raise_failure()
    after = resource.getrusage(resource.RUSAGE_SELF)
    spark.stop()
    jvm = spark.sparkContext._gateway.proc
    jvm.stdin.close()
    jvm.wait()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    python_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    jvm_s = children.ru_utime + children.ru_stime
    print(json.dumps({"python_s": python_s, "looks": len(looks), "looks_s": sum(looks), "jvm_s": jvm_s}))


def _tasks(events: Path) -> tuple[tuple[float, float], ...]:
    (log,) = events.iterdir()
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    infos = [line["Task Info"] for line in lines if line["Event"] == "SparkListenerTaskEnd"]
    return tuple((info["Launch Time"] / 1000, info["Finish Time"] / 1000) for info in infos)


def measure(spec: LogSpec, slots: int, cache: Path, work: Path) -> Took:
    """Clean the partitions of a specification on so many slots, and compare the result with that of one process."""
    source = logs.build(spec, cache)
    logs.read_into_memory(source)
    expected = work / "in-process"
    logs.link(source, expected)
    kcompact.clean_log_dir(expected, CONFIG, engine="in-process").raise_failure()
    fingerprint = logs.fingerprint(expected)
    shutil.rmtree(expected)
    logs.link(source, work / "cluster")
    os.sync()
    (work / "spark").mkdir()
    with started(work / "spark", workers=slots) as cluster:
        took = clean(cluster, work / "cluster", spec.partitions, work / "events")
    if found := logs.differences(logs.fingerprint(work / "cluster"), fingerprint):
        sys.exit("\n".join(found))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="4,8", metavar="N,…", help="how many, one cleaning for each")
    parser.add_argument("--records", type=int, default=_GB, help="of each partition (default: 1 GB)")
    parser.add_argument("--workers", type=int, default=2, help="of one core each")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench" / "logs")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.drive:
        drive(wanted.drive)
        return
    spec = LogSpec(records=wanted.records, value_bytes=91, keys=keys_for(wanted.records, 10))
    every = []
    print(
        "| partitions | wall s | tasks | s a task | driver s | its JVM s | efficiency |\n|---|---|---|---|---|---|---|"
    )
    for partitions in map(int, wanted.partitions.split(",")):
        with tempfile.TemporaryDirectory(dir=wanted.cache.parent) as work:
            took = measure(replace(spec, partitions=partitions), wanted.workers, wanted.cache.resolve(), Path(work))
        every.append(took)
        count, efficiency = len(took.tasks), took.efficiency(wanted.workers)
        print(
            f"| {partitions} | {took.wall_s:.1f} | {count} | {took.task_s / count:.2f} "
            f"| {took.python_s:.2f} | {took.jvm_s:.1f} | {efficiency:.2f} |",
            flush=True,
        )
    for less, more in pairwise(every):
        further = more.partitions - less.partitions
        driver_s, looks_s = more.python_s - less.python_s, more.looks_s - less.looks_s
        print(
            f"each further partition: driver {1000 * driver_s / further:.1f} ms, without {more.looks - less.looks} "
            f"further looks at other processes {1000 * (driver_s - looks_s) / further:.1f} ms, "
            f"its JVM {1000 * (more.jvm_s - less.jvm_s) / further:.1f} ms"
        )


if __name__ == "__main__":
    main()
