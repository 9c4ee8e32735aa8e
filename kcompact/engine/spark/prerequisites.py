"""What Spark needs before it can start. The check does not start it, and takes long only if something is missing."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kcompact.engine.spark.java import find_java
from kcompact.engine.spark.jvm import check_settings, spark_home
from kcompact.engine.spark.master import check_master, standalone_addresses
from kcompact.errors import EngineError, RefusedError

SECRET = "spark.authenticate.secret"
CONNECT_S = 5.0
"""The time for one attempt to connect to a standalone master."""
STARTING_S = 10.0
"""How long attempts are repeated, for a master that is still starting."""


def check_prerequisites(master: str, conf: Mapping[str, str]) -> Path:
    """Check the master, the settings, PySpark and Java, and return the Java that `spark_start` will run.

    A master of a standalone cluster must accept a connection. Without this check Spark would try for more than a
    minute. Raises ConfigError (not a master, a setting that cannot be read), RefusedError (a cluster without a secret,
    no PySpark, no Java), EngineError (no master answers).
    """
    check_master(master)
    if master.startswith("spark://") and SECRET not in conf:
        raise RefusedError(
            path=master,
            problem="a standalone cluster needs the secret that its master and workers share",
            hint=f"Pass --spark-conf {SECRET}=SECRET, with the value from the cluster's configuration.",
        )
    check_settings(conf)
    spark_home()
    java = find_java()
    if addresses := standalone_addresses(master):
        _await_master(addresses)
    return java


def _await_master(addresses: Sequence[tuple[str, int]]) -> None:
    """Return when one of the addresses accepts a connection. Raises EngineError if none does within STARTING_S."""
    deadline = time.monotonic() + STARTING_S
    while True:
        problems = [_problem_of(host, port) for host, port in addresses]
        if None in problems:
            return
        if time.monotonic() > deadline or all(isinstance(problem, socket.gaierror) for problem in problems):
            break
        time.sleep(0.2)
    listed = ", ".join(
        f"{host}:{port} ({_words_for(problem)})"
        for (host, port), problem in zip(addresses, problems, strict=True)
        if problem is not None
    )
    raise EngineError(
        problem=f"no master answers at {listed}",
        hint="Check --master, and that the cluster's master is running.\n"
        "--engine in-process gives the same result without Spark.",
    )


def _problem_of(host: str, port: int) -> OSError | None:
    """Return why a connection fails, None if it succeeds."""
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as problem:
        return problem
    return None


def _words_for(problem: OSError) -> str:
    if isinstance(problem, socket.gaierror):
        return "the host is unknown"
    if isinstance(problem, TimeoutError):
        return f"no answer within {CONNECT_S:g} seconds"
    return (problem.strerror or str(problem)).lower()
