"""What the user reads when Java or Spark fails: the cause in plain words, no stack trace, what to check."""

from __future__ import annotations

import pickle
import traceback

import pytest

from kcompact.engine.spark.java_errors import MAX_LINES, plain, start_error, summary, with_whole_text

TRACE = """\
WARNING: A terminally deprecated method in sun.misc.Unsafe has been called
Exception in thread "main" org.apache.spark.SparkException: When running with master 'yarn' set HADOOP_CONF_DIR.
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
\tat org.apache.spark.deploy.SparkSubmit$$anon$2.doSubmit(SparkSubmit.scala:1171)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 12 more
"""
ENDED = (
    "the cluster has ended the application, or did not accept it; "
    "check spark.authenticate.secret and the logs of the cluster"
)
CRASH = "#\n# A fatal error has been detected by Java:\n#\n#  SIGSEGV (0xb) at pc=0x1, pid=2\n#\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("java.lang.NumberFormatException: Illegal value for config key a.b", "Illegal value for config key a.b"),
        ("java.lang.NullPointerException", "NullPointerException"),
        ("java.net.ConnectException: Connection refused", "ConnectException: Connection refused"),
        ("java.lang.ClassNotFoundException: a.B", "Java finds no class a.B"),
        ("[A_B.C_D] The value 'x' is wrong. SQLSTATE: 22022", "The value 'x' is wrong."),
        ("[A] Java gateway process exited before sending its port number.", "Java ended before Spark was ready"),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", ENDED),
        ('java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.driverTmpDir()" because', ENDED),
        ("No such file: /a/b.c", "No such file: /a/b.c"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_plain_words(line: str, words: str) -> None:
    assert plain(line) == words


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("", []),
        ("\n \n", []),
        (
            TRACE,
            ["When running with master 'yarn' set HADOOP_CONF_DIR.", "Caused by: ConnectException: Connection refused"],
        ),
        ("first\nsecond\n" * 3, ["first", "second"]),
        ("why\n/a/bin/spark-class: line 97: CMD: bad array subscript\n", ["why"]),
        (CRASH, ["A fatal error has been detected by Java:", "SIGSEGV (0xb) at pc=0x1, pid=2"]),
        ("".join(f"{number}\n" for number in range(100)), [str(number) for number in range(MAX_LINES)]),
    ],
    ids=["nothing", "blank", "stack trace", "repeated", "script", "crash", "long"],
)
def test_the_summary_of_an_output(output: str, lines: list[str]) -> None:
    assert summary(output) == "".join(f"\n  {line}" for line in lines)


@pytest.mark.parametrize(
    ("reason", "master", "conf", "check"),
    [
        ("it is bad", "local[2]", {}, ""),
        ("spark.b is bad", "local[2]", {"spark.a": "x", "spark.b": "y"}, "Check `spark_conf` spark.b.\n"),
        ("'why' is bad", "local[2]", {"spark.a": "x", "spark.b": "why"}, "Check `spark_conf` spark.b.\n"),
        ("it is bad", "local", {"spark.a": "x", "spark.b": "y"}, "Check `spark_conf` spark.a, `spark_conf` spark.b.\n"),
        ("it is bad", "yarn", {}, "Check `master`.\n"),
        ("it is bad", "yarn", {"spark.a": "x"}, "Check `master`, `spark_conf` spark.a.\n"),
    ],
)
def test_the_error_names_what_to_check(reason: str, master: str, conf: dict[str, str], check: str) -> None:
    assert str(start_error(reason, master, conf)) == (
        f"Spark: the start failed: {reason}\n{check}`InProcess()` gives the same result without Spark."
    )


def test_only_a_traceback_has_the_whole_output() -> None:
    error = with_whole_text(start_error("Java ended", "local", {}), TRACE)
    assert "SparkSubmit.scala" not in str(error)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert TRACE.strip().expandtabs(4) in "".join(traceback.format_exception(one))
