"""A Spark that does not start: one short message without a stack trace, and nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcompact.engine.spark import jvm, spark_context, spark_start
from kcompact.engine.spark.context import SparkStart
from kcompact.errors import EngineError, ScratchSpaceError
from tests.support.command_line import COMPACT, environment, kcompact, partition
from tests.support.disk_in_memory import disk_in_memory
from tests.support.fake_java import PRINTS_17, write_java
from tests.support.spark_runs import SPARK, pretend_session, processes_of

pytestmark = SPARK


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Exempt what other modules have left, so that a collection after each test takes no time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the garbage while its warnings are ignored: PySpark does not close the pipe to a JVM that has ended."""
    yield
    gc.collect()


BROKEN = {
    "exit": ("exit 1", ["ended with exit code 1"]),
    "signal": ("kill -SEGV $$", ["was killed by SIGSEGV"]),
    "message": (
        "echo 'Error occurred during initialization of VM' >&2\necho 'No space' >&2\nexit 1",
        ["Error occurred during initialization of VM", "No space", "ended with exit code 1"],
    ),
    "two causes": (
        'case "$*" in *PythonGatewayServer*) echo first;; *) echo second >&2;; esac\nexit 2',
        ["first", "ended with exit code 2", "second"],
    ),
}
"""The script of a `java` that answers `java -version`, and the ends of lines of the message, in this order."""


