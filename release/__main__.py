"""Builds a release: `python -m release [DIRECTORY]`, `dist` without one.

With `--check` all is built twice, each time from the sources alone, and compared; then the wheel of this machine is
tried in a new environment. The times in the files are that of the commit (`SOURCE_DATE_EPOCH`). Wheels are built from
the unpacked source distribution, so it has everything they need.
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

from kcompact import __version__
from kcompact.kernels.target import TARGETS

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
NOW = "2023-11-15T22:13:20Z"
"""A time at which the log of the broker can be cleaned."""


def build(output: Path) -> None:
    """Build everything into a directory that is empty or missing. Raises CalledProcessError, OSError."""
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise FileExistsError(f"{output} is not empty")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time(), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as scratch:
        _build("--sdist", ROOT, output, environment)
        with tarfile.open(output / f"kcompact-{__version__}.tar.gz") as archive:
            archive.extractall(scratch, filter="data")
        sources = Path(scratch) / f"kcompact-{__version__}"
        for machine in TARGETS:
            _build("--wheel", sources, output, {**environment, "KCOMPACT_MACHINE": machine})
    write_sbom(output, environment)
    write_sums(output)


def commit_time() -> str:
    """Return the time of the commit that is checked out, in Unix seconds."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _build(kind: str, source: Path, output: Path, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(output.resolve()), str(source)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def installed(wheel: Path) -> Iterator[Path]:
    """Install a wheel without extras into a new environment, and yield the interpreter."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", scratch], check=True)
        python = Path(scratch) / "bin" / "python"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, str(wheel)], check=True)
        yield python


def wheel_of_this_machine(output: Path) -> Path:
    """Return the wheel that can be installed here."""
    (wheel,) = output.glob(f"*_{platform.machine()}.whl")
    return wheel


def write_sbom(output: Path, environment: Mapping[str, str]) -> None:
    """Write a CycloneDX document of an installation without extras. All machines need the same packages."""
    with installed(wheel_of_this_machine(output)) as python:
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


def try_wheel(output: Path) -> None:
    """Clean a log that Kafka wrote, with the wheel alone and with this checkout. Raises SystemExit for a difference."""
    before = ROOT / "fixtures" / "logs" / "broker" / "before"
    with tempfile.TemporaryDirectory() as scratch, installed(wheel_of_this_machine(output)) as python:
        found = [_files(before)]
        for number, (interpreter, directory) in enumerate(((str(python), scratch), (sys.executable, str(ROOT)))):
            logs = Path(scratch) / f"logs-{number}"
            shutil.copytree(before, logs)
            command = [interpreter, "-m", "kcompact", "clean", "--force", "--yes", "--quiet", "--now", NOW, str(logs)]
            subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found.append(_files(logs))
    if found[1] != found[2]:
        sys.exit("the wheel and the checkout leave different files")
    if found[1] == found[0]:
        sys.exit("nothing was cleaned")


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


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
    build(arguments.output)
    if arguments.check:
        check(arguments.output)
        try_wheel(arguments.output)
