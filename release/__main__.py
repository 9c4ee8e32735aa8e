"""Builds a release: `python -m release [DIRECTORY]`, `dist` without one.

With `--check` all is built twice, each time from the sources alone, and compared; then wheel and source distribution
are tried in new environments (`check_packages`), the archive and the image where there is nothing but a C library.

The times in the files are that of the commit (`SOURCE_DATE_EPOCH`). Wheels are built from the unpacked source
distribution, so it has everything they need. The archive and the image are made in Debian 11 (`debian_11.sh`), which
needs root, or `sudo`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kcompact import __version__
from kcompact.kernels.target import TARGETS
from release import accessories, archive, check_aarch64, check_packages, debian_11, image, tarball
from release.debian_11 import ROOT

SUMS = "SHA256SUMS"
CONSTRAINTS = ROOT / "release" / "constraints.txt"
PYTHON = "3.11"
"""The oldest Python that kcompact supports."""


def warn_of_python() -> None:
    """Say that another Python than that of a release gives other bytes: it may compress otherwise."""
    if platform.python_version_tuple()[:2] != tuple(PYTHON.split(".")):
        message = f"a release is built with Python {PYTHON}, this is {platform.python_version()}"
        print(f"warning: {message}: its files may have other bytes; set PYTHON=...", file=sys.stderr)


def require_for_check() -> None:
    """Raise SystemExit where a check could only fail at its end, after many minutes."""
    if os.geteuid() != 0 or None in map(shutil.which, ("skopeo", check_aarch64.QEMU)):
        sys.exit(f"--check needs root, skopeo for the image, and {check_aarch64.QEMU} for the other wheel")


def build(output: Path) -> None:
    """Build everything into a directory that is empty or missing. Raises CalledProcessError, OSError."""
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise FileExistsError(f"{output} is not empty")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time(), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as scratch:
        _build("--sdist", ROOT, output, environment)
        with tarfile.open(output / f"kcompact-{__version__}.tar.gz") as tar:
            tarball.unpack(tar, Path(scratch))
        sources = Path(scratch) / f"kcompact-{__version__}"
        for machine in TARGETS:
            _build("--wheel", sources, output, {**environment, "KCOMPACT_MACHINE": machine})
    write_sbom(output, environment)
    freeze(output, environment)
    write_sums(output)


def commit_time() -> str:
    """Return the time of the commit that is checked out, in Unix seconds."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _build(kind: str, source: Path, output: Path, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(output.resolve()), str(source)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def freeze(output: Path, environment: Mapping[str, str]) -> None:
    """Make the archive and the image from a wheel, with the Python and the C library of `debian_11.sh`."""
    with debian_11.scratch() as scratch:
        wheel = str(shutil.copy(wheel_of("x86_64", output), scratch))
        _in_debian_11(["release.archive", wheel, "--output", str(scratch), "--most-glibc", "2.31"], environment)
        _in_debian_11(["release.image", str(scratch / archive.NAME), "--output", str(scratch)], environment)
        for name in (archive.ARCHIVE, image.IMAGE):
            shutil.copyfile(scratch / name, output / name)
        bill = f"{archive.ARCHIVE.removesuffix('.tar.xz')}.cdx.json"
        shutil.copyfile(scratch / archive.NAME / accessories.SBOM, output / bill)


def _in_debian_11(command: list[str], environment: Mapping[str, str]) -> None:
    command = [*debian_11.command(), "python", "-B", "-m", *command]
    subprocess.run(command, cwd=ROOT, check=True, env=environment)


@contextlib.contextmanager
def installed(wheel: Path) -> Iterator[Path]:
    """Install a wheel without extras into a new environment, and yield the interpreter.

    The packages that it needs have the versions of the archive.
    """
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", scratch], check=True)
        python = Path(scratch) / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--constraint", str(CONSTRAINTS), str(wheel)], check=True)
        yield python


def wheel_of(machine: str, output: Path) -> Path:
    """Return the wheel for a processor, by its name in `TARGETS`."""
    (wheel,) = output.glob(f"*_{machine}.whl")
    return wheel


def write_sbom(output: Path, environment: Mapping[str, str]) -> None:
    """Write a CycloneDX document of an installation without extras. All machines need the same packages."""
    with installed(wheel_of(platform.machine(), output)) as python:
        for origin in python.parents[1].rglob("kcompact-*.dist-info/direct_url.json"):
            origin.unlink()  # The path of the wheel says nothing to others.
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
        target = output / f"kcompact-{__version__}.cdx.json"
        subprocess.run(
            [*command, "--output-file", str(target), str(python)],
            check=True,
            env=environment,
            stderr=subprocess.DEVNULL,
        )


def check_sboms(output: Path) -> None:
    """Raise SystemExit for a bill of materials that its schema refuses."""
    for file in output.glob("*.cdx.json"):
        if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read_text(encoding="utf-8")):
            sys.exit(f"{file}: {problem.data.message}")


def try_on_bare_hosts(output: Path) -> None:
    """Try the archive and the image, with this machine's C library and the oldest, and the wheel for AArch64.

    Raises CalledProcessError.
    """
    for command in (
        ["release.check_archive", str(output / archive.ARCHIVE)],
        ["release.check_archive", str(output / archive.ARCHIVE), "--system", str(debian_11.SYSTEM)],
        ["release.check_image", str(output / image.IMAGE)],
        ["release.check_aarch64", str(wheel_of("aarch64", output))],
    ):
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)


def write_sums(output: Path) -> None:
    """Write the checksums of all files, as `sha256sum --check` reads them."""
    files = sorted(path for path in output.iterdir() if path.name != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (output / SUMS).write_text("".join(lines))


def check(output: Path) -> None:
    """Build a release a second time. Raises SystemExit where a file has other bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        again = Path(scratch) / "again"
        build(again)
        first, second = ((each / SUMS).read_text().splitlines() for each in (output, again))
        if first != second:
            sys.exit("built twice, with different bytes:\n" + "\n".join(sorted(set(first) ^ set(second))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--check", action="store_true", help="build all a second time and compare")
    arguments = parser.parse_args()
    warn_of_python()
    if arguments.check:
        require_for_check()
    build(arguments.output)
    if arguments.check:
        check(arguments.output)
        check_sboms(arguments.output)
        source = arguments.output / f"kcompact-{__version__}.tar.gz"
        check_packages.check(wheel_of(platform.machine(), arguments.output), source)
        try_on_bare_hosts(arguments.output)
