"""Whose the files are that were put into the archive: Python packages, Python, libraries of the system.

A file belongs to a Python package, to Python, to a library that was built together with this Python (`debian_11.sh`),
or to a package of Debian. Of each owner all licence texts are found. A file that belongs to nobody is an error: its
licence is unknown.
"""

from __future__ import annotations

import platform
import re
import ssl
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import quote

_IS_LICENCE = re.compile(r"(licen[cs]e|copying|notice|authors)", re.IGNORECASE)
_OPENSSL = ("libcrypto", "libssl")
"""The libraries that are built together with Python."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """A package with its version, its package URL and the files of its licence texts."""

    name: str
    version: str
    purl: str
    texts: tuple[Path, ...]


def owners_of(sources: Iterable[Path], *, packages: Path, python: Path) -> list[Owner]:
    """Return the owners of files, by name, each once.

    `packages` is the directory with the Python packages, `python` that of Python's own modules.
    Raises SystemExit for a file without an owner, and for an owner without a licence text.
    """
    installed = {Path(str(file.locate())).resolve(): each for each in _installed(packages) for file in each.files or ()}
    found = {_owner_of(source, installed, python) for source in {each.resolve() for each in sources}}
    for owner in found:
        if not owner.texts:
            raise SystemExit(f"{owner.name} has no licence text; look which it has, and name it in {__name__}")
    return sorted(found)


def named_by(copyright_file: Path) -> list[Path]:
    """Return the common licences that a copyright file of Debian only names."""
    names = re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", copyright_file.read_text(encoding="utf-8"))
    return [Path("/usr/share/common-licenses") / name for name in sorted({*names})]


def _installed(packages: Path) -> Iterable[Distribution]:
    return distributions(path=[str(packages)])


def _owner_of(source: Path, installed: dict[Path, Distribution], python: Path) -> Owner:
    if package := installed.get(source):
        return _package(package)
    if source.is_relative_to(python) or source.name.startswith("libpython"):
        return _generic("python", platform.python_version(), [python / "LICENSE.txt"])
    prefix = python.parents[1]
    if source.is_relative_to(prefix) and source.name.startswith(_OPENSSL):
        texts = (prefix / "share" / "licenses" / "openssl").glob("*")
        return _generic("openssl", ssl.OPENSSL_VERSION.split()[1], texts)
    return _package_of_debian(source)


def _package(package: Distribution) -> Owner:
    files = (file for file in package.files or () if ".dist-info" in str(file) and _IS_LICENCE.match(file.name))
    texts = tuple(sorted(Path(str(file.locate())) for file in files))
    normalized = re.sub(r"[-_.]+", "-", package.name).lower()
    purl = f"pkg:pypi/{normalized}@{package.version}"
    return Owner(name=package.name, version=package.version, purl=purl, texts=texts)


def _generic(name: str, version: str, texts: Iterable[Path]) -> Owner:
    return Owner(name=name, version=version, purl=f"pkg:generic/{name}@{version}", texts=tuple(sorted(texts)))


def _package_of_debian(file: Path) -> Owner:
    """Return the package that has a file. Raises SystemExit if there is none."""
    # Older packages list /lib/..., which is a link to /usr/lib/... now.
    for name in (str(file), str(file).removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "--search", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return debian(done.stdout.split(":")[0])
    raise SystemExit(f"{file} belongs to no package: its licence is not known")


def debian(package: str) -> Owner:
    """Return an installed package of Debian as an owner."""
    query = ["dpkg-query", "--show", "--showformat=${Version}", package]
    version = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    copyright_file = Path("/usr/share/doc") / package / "copyright"
    texts = (copyright_file, *named_by(copyright_file))
    return Owner(name=package, version=version, purl=f"pkg:deb/debian/{quote(package)}@{quote(version)}", texts=texts)
