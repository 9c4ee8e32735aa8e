"""PySpark's private names: each is still there, and kcompact works without it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from kcompact.clean.prepare import prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, jvm, pyspark_private, spark_context
from kcompact.errors import EngineError
from tests.support.fake_java import write_java
from tests.support.patience import PATIENCE_S, becomes
from tests.support.spark_runs import ROOT, SPARK, finished, plan_of, processes_of, write_log

MODULE = "kcompact/engine/spark/pyspark_private.py"


def spark_marked(function: Callable[..., None]) -> Callable[..., None]:
    """Give a test that starts Spark the marks of `SPARK`; the other tests of this module start no JVM."""
    for mark in SPARK:
        function = mark(function)
    return function


def moved(name: str) -> str:
    import pyspark

    return f"PySpark {pyspark.__version__} no longer has {name}; see {MODULE}"


# Each name is still there


@pytest.mark.parametrize(
    "name", [pyspark_private.ACTIVE_CONTEXT, pyspark_private.GATEWAY, pyspark_private.JVM_VIEW], ids=str
)
def test_class_has(name: str) -> None:
    from pyspark import SparkContext

    assert hasattr(SparkContext, name), moved(f"SparkContext.{name}")


@pytest.mark.parametrize(
    "name", [pyspark_private.JAVA_CONTEXT, pyspark_private.ACCUMULATOR_SERVER, pyspark_private.GATEWAY], ids=str
)
@spark_marked
def test_running_context_has(name: str, on_spark: OnSpark) -> None:
    assert getattr(on_spark.sc, name, None) is not None, moved(f"{name} of a running SparkContext")


@spark_marked
def test_accumulator_server_is_one_of_socketserver(on_spark: OnSpark) -> None:
    server = getattr(on_spark.sc, pyspark_private.ACCUMULATOR_SERVER)
    for name in ("handle_error", "shutdown"):
        assert callable(getattr(server, name, None)), moved(f"{pyspark_private.ACCUMULATOR_SERVER}.{name}")


@spark_marked
def test_nothing_is_kept_of_the_accumulators_of_a_job(on_spark: OnSpark, tmp_path: Path) -> None:
    from pyspark import accumulators

    assert hasattr(accumulators, pyspark_private.ACCUMULATORS), moved(f"accumulators.{pyspark_private.ACCUMULATORS}")
    before = set(getattr(accumulators, pyspark_private.ACCUMULATORS))
    prepare_clean(plan_of(write_log(tmp_path / "logs")), on_spark)
    assert set(getattr(accumulators, pyspark_private.ACCUMULATORS)) == before


def test_a_task_that_ends_late_sends_to_an_accumulator_that_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import accumulators

    registry: dict[int, Any] = {7: object()}
    monkeypatch.setattr(accumulators, pyspark_private.ACCUMULATORS, registry)
    pyspark_private.forget_accumulators(types.SimpleNamespace(aid=7), may_get_more=True)
    registry[7] += [b"late"]
    assert (list(registry), vars(registry[7])) == ([7], {})
    pyspark_private.forget_accumulators(types.SimpleNamespace(aid=7), may_get_more=False)
    assert registry == {}


@spark_marked
def test_running_context_is_seen(on_spark: OnSpark) -> None:
    assert pyspark_private.has_active_context(), moved(f"the context in SparkContext.{pyspark_private.ACTIVE_CONTEXT}")


@spark_marked
def test_executors_are_counted(on_spark: OnSpark) -> None:
    # In local mode the driver runs the tasks, and no other executor registers.
    assert pyspark_private.executor_count(on_spark.sc) == 0, moved("SparkContext.getExecutorMemoryStatus in the JVM")


def test_launch_gateway_reads_its_variables() -> None:
    from pyspark import java_gateway

    assert callable(getattr(java_gateway, pyspark_private.LAUNCH_GATEWAY, None)), moved("java_gateway.launch_gateway")
    source = Path(java_gateway.__file__).read_text(encoding="utf-8")
    names = (pyspark_private.GATEWAY_PORT, pyspark_private.GATEWAY_SECRET, pyspark_private.SUBMIT_ARGUMENTS)
    for name in (*names, f"gateway.{pyspark_private.GATEWAY_PROCESS} ="):
        assert name in source, moved(f"{name!r} in pyspark/java_gateway.py")


def test_gateway_server_is_in_the_jars() -> None:
    (jar,) = (jvm.spark_home() / "jars").glob("spark-core_*.jar")
    member = pyspark_private.GATEWAY_SERVER.replace(".", "/")
    with zipfile.ZipFile(jar) as classes:
        names = [name for name in classes.namelist() if name.startswith(member)]
        assert f"{member}.class" in names, moved(pyspark_private.GATEWAY_SERVER)
        code = b"".join(map(classes.read, names))
    assert pyspark_private.CONNECTION_FILE.encode() in code, moved(pyspark_private.CONNECTION_FILE)


def test_daemon_has_its_main_function() -> None:
    from pyspark import daemon

    assert callable(getattr(daemon, pyspark_private.DAEMON_MANAGER, None)), moved("daemon.manager")


def test_workers_modules_are_there() -> None:
    subprocess.run([sys.executable, "-c", "import pyspark.daemon, pyspark.worker"], check=True)


# Without each name


def gone(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make kcompact find none of these names of PySpark."""
    for name in names:
        monkeypatch.setattr(pyspark_private, name, f"_no_{name.lower()}")