@pytest.mark.parametrize(
    ("script", "ends"),
    # The others have what `exit` has, too.
    [pytest.param(*BROKEN[each], id=each, marks=[pytest.mark.slow] if each == "exit" else []) for each in BROKEN],
)
def test_a_broken_java_fails_both_starts_with_one_message(
    script: str, ends: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    write_java(tmp_path, f'{PRINTS_17}echo "$@" >> {calls}\n{script}')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(EngineError) as raised, spark_context("local[1]"):
        pass
    first, *lines, last = str(raised.value).splitlines()
    assert first == "Spark: the start failed: Java ended before Spark was ready"
    assert last == "`InProcess()` gives the same result without Spark."
    assert [end for line in lines for end in ends if line.endswith(end)] == ends
    assert len(lines) <= 5
    direct, *_, submitted = calls.read_text().splitlines()
    assert "PythonGatewayServer" in direct
    assert "org.apache.spark.launcher.Main" in submitted


def test_only_debug_shows_the_stack_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path, f"{PRINTS_17}printf 'a.b.CException: why\\n\\tat a.b.C.d(C.java:1)\\n' >&2\nexit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    arguments = ("clean", "--dry-run", "--master", "local[1]", *COMPACT, partition(tmp_path / "logs"))
    for options, is_shown in (((), False), (("--debug",), True)):
        ran = kcompact(*arguments, *options)
        assert (ran.code, "    at a.b.C.d(C.java:1)" in ran.err) == (1, is_shown)
        assert "error: Spark: the start failed: Java ended before Spark was ready\n  CException: why\n" in ran.err


KILLED = """
import signal, threading
from kcompact.engine.spark import jvm
connect = jvm.Jvm.connect
def killed(self):
    gateway = connect(self)
    self._process.send_signal(signal.SIGSTOP)  # So it dies while an answer is awaited.
    threading.Timer(0.3, self._process.kill).start()
    return gateway
jvm.Jvm.connect = killed
from kcompact.__main__ import main
main()
"""


def test_a_java_that_is_killed_at_its_start_gives_one_message(tmp_path: Path) -> None:
    partition(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, "clean", "--master", "local[1]", *COMPACT, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "error: Spark: the start failed" in ended.stderr


def test_a_java_that_never_answers_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    write_java(tmp_path, f"{PRINTS_17}echo starting\necho >> {calls}\nexec sleep 300")
    now_s = 0.0

    def monotonic() -> float:
        """Two seconds pass when the program has said what it says."""
        nonlocal now_s
        now_s += 2.5 * calls.exists()
        return now_s

    monkeypatch.setattr(jvm, "START_S", 2)
    monkeypatch.setattr(jvm, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(EngineError) as raised, spark_context("local[1]"):
        pass
    assert str(raised.value).splitlines()[:2] == [
        "Spark: the start failed: Java did not answer within 2 seconds",
        "  starting",
    ]
    assert calls.read_text() == "\n"
    assert processes_of(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_java_that_has_filled_the_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can say neither how to reach it nor why it cannot be reached."""
    monkeypatch.setattr(jvm, "FULL_DISK_S", 0.2)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with disk_in_memory(tmp_path / "small", "64k") as disk:
        write_java(tmp_path, f"{PRINTS_17}head -c 90000 /dev/zero >{disk}/classes 2>/dev/null\nexec sleep 300")
        full = pytest.raises(ScratchSpaceError, match=r"spark\.local\.dir: not enough free space")
        with full, spark_context("local[1]", {"spark.local.dir": str(disk)}):
            pass
        assert processes_of(tmp_path) == []


SETTINGS = {
    "too little memory": ("spark.driver.memory", "1k", "Java ended before Spark was ready"),
    "a directory": ("spark.local.dir", "/proc/nonexistent", "No such file or directory"),
    "a program": ("spark.pyspark.python", "/proc/nonexistent", "/proc/nonexistent: No such file or directory"),
}
"""A setting, a wrong value, and what the message says. These fail before there is a JVM."""
SETTINGS_IN_JAVA = {
    "a number": ("spark.memory.fraction", "much", "Illegal value for config key spark.memory.fraction"),
    "a range": ("spark.memory.fraction", "7", "spark.memory.fraction should be between 0 and 1"),
    "a class": ("spark.serializer", "nonsense", "Java finds no class nonsense"),
}
"""The same. These fail in the JVM."""
IN_JAVA = [
    *(pytest.param(*row, False, id=each) for each, row in SETTINGS_IN_JAVA.items()),
    pytest.param(*SETTINGS_IN_JAVA["a number"], True, id="a number, after a session"),
]
of_settings = pytest.mark.parametrize(("name", "value", "words", "had_session"), IN_JAVA)


@pytest.mark.parametrize(("name", "value", "words"), SETTINGS.values(), ids=SETTINGS)
def test_a_wrong_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(EngineError) as raised, spark_context("local[1]", {name: value, "spark.unrelated": "42"}):
        pass
    assert_named(raised.value, name, words)


@pytest.fixture(scope="module")
def start() -> Iterator[SparkStart]:
    """A JVM that `spark-submit` starts, as if it could not be started directly. No context that fails ends it."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(jvm.Jvm, "start", lambda _: None)
            start = stack.enter_context(spark_start("local[1]"))
        yield start
    gc.collect()


@of_settings
def test_a_setting_that_is_wrong_in_java_is_named(
    name: str, value: str, words: str, had_session: bool, start: SparkStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_session(monkeypatch, had_session=had_session)
    conf = {name: value, "spark.unrelated": "42"}
    again = dataclasses.replace(start, conf=conf, settings={**start.settings, **conf})
    with pytest.raises(EngineError) as raised, again.context():
        pass
    assert_named(raised.value, name, words)


@pytest.mark.slow
@of_settings
def test_a_setting_that_is_wrong_in_java_is_named_by_a_whole_start(
    name: str, value: str, words: str, had_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_session(monkeypatch, had_session=had_session)
    with pytest.raises(EngineError) as raised, spark_context("local[1]", {name: value, "spark.unrelated": "42"}):
        pass
    assert_named(raised.value, name, words)


def assert_named(error: EngineError, name: str, words: str) -> None:
    first, *_, check, _ = str(error).splitlines()
    assert first.startswith("Spark: the start failed: ")
    assert words in first
    assert check in (f"Check `spark_conf` {name}.", f"Check `spark_conf` {name}, `spark_conf` spark.unrelated.")
    assert "Exception" not in str(error)
    assert "\tat " not in str(error)
    if name == "spark.memory.fraction":
        assert "    at org.apache.spark" in "".join(traceback.format_exception(error))
