"""Try the wheel and the source distribution: on each Python that `pythons` names, and by what an installation needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from release import debian_11, million, pythons
from release.acceptance import files_of
from release.debian_11 import ROOT
from release.pythons import Interpreter

NOW = "2023-11-15T22:13:20Z"
"""A time at which the log of the broker can be cleaned."""
MOST_INSTALLED_BYTES = 140 << 20
"""The size of an installation that README.md promises, as `du -m` counts it, without pip."""
_OF_A_NEW_ENVIRONMENT = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
NOT_INSTALLED = ("numba", "llvmlite", "ziglang", "pyspark")
"""What only the build or an extra needs."""
_SEARCH = f"""
import importlib.util, sys
found = [name for name in {NOT_INSTALLED} if importlib.util.find_spec(name)]
sys.exit(f"installed without need: {{', '.join(found)}}" if found else 0)
"""
_BEFORE = ROOT / "fixtures" / "logs" / "broker" / "before"


def check(wheel: Path, source: Path) -> None:
    """Install both on each Python, and clean a log that Kafka wrote with each installation and with this checkout.

    Then measure a cleaning by the wheel. Raises SystemExit for a difference, and CalledProcessError.
    """
    with debian_11.scratch() as work:
        expected = _cleaned(work / "checkout", [sys.executable, "-m", "kcompact"])
        if expected == files_of(_BEFORE):
            sys.exit("nothing was cleaned")
        for interpreter, package in _tries(wheel, source):
            name = f"{interpreter.version}{package.suffix}"
            environment = install(package, interpreter, work / name)
            kcompact = [*interpreter.prefix, str(environment / "bin" / "kcompact")]
            if _cleaned(work / f"{name}-logs", kcompact) != expected:
                sys.exit(f"{package.name} on Python {interpreter.version} and the checkout leave different files")
        _measure(wheel, work)


def _tries(wheel: Path, source: Path) -> Iterator[tuple[Interpreter, Path]]:
    """Yield each Python with each package that can be installed on it."""
    for interpreter in pythons.distinct():
        yield interpreter, wheel
        if pythons.builds_kernels(interpreter):
            yield interpreter, source
        else:
            print(f"{source.name}: not tried on Python {interpreter.version}, which numba does not support")


def _cleaned(logs: Path, kcompact: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a log directory after its copy was cleaned."""
    shutil.copytree(_BEFORE, logs)
    command = [*kcompact, "clean", "--force", "--yes", "--quiet", "--now", NOW, str(logs)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return files_of(logs)


def install(package: Path, interpreter: Interpreter, environment: Path) -> Path:
    """Install a package into a new environment. Raises SystemExit if it is too large, or has what nobody needs."""
    copy = shutil.copy(package, environment.parent)
    interpreter.run(interpreter.python, "-m", "venv", str(environment))
    interpreter.run(str(environment / "bin" / "pip"), "install", "--quiet", "--no-cache-dir", str(copy))
    size = installed_bytes(environment)
    print(f"{package.name}: {size >> 20} MiB installed on Python {interpreter.version}")
    if size > MOST_INSTALLED_BYTES:
        sys.exit(f"more than {MOST_INSTALLED_BYTES >> 20} MiB")
    interpreter.run(str(environment / "bin" / "python"), "-c", _SEARCH)
    return environment


def installed_bytes(environment: Path) -> int:
    """Return what the files of an environment take on the disk, without pip."""
    files = (path for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_blocks * 512 for path in files if not _was_there(path.relative_to(environment)))


def _was_there(path: Path) -> bool:
    """Return whether a file of an environment belongs to pip, and not to what pip has installed."""
    return any(part.split("-")[0] in _OF_A_NEW_ENVIRONMENT for part in path.parts)


def _measure(wheel: Path, work: Path) -> None:
    log = million.write(work / "million")
    command = ["python", "-B", "-m", "release.first_clean", str(shutil.copy(wheel, work)), str(log)]
    subprocess.run([*debian_11.command(), *command], cwd=ROOT, check=True)
