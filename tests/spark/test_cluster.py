"""A real cluster: a standalone Master and two Workers on the loopback interface, whose Python has this package.

The status that Spark's driver keeps shows which executor ran which tasks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kcompact as package
from kcompact.engine.spark import spark_context
from kcompact.engine.spark.context import SparkStart
from kcompact.engine.spark.tasks import Package
from kcompact.format.names import log_name
from tests.support.command_line import COMPACT, Ran, kcompact
from tests.support.patience import becomes
from tests.support.s3_server import KEY_ID, SECRET, moto
from tests.support.spark_cluster import Cluster, started
from tests.support.spark_runs import SPARK, content, left_behind, write_partition

pytestmark = [*SPARK, pytest.mark.slow]

CORES = 2
SMALL_PARTITIONS = 19
GROUPS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster"), workers=CORES) as cluster:
        yield cluster


# What Spark says of it


@dataclass
class Status:
    """Tasks by executor and by the description of their job, and executors that went, as the driver's status has it."""

    succeeded: dict[str, dict[str, int]] = field(default_factory=dict)
    failed: int = 0
    removed: list[str] = field(default_factory=list)

    def read(self, sc: Any) -> None:
        store = sc._jsc.sc().statusStore()
        for job in each(store.jobsList(None)):
            tasks = self.succeeded.setdefault(str(job.description().get()), {})
            for stage in each(job.stageIds()):
                data = store.lastStageAttempt(stage)
                self.failed += data.numFailedTasks() + data.numKilledTasks()
                summaries = store.executorSummary(stage, data.attemptId())
                for executor in each(summaries.keys().toSeq()):
                    tasks[executor] = tasks.get(executor, 0) + summaries.apply(executor).succeededTasks()
        self.removed = [one.id() for one in each(store.executorList(False)) if not one.isActive()]

    def workers_of(self, description: str) -> set[str]:
        return {executor for executor, tasks in self.succeeded[description].items() if tasks}


def each(sequence: Any) -> list[Any]:
    """Return the elements of one of Scala's sequences."""
    return [sequence.apply(number) for number in range(sequence.length())]


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Status:
    """Return what Spark said just before each context of this test was stopped."""
    seen = Status()
    context = SparkStart.context

    @contextlib.contextmanager
    def context_with_status(self: SparkStart) -> Iterator[Any]:
        with context(self) as sc:
            yield sc
            seen.read(sc)

    monkeypatch.setattr(SparkStart, "context", context_with_status)
    return seen


# Logs


def write_logs(log_dir: Path, large_bytes: int) -> int:
    """Write a log directory of 20 partitions, one of them large, and return the segment size that makes four groups."""
    write_partition(log_dir / "large-0", total_bytes=large_bytes, segments=4 * GROUPS, value_bytes=8_000)
    for number in range(SMALL_PARTITIONS):
        write_partition(log_dir / f"small-{number}", total_bytes=200_000 + 20_000 * number, segments=3, value_bytes=300)
    size = (log_dir / "large-0" / log_name(0)).stat().st_size
    return size * 4 + size // 2


def clean(log_dir: Path | str, segment_bytes: int, *options: str) -> Ran:
    config = ("--config", f"segment.bytes={segment_bytes}")
    return kcompact("clean", "--json", "--force", *COMPACT, *config, *options, log_dir)


