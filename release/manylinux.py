"""Check that wheels run where their names say: python -m release.manylinux WHEEL...

auditwheel looks which versions of the C library's symbols a wheel needs. The tag that it finds must be that in the name
of the wheel, or an older one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_CONSISTENT = re.compile(r'is consistent with the following platform tag: "([^"]*)"')
_TAG = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")


def shown(wheel: Path) -> str:
    """Return what auditwheel says of a wheel, in one line."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    return " ".join(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split())


def check(wheel: Path, said: str) -> str:
    """Return the tag that auditwheel has found. Raises SystemExit if it promises less than the name of the wheel."""
    consistent = _CONSISTENT.search(said)
    if consistent is None:
        sys.exit(f"{wheel.name}: auditwheel names no platform tag: {said}")
    named, found = _TAG.fullmatch(wheel.stem.split("-")[-1]), _TAG.fullmatch(consistent[1])
    if named is None or found is None or found[3] != named[3] or _glibc(found) > _glibc(named):
        sys.exit(f"{wheel.name}: auditwheel finds {consistent[1]}, which is not the tag in the name, or an older one")
    return found[0]


def _glibc(tag: re.Match[str]) -> tuple[int, int]:
    return int(tag[1]), int(tag[2])


def main() -> None:
    """Check wheels, and say what each needs."""
    for wheel in map(Path, sys.argv[1:]):
        print(f"{wheel.name}: {check(wheel, shown(wheel))}")


if __name__ == "__main__":
    main()
