"""Spark's Python workers come from a process that was started beside the JVM."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kcompact.engine.spark import OnSpark, worker_pool
from tests.support.command_line import environment
from tests.support.spark_runs import SPARK, finished, parents_of_workers

pytestmark = SPARK


def test_workers_come_from_the_worker_pool(on_spark: OnSpark) -> None:
    (line,) = parents_of_workers(on_spark.sc)
    assert "--wait-for-daemon" in line.split("\0")


def test_a_daemon_without_a_worker_pool_is_pysparks() -> None:
    """A daemon writes the port that it listens on, here as an integer, and ends when its standard input does."""
    with tempfile.TemporaryDirectory() as short:  # A socket's path cannot be long.
        address = Path(short) / worker_pool.SOCKET
        with socket.socket(socket.AF_UNIX) as left:  # As a pool that was killed leaves it.
            left.bind(str(address))
        ran = subprocess.run(
            [sys.executable, "-P", "-m", worker_pool.__name__],
            input=b"",
            capture_output=True,
            check=False,
            env={**environment(), worker_pool.SOCKET_VARIABLE: str(address)},
        )
    assert (len(ran.stdout), ran.stderr) == (4, b"")
    assert 1024 <= int.from_bytes(ran.stdout, "big") < 65536


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


@pytest.mark.slow
def test_without_a_worker_pool_the_daemon_is_pysparks(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # A socket's path cannot be long.
        done = finished(NO_WORKER_POOL, tmp_path, tmp_path, TMPDIR=short)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert list(Path(short).iterdir()) == []