def size_of(path: Path) -> int:
    """Return a file's size, 0 if it has just gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


# Tests


def test_workers_copy_to_a_bucket(
    cluster: Cluster, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the credentials that they have: none come from the driver."""
    segment_bytes = write_logs(tmp_path / "logs", 1 << 20)
    credentials = cluster.directory / ".aws" / "credentials"
    credentials.parent.mkdir()
    credentials.write_text(f"[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n")
    with moto() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        s3.make_bucket("backups")
        where = [
            *("--spark-conf", f"spark.executorEnv.AWS_ENDPOINT_URL={s3.url}"),
            *("--spark-conf", "spark.executorEnv.AWS_REGION=us-east-1"),
        ]
        ran = clean(tmp_path / "logs", segment_bytes, *cluster.options(), *where, "--output", "s3://backups/spark")
        assert ran.code == 0, ran.err
        s3.upload(tmp_path / "logs", "backups", "eu")
        again = clean("s3://backups/eu", segment_bytes, *cluster.options(), *where, "--output", "s3://backups/again")
        assert again.code == 0, again.err
        assert clean(tmp_path / "logs", segment_bytes, "--output", str(tmp_path / "local")).code == 0
        for prefix in ("spark", "again"):
            fetched = kcompact("clean", *COMPACT, f"s3://backups/{prefix}", "--output", tmp_path / prefix)
            assert fetched.code == 0, fetched.err
            assert content(tmp_path / prefix) == content(tmp_path / "local")
    assert len(status.workers_of("kcompact: partitions")) == CORES


