"""The master: the forms that Spark accepts, and what Spark needs before it can start on one.

No check starts Spark. The form is checked before any work; the rest takes long only if something is missing.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kcompact.errors import ConfigError, EngineError, RefusedError
from kcompact.host.access import user_name
from kcompact.wording import worded

ACCEPTED = (
    "local, local[N], local[*], local[N,FAILURES], local-cluster[WORKERS,CORES,MB], spark://HOST:PORT[,HOST:PORT...], "
    "yarn, k8s://[https://]HOST[:PORT]"
)
MAX_INT = 2**31 - 1
"""The greatest int in Java."""
SECRET = "spark.authenticate.secret"
CONNECT_S = 5.0
"""The time for one attempt to connect to a standalone master."""
STARTING_S = 10.0
"""How long attempts are repeated, for a master that is still starting."""

_COUNT = "([0-9]{1,10})"
_NUMBERED = (
    re.compile(rf"local\[(?:{_COUNT}|\*)\]"),
    re.compile(rf"local\[(?:{_COUNT}|\*)\s*,\s*{_COUNT}\]"),
    re.compile(rf"local-cluster\[\s*{_COUNT}\s*,\s*{_COUNT}\s*,\s*{_COUNT}\s*\]"),
)
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", re.ASCII)
_KUBERNETES = re.compile(r"k8s://(?:https?://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/\S*)?", re.ASCII)


def check_master(master: str) -> None:
    """Raise ConfigError if Spark accepts no master of this form.

    Rule: org.apache.spark.SparkMasterRegex, SparkContext.createTaskScheduler, Utils.extractHostPortFromSparkUrl.
    """
    if master in ("local", "yarn") or _has_valid_counts(master) or _KUBERNETES.fullmatch(master):
        return
    if standalone_addresses(master):
        return
    raise ConfigError(
        path=worded("--master"), problem=f"{master[:100]!r} is not a Spark master", hint=f"Use one of: {ACCEPTED}"
    )


def standalone_addresses(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of `spark://HOST:PORT,...`; an empty list for any other master."""
    scheme, _, listed = master.partition("://")
    if scheme != "spark":
        return []
    matches = [_ADDRESS.fullmatch(address) for address in listed.split(",")]
    addresses = [(match[1].strip("[]"), int(match[2])) for match in matches if match is not None]
    return addresses if len(addresses) == len(matches) and all(0 < port < 1 << 16 for _, port in addresses) else []


def is_local(master: str) -> bool:
    """Return whether everything runs on this machine, in one JVM and its workers."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _has_valid_counts(master: str) -> bool:
    match = next(filter(None, (pattern.fullmatch(master) for pattern in _NUMBERED)), None)
    return match is not None and all(0 < int(count) <= MAX_INT for count in match.groups() if count is not None)


def check_prerequisites(master: str, conf: Mapping[str, str]) -> Path:
    """Check the master, the settings, PySpark and Java, and return the Java that `spark_start` will run.

    A master of a standalone cluster must accept a connection. Without this check Spark would try for more than a
    minute. Raises ConfigError (not a master, a setting that cannot be read), RefusedError (a cluster without a secret,
    a user without a name, no PySpark, no Java), EngineError (no master answers).
    """
    from kcompact.engine.spark.java import find_java
    from kcompact.engine.spark.jvm import check_settings, spark_home

    check_master(master)
    if master.startswith("spark://") and SECRET not in conf:
        raise RefusedError(
            path=master,
            problem="a standalone cluster needs the secret that its master and workers share",
            hint=f"Pass --spark-conf {SECRET}=SECRET, with the value from the cluster's configuration.",
        )
    check_settings(conf)
    spark_home()
    _require_user_name()
    java = find_java()
    if addresses := standalone_addresses(master):
        _await_master(addresses)
    return java


def _require_user_name() -> None:
    """Raise RefusedError for a user id that no list of users has: Spark does not start (UnixLoginModule of Java)."""
    if user_name() is None:
        raise RefusedError(
            path="Spark",
            problem=f"the user id {os.getuid()} has no entry in the list of users (/etc/passwd), and Spark needs one",
            hint="--engine in-process gives the same result without Spark. Or add an entry for this user.",
        )


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
