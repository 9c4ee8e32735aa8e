"""Measure an installation and its first cleaning: python -m release.first_clean WHEEL LOG_DIR

It runs in Debian 11 (`debian_11.sh`) with the Python of the archive, so the limits mean the same on every machine. The
wheel is installed without extras. A user without name, home, environment and network cleans copies of the log in turn.
The limits hold for the first one, too, because nothing may be left to be made at the first.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from release.acceptance import files_of
from release.bare_host import BareHost, Used, give_away

MOST_DOWNLOADED_BYTES = 35_000_000
"""All wheels of an installation; more than half of it is numpy."""
MOST_CPU_S = 1.5
"""Twice what a million records take. A start that compiles the kernels takes twenty seconds."""
MOST_MEMORY_BYTES = 160_000_000
"""A container with 256 MiB has room for it and for the pages of the files."""
CLEAN = ("clean", "--force", "--yes", "--quiet", "--config", "cleanup.policy=compact")


def install(wheel: Path, place: Path) -> Path:
    """Install a wheel into a new environment, and return its program. Raises SystemExit if too much is downloaded."""
    environment, downloads = place / "environment", place / "downloads"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "download", "--no-cache-dir", "--dest", str(downloads), str(wheel)], check=True)
    size = sum(file.stat().st_size for file in downloads.iterdir())
    print(f"{wheel.name}: {size / 1e6:.1f} MB of downloads")
    if size > MOST_DOWNLOADED_BYTES:
        sys.exit(f"more than {MOST_DOWNLOADED_BYTES / 1e6:.0f} MB")
    files = map(str, sorted(downloads.iterdir()))
    subprocess.run([*pip, "install", "--no-index", *files], check=True)
    return environment / "bin" / "kcompact"


def clean(program: Path, log: Path) -> Used:
    """Clean a log as a user without anything. Return what that used."""
    give_away(log)
    used = BareHost(root=Path("/")).run_measured([str(program), *CLEAN, str(log)], cwd="/")
    print(f"{log.name} clean: {used.cpu_s:.2f} s of processors, {used.memory_bytes / 1e6:.0f} MB of memory")
    return used


def require_little(used: Sequence[Used]) -> None:
    """Raise SystemExit if some cleanings used too much.

    Of the memory the median counts: it depends on what two threads hold at the same moment.
    """
    cpu_s = max(each.cpu_s for each in used)
    memory_bytes = median(each.memory_bytes for each in used)
    if cpu_s > MOST_CPU_S or memory_bytes > MOST_MEMORY_BYTES:
        sys.exit(f"more than {MOST_CPU_S} s or {MOST_MEMORY_BYTES / 1e6:.0f} MB")


def main() -> None:
    """Measure, and compare what the cleanings have left."""
    parser = argparse.ArgumentParser(description="measure an installation and its first cleaning")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("log", type=Path)
    arguments = parser.parse_args()
    # Not in the checkout, whose directory the user may not be allowed to enter.
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        place.chmod(0o755)
        program = install(arguments.wheel, place)
        logs = [Path(shutil.copytree(arguments.log, place / name)) for name in ("first", "second", "third")]
        require_little([clean(program, log) for log in logs])
        first, *others = map(files_of, logs)
        if any(other != first for other in others):
            sys.exit("a later cleaning leaves other files than the first")
        if first == files_of(arguments.log):
            sys.exit("nothing was cleaned")


if __name__ == "__main__":
    main()
