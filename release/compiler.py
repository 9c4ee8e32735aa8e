"""The C compiler of PyInstaller's bootloader: that of zig, which links to a glibc as old as it is told.

The bootloader of PyInstaller's wheel needs libz, which is no part of a C library, and before it could tell where the
libraries of the archive are. One with zlib inside is made from PyInstaller's source. PyInstaller runs this program as
`CC`.
"""

from __future__ import annotations

import os
import sys

TARGET = "x86_64-linux-gnu"
GLIBC = "2.17"


def main(arguments: list[str]) -> None:
    """Become the compiler."""
    # zig does not take a version of glibc where it only prints the macros that are defined.
    target = TARGET if "-dM" in arguments else f"{TARGET}.{GLIBC}"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *arguments]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
