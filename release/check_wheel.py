"""Try a wheel on this machine: `python -m release.check_wheel` builds it, installs it in a new environment and uses it.

A release is tried on more machines, and twice: `python -m release --check`. Needs root, which owns the logs of
`acceptance`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from release import acceptance
from release.bare_host import BareHost
from release.check_packages import install
from release.debian_11 import ROOT
from release.pythons import interpreter


class ThisMachine(BareHost):
    """Commands start here, as this user."""

    def _enter(self, cwd: str) -> None:
        os.chdir(cwd)


def build(directory: Path) -> Path:
    """Build the wheel for this machine. Raises CalledProcessError."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", str(directory), "."], cwd=ROOT, check=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


def main() -> None:
    """Let every command of `acceptance` do the same with the wheel and with this checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        for name in ("wheel", "installed", "checkout"):
            (work / name).mkdir()
        environment = install(build(work / "wheel"), interpreter(sys.executable), work / "environment")
        program = str(environment / "bin" / "kcompact")
        acceptance.check(ThisMachine(root=Path("/")), program, str(work / "installed"), work / "checkout")


if __name__ == "__main__":
    main()