def test_a_worker_with_another_package_ends_the_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers import the kcompact that is installed for their Python."""
    log_dir = tmp_path / "logs"
    segment_bytes = write_logs(log_dir, 1 << 20)
    before = content(log_dir)
    monkeypatch.setattr(Package, "of_this_process", classmethod(lambda _: Package("99.0", "0" * 64)))
    ran = clean(log_dir, segment_bytes, *cluster.options())
    assert ran.code == 1
    assert f"a worker has kcompact {package.__version__} with machine code" in ran.err
    assert "the driver has kcompact 99.0 with machine code 000000000000" in ran.err
    assert content(log_dir) == before


@pytest.mark.parametrize("large_bytes", [64 << 20, 1 << 30], ids=["bounded", "full"])
def test_cluster_leaves_the_same_bytes_as_one_process(
    cluster: Cluster, status: Status, large_bytes: int, tmp_path: Path
) -> None:
    log_dir, copy = tmp_path / "logs", tmp_path / "copy"
    segment_bytes = write_logs(log_dir, large_bytes)
    large = sum(path.stat().st_size for path in (log_dir / "large-0").iterdir())
    assert large >= large_bytes
    shutil.copytree(log_dir, copy)
    expected = clean(copy, segment_bytes, "--engine", "in-process")
    assert expected.code == 0, expected.err

    ran = clean(log_dir, segment_bytes, *cluster.options())
    assert ran.code == 0, ran.err
    cleaned = ran.json["partitions"]
    assert len(cleaned) == 1 + SMALL_PARTITIONS
    assert {entry["status"] for entry in cleaned} == {"cleaned"}
    assert {entry["engine"] for entry in cleaned} == {"spark"}
    ratios = [entry["cleanable_ratio"] for entry in cleaned]
    assert ratios == sorted(ratios, reverse=True)
    assert len(next(entry for entry in cleaned if entry["topic"] == "large")["groups"]) == GROUPS
    assert content(log_dir) == content(copy)
    assert left_behind(log_dir) == []
    shutil.rmtree(tmp_path)

    assert len(status.workers_of("kcompact: scan")) == CORES, status
    assert len(status.workers_of("kcompact: write")) == CORES, status
    assert status.workers_of("kcompact: partitions"), status
    assert (status.failed, status.removed) == (0, [])


PARTITIONS = 6


def write_partitions(log_dir: Path) -> None:
    for number in range(PARTITIONS):
        write_partition(log_dir / f"p-{number}", total_bytes=24 << 20, segments=4, value_bytes=4_000)


@pytest.mark.parametrize("fault", ["killed", "lost"])
def test_a_partition_goes_to_another_worker(cluster: Cluster, status: Status, tmp_path: Path, fault: str) -> None:
    """A worker is killed in the middle of a task, or lost: it is stopped until its partition is swapped, and goes on.

    The late attempt holds its files open and knows the staging directory. It must not touch what is in place.
    """
    log_dir, copy = tmp_path / "logs", tmp_path / "copy"
    write_partitions(log_dir)
    shutil.copytree(log_dir, copy)
    assert clean(copy, 1 << 30, "--engine", "in-process").code == 0

    def begun() -> list[Path]:
        return [path for path in log_dir.glob("p-*/.kcompact-*/*part*") if size_of(path)]

    hit: list[int] = []

    def strike(is_over: Callable[[], bool]) -> None:
        while not is_over() and not hit:
            time.sleep(0.005)
            if begun() and (found := cluster.executors()):
                _, process = min(found.items())
                for pid in [process, *children_of(process)]:
                    os.kill(pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
                    hit.append(pid)

    done = threading.Event()
    striker = threading.Thread(target=strike, args=(done.is_set,))
    striker.start()
    settings = ("spark.network.timeout=8s", "spark.network.timeoutInterval=1s", "spark.executor.heartbeatInterval=1s")
    lost_soon = [part for setting in settings for part in ("--spark-conf", setting)]
    try:
        ran = clean(log_dir, 1 << 30, *cluster.options(), *lost_soon)
    finally:
        done.set()
        striker.join()
        after = content(log_dir)
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert ran.code == 0, ran.err
    assert hit, "the run was over before anything was written"
    assert after == content(copy)
    assert becomes(lambda: not any(Path(f"/proc/{pid}").exists() for pid in hit[1:]))
    assert content(log_dir) == after
    assert left_behind(log_dir) == []
    assert status.failed >= 1


def children_of(process: int) -> list[int]:
    """Return the Python processes that an executor has started."""
    found = [process]
    for pid in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found[1:]


def test_killed_worker_costs_a_retry_and_nothing_else(cluster: Cluster, status: Status, tmp_path: Path) -> None:
    log_dir, copy = tmp_path / "logs", tmp_path / "copy"
    write_partition(log_dir / "large-0", total_bytes=64 << 20, segments=4 * GROUPS, value_bytes=8_000)
    segment_bytes = (log_dir / "large-0" / log_name(0)).stat().st_size * 4 + 1_000
    shutil.copytree(log_dir, copy)
    assert clean(copy, segment_bytes, "--engine", "in-process").code == 0

    names: set[str] = set()
    killed: list[str] = []

    def kill_one_that_writes(is_over: Callable[[], bool]) -> None:
        while not is_over():
            time.sleep(0.02)
            parts = [path for path in (log_dir / "large-0").glob(".kcompact-*/*part*.log") if size_of(path)]
            names.update(path.name for path in parts)
            if len(parts) >= CORES and not killed:  # Both are writing: whichever goes has begun a file.
                executor, process = min(cluster.executors().items())
                os.kill(process, signal.SIGKILL)
                killed.append(executor)

    done = threading.Event()
    killer = threading.Thread(target=kill_one_that_writes, args=(done.is_set,))
    killer.start()
    try:
        # Slow enough for the worker to be killed during the job.
        ran = clean(log_dir, segment_bytes, *cluster.options(), "--max-bytes-per-second", "16m")
    finally:
        done.set()
        killer.join()
    assert ran.code == 0, ran.err
    assert killed, "the run was over before anybody could be killed"
    assert content(log_dir) == content(copy)
    assert left_behind(log_dir) == []
    assert killed[0] in status.removed
    assert status.failed == 1
    # The second attempt began a file of its own; the unfinished file of the first attempt is not continued.
    attempts = Counter(name.rpartition("-")[0] for name in names)
    assert max(attempts.values()) == 2, names


def test_nothing_runs_on_when_the_context_is_gone(cluster: Cluster) -> None:
    with spark_context(cluster.master, cluster.conf) as sc:
        assert sc.parallelize(range(4), 4).map(lambda number: number + 1).collect() == [1, 2, 3, 4]
        assert len(cluster.executors()) >= 1
    assert becomes(lambda: not cluster.executors()), cluster.executors()
    assert sys.modules.get("pandas") is None
