"""Try the wheel for AArch64 in an emulator: python -m release.check_aarch64 WHEEL

It is installed beside Debian 12 for AArch64, and does there, under QEMU, what the checkout does here (`acceptance`).
Needs root, debootstrap and qemu-aarch64-static. The root of Debian is made once, in half a minute: its packages are
unpacked, and none of its programs runs outside of the emulator.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kcompact.kernels.target import TARGETS
from release import acceptance
from release.bare_host import BareHost, give_away
from release.debian_11 import ROOT

SYSTEM = ROOT / "build" / "debian-12-aarch64"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
QEMU = "qemu-aarch64-static"
PYTHON = "3.11"
"""The Python of Debian 12."""
PLATFORMS = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64")
"""The tags of wheels that fit the C library of Debian 12."""


def main() -> None:
    """Try it, and say so."""
    parser = argparse.ArgumentParser(description="try the wheel for AArch64 in an emulator")
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    if os.geteuid() != 0:
        sys.exit("run it as root: it changes the root directory of the commands that it runs")
    _make_system()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "host"
        subprocess.run(["cp", "--archive", "--reflink=auto", str(SYSTEM), str(root)], check=True)
        _install(wheel, root / "site")
        data, expected = root / "data", Path(scratch) / "checkout"
        data.mkdir()
        expected.mkdir()
        give_away(data)
        host = BareHost(root=root, env={"PYTHONPATH": "/site"}, starter=(f"/{QEMU}", "/usr/bin/python3", "-m"))
        try:
            version = host.run(["kcompact", "--version"], cwd="/data").stdout
            if f"machine code for {TARGETS['aarch64'].instructions}\n" not in version:
                sys.exit(f"{wheel}: {version}")
            acceptance.check(host, "kcompact", "/data", expected)
        except acceptance.NotAcceptedError as problem:
            sys.exit(f"{wheel}: {problem}")
    print(f"{wheel}: in an emulator as good as the checkout")


def _make_system() -> None:
    """Unpack Debian 12 for AArch64, with Python and the emulator, unless that was done."""
    if (SYSTEM / QEMU).exists():
        return
    shutil.rmtree(SYSTEM, ignore_errors=True)
    SYSTEM.parent.mkdir(exist_ok=True)
    options = ["--arch=arm64", "--foreign", "--variant=minbase", f"--keyring={KEYS}", "--include=python3"]
    subprocess.run(["debootstrap", *options, "bookworm", str(SYSTEM)], check=True, stdout=subprocess.DEVNULL)
    for package in sorted((SYSTEM / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(SYSTEM)], check=True)
        package.unlink()
    shutil.copy(str(shutil.which(QEMU)), SYSTEM / QEMU)


def _install(wheel: Path, site: Path) -> None:
    """Put the wheel and what it needs into a directory, as they are for AArch64."""
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:", f"--python-version={PYTHON}"]
    command = [sys.executable, "-m", "pip", "install", *options, *platforms, "--target", str(site), str(wheel)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
