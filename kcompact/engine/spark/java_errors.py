"""Says in a few lines what went wrong in Java. Stack traces are in a note of the exception; `--debug` shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kcompact import __version__
from kcompact.engine.spark.java import NO_SPACE
from kcompact.engine.spark.master import is_local
from kcompact.errors import EngineError, KcompactError, ScratchSpaceError

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError

MAX_LINE_CHARS = 300
MAX_LINES = 5
_NO_PACKAGE = "No module named 'kcompact'"
_WITHOUT_SPARK = "--engine in-process gives the same result without Spark."

_LEFT_OUT = re.compile(
    r"\s*(at \S+\(.*\)|\.\.\. \d+ more|WARNING: .*|OpenJDK .* warning: .*|[#\s]*"
    r"|\S*/spark-class: line \d+: .*|Setting default log level .*|To adjust logging level .*)$"
)
"""Frames of stack traces, warnings, lines without words, complaints of Spark's script, hints about log levels."""
_THREAD = re.compile(r'Exception in thread "[^"]*" ')
_CLASS = re.compile(r"(?:[a-z_]\w*\.)+((?:\w|\$)*(?:Exception|Error))(: |$)", re.ASCII)
_SAY_NOTHING = {
    *("SparkException", "SparkIllegalArgumentException", "IllegalArgumentException", "IllegalStateException"),
    *("NumberFormatException", "RuntimeException", "SparkRuntimeException", "IOException"),
}
"""Exceptions whose names add nothing to their message."""
_CODES = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] | SQLSTATE: \w+")
"""Spark's identifiers of errors."""
_WORDS = (
    (re.compile(r"^Java gateway process exited before sending its port number\."), "Java ended before Spark was ready"),
    (re.compile(r"^ClassNotFoundException: (\S+)$"), r"Java finds no class \1"),
    (
        # The second one is of a SparkContext that is stopped before it is complete.
        re.compile(r"^(Cannot call methods on a stopped SparkContext\.|NullPointerException: .*\bSparkEnv\b).*"),
        "the cluster has ended the application, or did not accept it; "
        "check spark.authenticate.secret and the logs of the cluster",
    ),
)
"""Messages of Spark and Java, and plainer words for them."""


@contextmanager
def as_py4j_raises() -> Iterator[None]:
    """Raise an exception of Java as Py4J does.

    As soon as a process has had a SparkSession, PySpark raises many of them as exceptions of SQL, also for a plain
    SparkContext. They have less text, and none of them is a Py4JError.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as problem:
        if isinstance(problem.__context__, Py4JJavaError):
            raise problem.__context__ from None
        raise


def cause(problem: Py4JJavaError) -> str:
    """Return the cause of a Java exception in one line: the Python error, if a task raised one."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    tracebacks = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if tracebacks:
        return next((line for line in lines[tracebacks[-1] + 1 :] if not line[0].isspace()), lines[0]).strip()
    first = plain(next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0]))
    roots = [plain(line.removeprefix("Caused by: ")) for line in lines if line.startswith("Caused by: ")]
    root = roots[-1] if roots else ""
    return f"{first.rstrip('.')} ({root})" if root.rpartition(": ")[2] not in first else first


def plain(line: str) -> str:
    """Return a line without names of packages, names of general exceptions, and Spark's error codes."""
    line = _THREAD.sub("", line)
    line = _CLASS.sub(lambda match: "" if match[1] in _SAY_NOTHING and match[2] else match[1] + match[2], line)
    line = _CODES.sub("", line).strip()
    for pattern, words in _WORDS:
        line = pattern.sub(words, line)
    return line[:MAX_LINE_CHARS]


def summary(output: str) -> str:
    """Return the first lines of a JVM's output that say why it ended, indented, each once; empty without output.

    The output can be that of several attempts.
    """
    lines = dict.fromkeys(plain(line.lstrip("# ")) for line in output.splitlines() if not _LEFT_OUT.match(line))
    return "".join(f"\n  {line}" for line in list(lines)[:MAX_LINES])


def start_error(reason: str, master: str, conf: Mapping[str, str]) -> KcompactError:
    """Return the error of a Spark that did not start. The hint has the names of the settings that may be wrong.

    `conf` has the user's settings. The hint has no value, because one can be a secret.
    """
    if NO_SPACE in reason:
        return ScratchSpaceError(path="spark.local.dir")
    suspects = (
        [name for name in conf if name in reason]
        or [name for name, value in conf.items() if len(value) > 1 and value in reason]
        or list(conf)
    )
    to_check = [*([] if is_local(master) else ["--master"]), *(f"--spark-conf {name}" for name in suspects)]
    hint = f"Check {', '.join(to_check)}.\n" if to_check else ""
    return EngineError(problem=f"the start failed: {reason}", hint=hint + _WITHOUT_SPARK)


def job_error(problem: Py4JJavaError) -> KcompactError:
    """Return the error of a job that failed in Java."""
    if _NO_PACKAGE in str(problem):
        error: KcompactError = EngineError(
            problem="the Python of a worker has no kcompact",
            hint=f"Install kcompact {__version__} for it. --spark-conf spark.pyspark.python=PATH names that Python, "
            "PYSPARK_PYTHON that of a Spark of your own.",
        )
        return with_whole_text(error, str(problem))
    if NO_SPACE in str(problem):
        return with_whole_text(ScratchSpaceError(path="spark.local.dir"), str(problem))
    return with_whole_text(EngineError(problem=f"the job failed: {cause(problem)}"), str(problem))


def with_whole_text(error: KcompactError, text: str) -> KcompactError:
    """Return the error with a note that tracebacks show: the text of which the message has the important lines.

    Without the note the text is lost: an exception of Java is read from the JVM whenever it is printed.
    """
    if text.strip():
        error.add_note(f"\nThe whole text:\n{text.strip().expandtabs(4)}")
    return error
