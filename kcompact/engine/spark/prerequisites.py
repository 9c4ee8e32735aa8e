"""What Spark needs before it can start, checked in a fraction of a second and without starting it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from kcompact.engine.spark.java import find_java
from kcompact.engine.spark.jvm import check_settings, spark_home
from kcompact.engine.spark.master import check_master, standalone_addresses
from kcompact.errors import EngineError, RefusedError

SECRET = "spark.authenticate.secret"
CONNECT_S = 5.0
"""The time within which a standalone master must accept a connection."""


def check_prerequisites(master: str, conf: Mapping[str, str]) -> Path:
    """Check the master, the settings, PySpark and Java, and return the Java that `spark_start` will run.

    A master of a standalone cluster must accept a connection: Spark itself would try for more than a minute. Raises
    ConfigError (not a master, a setting that cannot be read), RefusedError (a cluster without a secret, no PySpark, no
    Java), EngineError (no master answers).
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
    _check_masters(standalone_addresses(master))
    return java


def _check_masters(addresses: list[tuple[str, int]]) -> None:
    """Raise EngineError if none of the addresses accepts a connection."""
    problems = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), CONNECT_S).close()
            return
        except OSError as problem:
            problems.append(f"{host}:{port} ({_words_for(problem)})")
    if problems:
        raise EngineError(
            problem=f"no master answers at {', '.join(problems)}",
            hint="Check --master, and that the cluster's master is running.\n"
            "--engine in-process gives the same result without Spark.",
        )


def _words_for(problem: OSError) -> str:
    if isinstance(problem, socket.gaierror):
        return "the host is unknown"
    if isinstance(problem, TimeoutError):
        return f"no answer within {CONNECT_S:g} seconds"
    return (problem.strerror or str(problem)).lower()
