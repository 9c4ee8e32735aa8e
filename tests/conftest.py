"""Options and profiles of the whole suite.

`--rewrite` regenerates the expected output of case files and of the examples in the docs. Hypothesis runs its `ci`
profile, the same examples each time; `first` does not make one that fails smaller. `new` looks for new ones, as many
as `--examples` says, and `--hypothesis-seed` repeats them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from kcompact.host import other_processes
from tests.support import crash
from tests.support.files_in_memory import directory_in_memory
from tests.support.machine_code import switched

if TYPE_CHECKING:
    from kcompact.engine.spark import OnSpark

ALL_PROCESSES = other_processes._processes

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("new", settings.get_profile("ci"), derandomize=False, database=None, print_blob=True)
settings.register_profile("first", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("ci")

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    # Whoever starts the tests in the background may have turned them off, and every command would inherit that.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the actual output into case files and docs; read the diff"
    )
    parser.addoption("--examples", type=int, metavar="COUNT", help="try so many examples for each property")
    parser.addoption("--kafka", metavar="VERSION", help="compare case files with this version of Kafka")


def pytest_sessionstart(session: pytest.Session) -> None:
    if examples := session.config.getoption("--examples"):
        settings.register_profile("counted", settings(), max_examples=examples)
        settings.load_profile("counted")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let no garbage be collected while the tests are loaded, and seldom after that.

    `gc.freeze` would hide from Hypothesis who refers to its random generator, which it then warns of.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


@pytest.fixture(params=[True, False], ids=["kernels", "definitions"])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether kernels read. A test with this fixture runs both ways."""
    with switched(compiled=request.param):
        yield request.param


def is_on_spark(node_id: str) -> bool:
    """Whether a test may start a JVM, by its path and name alone: each test marked `spark` has `spark` in them."""
    return "spark" in node_id.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check the names of the tests on Spark, and put those first that share one Spark, so that it starts once."""
    for item in items:
        if item.get_closest_marker("spark") and not is_on_spark(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} is marked `spark`: put `spark` into its path or name")
    items.sort(key=lambda item: not shares_spark(item))


def shares_spark(item: pytest.Item | None) -> bool:
    return "on_spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the shared Spark unless the next test uses it: a process has at most one SparkContext."""
    if not shares_spark(nextitem):
        SHARED_SPARK.stop()


def pytest_sessionfinish() -> None:
    SHARED_SPARK.stop()
    # A worker of xdist that needs more than ten seconds to end is killed, and what it has covered would be lost.
    if "coverage" in sys.modules and (coverage := sys.modules["coverage"].Coverage.current()) is not None:
        coverage.stop()
        coverage.save()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return the scheduler for `--dist loadscope`: one worker runs all tests on Spark, any worker each other module.

    Two JVMs at once take too much memory. The tests of buckets share a server of S3, so one worker runs these, too.
    `--dist loadgroup` would do the same, but has no effect with pytest 9.2.
    The tests on Spark take longest and come first, because the order of the modules is kept. A module is not split:
    its two halves would both need what it makes once, and xdist counts all assigned parts after each test.
    """
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    config.option.loadscopereorder = False

    def scope(node_id: str) -> str:
        module = node_id.partition("::")[0]
        return "spark" if is_on_spark(node_id) else "buckets" if "/bucket/" in module else module

    scheduler._split_scope = scope
    return scheduler


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be written anew."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def in_memory() -> Iterator[Path]:
    """A directory in memory that all tests of a process share."""
    with directory_in_memory() as path:
        yield path


@pytest.fixture(scope="session", autouse=True)
def quiet(in_memory: Path) -> Iterator[None]:
    """Let kcompact see no process but this one, keep its journal in memory, and let `os.fsync` do nothing.

    Each cleaning looks at all processes of the machine, and syncs each file. Few tests are about the one, and power
    cuts are simulated by a model of the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other_processes, "_processes", lambda: [os.getpid()])
        patch.setenv("XDG_STATE_HOME", str(in_memory / "state"))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def tmp_path(in_memory: Path) -> Iterator[Path]:
    """A directory of the test, in memory. Those of `tmp_path_factory` are on disk."""
    path = Path(tempfile.mkdtemp(dir=in_memory))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the test on disk: in memory directories take no space, and `/dev/shm` is no other file system."""
    return tmp_path_factory.mktemp("on-disk")


@pytest.fixture
def among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kcompact see the other processes of the machine all the same."""
    monkeypatch.setattr(other_processes, "_processes", ALL_PROCESSES)


class SharedSpark:
    """A Spark of this process that starts when a test first asks for it; a start takes seconds of two cores."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._executor: OnSpark | None = None

    def executor(self) -> OnSpark:
        from kcompact.engine.spark import OnSpark, spark_context

        if self._executor is None:
            self._executor = OnSpark(sc=self._stack.enter_context(spark_context("local[2]")))
        return self._executor

    def stop(self) -> None:
        self._executor = None
        self._stack.close()


SHARED_SPARK = SharedSpark()


@pytest.fixture
def on_spark() -> OnSpark:
    """An executor on the Spark that tests share; for tests with the mark `spark`."""
    return SHARED_SPARK.executor()


@pytest.fixture
def scene(tmp_path: Path) -> crash.Scene:
    """A partition with a staged round of two groups."""
    return crash.build(tmp_path / "data", crash.GROUPS[2])
