"""Starting and stopping Spark: nothing is printed, opened or left behind, and no process lives on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kcompact.engine.spark import jvm, scratch
from kcompact.errors import ConfigError
from tests.support.patience import becomes
from tests.support.spark_runs import (
    SPARK,
    environment,
    finished,
    processes_of,
    script,
    write_log,
)

pytestmark = SPARK


# Each in a process of its own


@pytest.mark.parametrize("way", ["direct", pytest.param("submit", marks=pytest.mark.slow)])
def test_nothing_is_printed_opened_or_left(way: str, tmp_path: Path) -> None:
    directory = write_log(tmp_path / "logs")
    body = "from tests.support.spark_runs import clean_privately\nclean_privately(Path(sys.argv[1]))\n"
    if way == "submit":
        body = "def fails(*_):\n    raise jvm._DirectStartError\njvm.Jvm._connected = fails\n" + body
    # What a user's shell may hold, none of it meant for kcompact; and a module that must not be imported from here.
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the current directory')")
    hostile = {
        "SPARK_HOME": "/proc/nonexistent",
        "SPARK_CONF_DIR": "/proc/nonexistent",
        "SPARK_LOCAL_IP": "0.0.0.0",
        "SPARK_LOCAL_DIRS": "/proc/nonexistent",
        "PYSPARK_PYTHON": "/proc/nonexistent",
        "PYSPARK_SUBMIT_ARGS": "--nonsense",
        "PYSPARK_PIN_THREAD": "false",
        "JAVA_TOOL_OPTIONS": "-Xmx1m",
        "JAVA_HOME": "/proc/nonexistent",
    }
    done = finished(body, directory, tmp_path, **hostile)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / "tmp").iterdir()) == []


KILLED = """
class Killer(Progress):
    killed = False
    def check(self):
        if not self.killed and sc.statusTracker().getActiveStageIds():
            self.killed = True
            os.kill(jvm, signal.SIGKILL)

plan = plan_of(Path(sys.argv[1]))
with spark_context("local[2]") as sc:
    jvm = process_tree()[1]
    try:
        OnSpark(sc=sc, progress=Killer()).scan_and_reduce(*endless(plan), CLEANING)
    except EngineError as error:
        print(error.exit_code, error)
    try:
        prepare_clean(plan, OnSpark(sc=sc))
    except EngineError as error:
        print(error.exit_code, error)
"""


def test_killed_jvm_is_an_engine_error(tmp_path: Path) -> None:
    done = finished(KILLED, write_log(tmp_path / "logs"), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("use `InProcess()`.") == 2
    assert done.stdout.startswith("1 Spark: the Java process has ended")
    assert list((tmp_path / "tmp").iterdir()) == []


INTERRUPTED = """
class Flag(Progress):
    raised = is_running = False
    def check(self):
        if self.raised:
            raise CleaningAbortedError(path="orders-0")
        if not self.is_running and sc.statusTracker().getActiveStageIds():
            self.is_running = True
            print("runs", flush=True)

progress = Flag()
signal.signal(signal.SIGINT, lambda *_: setattr(progress, "raised", True))
plan = plan_of(Path(sys.argv[1]))
with spark_context("local[2]") as sc:
    print(process_tree()[1], flush=True)
    try:
        OnSpark(sc=sc, progress=progress).scan_and_reduce(*endless(plan), CLEANING)
    except CleaningAbortedError:
        print("alive" if prepare_clean(plan, OnSpark(sc=sc)).map_keys else "no keys", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_interrupt_reaches_us_alone_and_no_jvm_outlives_us(tmp_path: Path) -> None:
    with interrupted(INTERRUPTED, str(write_log(tmp_path / "logs")), env=environment(tmp_path)) as (jvm, process):
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "alive\n"
        assert Path(f"/proc/{jvm}").exists()
    assert_all_end(jvm, tmp_path)


INTERRUPTED_START = """
interrupted = []
signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
with spark_start("local[2]") as start:
    _, jvm, pool = process_tree()
    print(jvm, flush=True)
    while not interrupted:
        time.sleep(0.01)
    os.kill(pool, 0)
    start.jvm.connect()
    print("alive", flush=True)
    time.sleep(600)
"""


def test_interrupt_reaches_us_alone_and_no_starting_jvm_outlives_us() -> None:
    with tempfile.TemporaryDirectory() as short:  # There is no worker pool where the path of its socket is too long.
        with interrupted(INTERRUPTED_START, env=environment(Path(short))) as (jvm, process):
            assert process.stdout is not None
            os.killpg(process.pid, signal.SIGINT)
            assert process.stdout.readline() == "alive\n"
            assert Path(f"/proc/{jvm}").exists()
        assert_all_end(jvm, Path(short))


@contextlib.contextmanager
def interrupted(body: str, *arguments: str, env: Mapping[str, str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a program that prints the number of its JVM; kill it at the end of the block."""
    process = subprocess.Popen(
        script(body, *arguments), env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


def assert_all_end(jvm: int, tmp_path: Path) -> None:
    """The workers end with the JVM, and the next run removes the directory that is left."""
    assert becomes(lambda: not Path(f"/proc/{jvm}").exists())
    assert becomes(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
    (left,) = (tmp_path / "tmp").iterdir()
    with scratch.private_directory(str(tmp_path / "tmp")) as directory:
        assert list((tmp_path / "tmp").iterdir()) == [directory]
    assert not left.exists()


INTERRUPTED_END = """
from kcompact.engine.spark.context import spark_start
from kcompact.engine.spark.jvm import Jvm
from kcompact.engine.spark.worker_pool import WorkerPool
from kcompact.host.process_end import undo_all

def interrupt_the_end_of(kind):
    killed, kill, end = [], kind.kill, kind.end
    def counted(self):
        killed.append(self)
        kill(self)
    def interrupted(self):
        killed.clear()
        undo_all()
        print(kind.__name__, len(killed))
        end(self)
    kind.kill, kind.end = counted, interrupted

interrupt_the_end_of(Jvm)
interrupt_the_end_of(WorkerPool)
with spark_start("local[1]"):
    pass
"""


def test_signal_while_spark_ends_kills_its_processes(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # There is no worker pool where the path of its socket is too long.
        done = finished(INTERRUPTED_END, tmp_path, Path(short))
    assert (done.returncode, done.stdout, done.stderr) == (0, "WorkerPool 1\nJvm 1\n", "")


# Before anything starts


@pytest.mark.parametrize(
    ("memory", "heap"), [("1g", "1g"), ("512m", "512m"), ("800", "800m"), ("2GB", "2g"), ("much", None)]
)
def test_memory_is_a_size(memory: str, heap: str | None) -> None:
    if heap is None:
        with pytest.raises(ConfigError, match="is not a size"):
            jvm.heap({"spark.driver.memory": memory})
    else:
        assert jvm.heap({"spark.driver.memory": memory}) == heap
