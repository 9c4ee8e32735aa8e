"""Succeed if this Python is as new as the one given, and none of the packages that kcompact needs has a newer version.

Usage: python .ci/is_newest.py NEWEST_PYTHON. Then `make newest` has nothing to add to `make test`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UPGRADE = (
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--upgrade",
    "--upgrade-strategy",
    "eager",
    "--no-build-isolation",
)


def version(python: str) -> str:
    """Return what `python --version` prints."""
    return subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout


def upgrades() -> list[str]:
    """Return the packages that pip would install for the project and its `dev` extra, apart from the project."""
    command = [sys.executable, "-m", "pip", *UPGRADE, "--dry-run", "--report", "-", "-e", ".[dev]"]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    names = [each["metadata"]["name"] for each in json.loads(report)["install"]]
    return [name for name in names if name != "kcompact"]


if __name__ == "__main__":
    sys.exit(version(sys.executable) != version(sys.argv[1]) or bool(upgrades()))
