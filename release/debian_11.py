"""The root of Debian 11, the oldest system that is supported: commands in it, and files that both systems see."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEM = ROOT / "build" / "debian-11"


def command() -> list[str]:
    """Return what a command begins with that runs in Debian 11, as root. It can only name files of this checkout."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "--preserve-env=SOURCE_DATE_EPOCH"]
    return [*as_root, "sh", str(ROOT / "release" / "debian_11.sh"), str(SYSTEM)]


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory that Debian 11 sees, too, and remove it.

    Commands in Debian 11 leave files of root in it, which a caller who is not root could not remove. So they are given
    to the caller first.
    """
    SYSTEM.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SYSTEM.parent) as directory:
        try:
            yield Path(directory)
        finally:
            if os.geteuid() != 0:
                # An environment has links to programs of the system, which must stay as they are.
                owner = f"{os.getuid()}:{os.getgid()}"
                subprocess.run(["sudo", "chown", "--recursive", "--no-dereference", owner, directory], check=True)
