"""Try an archive where there is nothing but a C library: python -m release.check_archive ARCHIVE

It is unpacked on a bare host (`bare_host`) and does there what the checkout does here (`acceptance`). Needs root.
`--system` names the root of a system whose C library is taken instead of this machine's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from release import acceptance, libc, tarball
from release.bare_host import BareHost, give_away

LARGEST_BYTES = 45_000_000
MOST_START_CPU_S = 0.25


def main() -> None:
    """Try it, and say what was measured."""
    parser = argparse.ArgumentParser(description="try an archive where there is nothing but a C library")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--system", type=Path, default=Path("/"))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it changes the root directory of the commands that it runs")
    with tempfile.TemporaryDirectory() as scratch:
        host = BareHost(root=Path(scratch) / "host")
        libc.copy(host.root, system=arguments.system)
        with tarfile.open(arguments.archive) as tar:
            tarball.unpack(tar, host.root / "opt")
        (unpacked,) = (host.root / "opt").iterdir()
        program = f"/opt/{unpacked.name}/kcompact"
        data = host.root / "data"
        data.mkdir()
        give_away(data)
        expected = Path(scratch) / "checkout"
        expected.mkdir()
        try:
            acceptance.check(host, program, "/data", expected)
            acceptance.check_libraries(host, program, "/data")
        except acceptance.NotAcceptedError as problem:
            sys.exit(f"{arguments.archive}: {problem}")
        cpu_s = acceptance.start_cpu_s(host, program)
    size = arguments.archive.stat().st_size
    print(f"{arguments.archive}: {size / 1e6:.1f} MB, as good as the checkout")
    print(f"--version takes {cpu_s:.2f} s of processors")
    if size > LARGEST_BYTES or cpu_s > MOST_START_CPU_S:
        sys.exit(f"more than {LARGEST_BYTES / 1e6:.0f} MB or {MOST_START_CPU_S} s of processors")


if __name__ == "__main__":
    main()
