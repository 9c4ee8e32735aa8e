"""Spark's Python workers come from a process that was started beside the JVM."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kcompact.engine.spark import OnSpark
from tests.support.spark_runs import SPARK, finished, parents_of_workers

pytestmark = SPARK


def test_workers_come_from_the_worker_pool(on_spark: OnSpark) -> None:
    (line,) = parents_of_workers(on_spark.sc)
    assert "--wait-for-daemon" in line.split("\0")


NO_WORKER_POOL = """
from tests.support.spark_runs import parents_of_workers

def worker_pools():
    return [pid for pid in process_tree()[1:] if "--wait-for-daemon" in Path(f"/proc/{pid}/cmdline").read_text()]

with spark_start("local[2]") as start:
    while not (found := worker_pools()):  # For a moment after a process starts, Linux reports an empty command line.
        time.sleep(0.01)
    (pid,) = found
    os.kill(pid, signal.SIGKILL)
    with start.context() as sc:
        (line,) = parents_of_workers(sc)
        assert "pyspark.worker" in line.split("\\0"), line
        assert sc.parallelize(range(4), 2).sum() == 6
"""


def test_without_a_worker_pool_the_daemon_is_pysparks(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # A socket's path cannot be long.
        done = finished(NO_WORKER_POOL, tmp_path, tmp_path, TMPDIR=short)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert list(Path(short).iterdir()) == []
