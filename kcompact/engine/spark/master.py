"""The forms of a master URL that Spark accepts. A pure check, so a wrong URL is refused before any work."""

from __future__ import annotations

import re

from kcompact.errors import ConfigError
from kcompact.wording import worded

ACCEPTED = (
    "local, local[N], local[*], local[N,FAILURES], local-cluster[WORKERS,CORES,MB], spark://HOST:PORT[,HOST:PORT...], "
    "yarn, k8s://[https://]HOST[:PORT]"
)
MAX_INT = 2**31 - 1
"""The greatest int in Java."""

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
    found = [_ADDRESS.fullmatch(address) for address in listed.split(",")]
    addresses = [(match[1].strip("[]"), int(match[2])) for match in found if match is not None]
    return addresses if len(addresses) == len(found) and all(0 < port < 1 << 16 for _, port in addresses) else []


def is_local(master: str) -> bool:
    """Return whether everything runs on this machine, in one JVM and its workers."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _has_valid_counts(master: str) -> bool:
    found = next(filter(None, (pattern.fullmatch(master) for pattern in _NUMBERED)), None)
    return found is not None and all(0 < int(count) <= MAX_INT for count in found.groups() if count is not None)