def test_without_active_context_no_context_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    context = types.SimpleNamespace(_active_spark_context=object())
    monkeypatch.setitem(sys.modules, "pyspark", types.SimpleNamespace(SparkContext=context))
    assert pyspark_private.has_active_context()
    gone(monkeypatch, "ACTIVE_CONTEXT")
    assert not pyspark_private.has_active_context()


@spark_marked
def test_without_active_context_pyspark_refuses_a_second_one(
    on_spark: OnSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone(monkeypatch, "ACTIVE_CONTEXT")
    # Any JVM will do: PySpark looks at none.
    gateway = pyspark_private.gateway_of(on_spark.sc)
    monkeypatch.setattr(jvm.Jvm, "start", lambda _: None)
    monkeypatch.setattr(jvm.Jvm, "connect", lambda _: gateway)
    with pytest.raises(EngineError, match="Cannot run multiple SparkContexts at once"), spark_context("local[1]"):
        pass
    assert on_spark.sc.parallelize(range(4), 2).sum() == 6


@pytest.mark.parametrize("name", ["GATEWAY", "JVM_VIEW"])
def test_without_a_gateway_to_hide_nothing_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    kept = {name: object() for name in (pyspark_private.GATEWAY, pyspark_private.JVM_VIEW)}
    for attribute, value in kept.items():
        monkeypatch.setattr(SparkContext, attribute, value)
    with pyspark_private.hidden_gateway():
        assert {getattr(SparkContext, attribute) for attribute in kept} == {None}
    gone(monkeypatch, name)
    with pyspark_private.hidden_gateway():
        assert {attribute: getattr(SparkContext, attribute) for attribute in kept} == kept
    assert {attribute: getattr(SparkContext, attribute) for attribute in kept} == kept


def test_without_java_context_the_number_of_executors_is_unknown() -> None:
    sc: Any = types.SimpleNamespace()
    assert pyspark_private.executor_count(sc) is None
    pyspark_private.detach_java_context(sc)
    assert vars(sc) == {}


@pytest.mark.parametrize("error", [Py4JError("Method getExecutorMemoryStatus([]) does not exist"), Py4JNetworkError()])
def test_executors_are_unknown_without_the_method_not_without_the_jvm(error: Py4JError) -> None:
    def raises() -> None:
        raise error

    sc: Any = types.SimpleNamespace(_jsc=types.SimpleNamespace(sc=raises))
    if isinstance(error, Py4JNetworkError):
        with pytest.raises(Py4JNetworkError):
            pyspark_private.executor_count(sc)
    else:
        assert pyspark_private.executor_count(sc) is None


def test_without_accumulator_server_nothing_is_done() -> None:
    sc: Any = types.SimpleNamespace()
    pyspark_private.silence_accumulators(sc)
    pyspark_private.detach_accumulators(sc)
    assert vars(sc) == {}


def test_a_socket_that_is_removed_first_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[object] = []
    ended = threading.Event()

    def shutdown() -> None:
        ended.set()
        raise FileNotFoundError(2, "No such file or directory", "/nowhere/socket")

    monkeypatch.setattr(threading, "excepthook", failed.append)
    before = set(threading.enumerate())
    sc: Any = types.SimpleNamespace(**{pyspark_private.ACCUMULATOR_SERVER: types.SimpleNamespace(shutdown=shutdown)})
    pyspark_private.detach_accumulators(sc)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
    assert ended.wait(PATIENCE_S)
    assert failed == []


def test_without_launch_gateway_there_is_no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    gone(monkeypatch, "LAUNCH_GATEWAY")
    monkeypatch.setenv(pyspark_private.SUBMIT_ARGUMENTS, "")
    assert pyspark_private.connect(b"\0\0\1\0\0\0\0\6secret") is None
    assert pyspark_private.submit(["--master", "local[1]", "pyspark-shell"], io.BytesIO()) is None


def test_without_launch_gateway_the_jvm_is_left_to_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that has been started and answers is of no use then."""
    gone(monkeypatch, "LAUNCH_GATEWAY")
    calls, answer = tmp_path / "calls", f'"${pyspark_private.CONNECTION_FILE}"'
    java = write_java(
        tmp_path,
        f"echo >> {calls}\nprintf '\\000\\000\\001\\000\\000\\000\\000\\006secret' > {tmp_path}/answer\n"
        f"mv {tmp_path}/answer {answer}\nexec cat > {tmp_path}/answer",
    )
    # Without an archive, so that it is not started a second time.
    settings = {"spark.master": "local[1]", "spark.driver.memory": "64m", "spark.driver.extraClassPath": "x.jar"}
    started = jvm.Jvm(java, settings, dict(os.environ), tmp_path)
    with mock.patch.dict(os.environ):
        started.start()
        assert started.connect() is None
        assert "--driver-class-path x.jar" in os.environ[pyspark_private.SUBMIT_ARGUMENTS]
    assert calls.read_text() == "\n"
    assert processes_of(tmp_path) == []
    started.end()


def test_a_jvm_that_pyspark_has_started_is_taken_over_unless_it_is_another_ones(tmp_path: Path) -> None:
    settings = {"spark.master": "local[1]", "spark.driver.memory": "64m"}
    started = jvm.Jvm(tmp_path / "java", settings, {}, tmp_path)
    of_earlier: Any = types.SimpleNamespace(getSystemProperty=lambda _: f"{tmp_path}/earlier")
    with pytest.raises(EngineError, match="uses the Java process of an earlier SparkContext of this process"):
        started.adopt(of_earlier)
    assert not started.kills_context
    ended: list[str] = []
    process = types.SimpleNamespace(
        kill=lambda: ended.append("killed"), wait=lambda: ended.append("waited"), stdin=io.BytesIO()
    )
    gateway = types.SimpleNamespace(proc=process, shutdown=lambda: ended.append("shut down"))
    ours: Any = types.SimpleNamespace(_gateway=gateway, getSystemProperty={jvm.HOME_PROPERTY: str(tmp_path)}.get)
    started.adopt(ours)
    assert started.kills_context
    started.end()
    assert ended == ["shut down", "killed", "waited"]
    assert process.stdin.closed


def test_without_the_process_of_a_gateway_it_is_unknown() -> None:
    assert pyspark_private.process_of(types.SimpleNamespace(proc=1)) == 1
    assert pyspark_private.process_of(types.SimpleNamespace()) is None
    sc: Any = types.SimpleNamespace()
    assert pyspark_private.process_of(pyspark_private.gateway_of(sc)) is None


def test_without_its_main_function_the_daemon_runs_as_a_script() -> None:
    """A daemon writes the port that it listens on, here as an integer, and ends when its standard input does."""
    program = (
        "from kcompact.engine.spark import pyspark_private as private\n"
        "private.DAEMON_MANAGER = '_no_manager'\n"
        "private.run_daemon()\n"
    )
    ordinary, script = (
        subprocess.run([sys.executable, *arguments], cwd=ROOT, input=b"", capture_output=True, check=False)
        for arguments in (["-m", "pyspark.daemon"], ["-c", program])
    )
    assert (script.returncode, script.stderr) == (ordinary.returncode, b"")
    assert len(script.stdout) == len(ordinary.stdout) == 4
    assert 1024 <= int.from_bytes(script.stdout, "big") < 65536


# Without several names, a whole run

RUN = """
from kcompact.engine.spark import pyspark_private
for name in sys.argv[2:]:
    setattr(pyspark_private, name, "_no_" + name.lower())

def run():
    with spark_context("local[2]") as sc:
        executor = OnSpark(sc=sc)
        private = Path(sc.getConf().get("spark.local.dir"))
        print(prepare_clean(plan_of(Path(sys.argv[1])), executor).map_keys, flush=True)
    assert not private.exists()

run()
try:
    run()
except EngineError as error:
    print(error)
"""


@spark_marked
@pytest.mark.parametrize(
    ("names", "second"),
    [
        # PySpark starts the JVM through `spark-submit`, and nothing kills it.
        pytest.param(
            ["CONNECTION_FILE", "JAVA_CONTEXT", "ACCUMULATOR_SERVER", "GATEWAY_PROCESS"],
            "KEYS",
            marks=pytest.mark.slow,
        ),
        # PySpark starts the JVM by itself.
        pytest.param(["LAUNCH_GATEWAY"], "KEYS", marks=pytest.mark.slow),
        # The second context is on the JVM of the first.
        pytest.param(
            "ACTIVE_CONTEXT GATEWAY JVM_VIEW JAVA_CONTEXT ACCUMULATOR_SERVER LAUNCH_GATEWAY GATEWAY_PROCESS".split(),
            "Spark: PySpark uses the Java process of an earlier SparkContext of this process",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["connection-file", "launch-gateway", "all"],
)
def test_keys_are_the_same_without(names: list[str], second: str, tmp_path: Path) -> None:
    directory = write_log(tmp_path / "logs")
    keys = str(prepare_clean(plan_of(directory), InProcess()).map_keys)
    done = finished(RUN, directory, tmp_path, *names)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == [keys, keys if second == "KEYS" else second], done.stderr
    assert_ended(tmp_path)
    # A JVM that was not killed can make its directory again, empty, after it has been removed.
    assert not [path for path in (tmp_path / "tmp").rglob("*") if not path.is_dir()]


def assert_ended(tmp_path: Path) -> None:
    """Check that no process of a test lives on; a JVM whose pipe closes needs a moment to end."""
    assert becomes(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
