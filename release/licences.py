"""The licence texts of what was put into the archive: Python packages, Python, libraries of the system.

What was put in is a list of the files that it came from. A file belongs to a Python package, to Python, to a library
that was built together with this Python (`debian_11.sh`), or to a package of Debian. Of each owner all licence texts
are taken. A file that belongs to nobody is an error: its licence is unknown.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

_IS_LICENCE = re.compile(r"(licen[cs]e|copying|notice|authors)", re.IGNORECASE)


def copy(sources: Iterable[Path], target: Path, *, packages: Path, python: Path) -> None:
    """Copy the licence texts of the owners of `sources` into a directory for each of them below `target`.

    `packages` is the directory with the Python packages, `python` that of Python's own modules.
    Raises SystemExit for a file without an owner, and for an owner without a licence text.
    """
    owners = {Path(str(file.locate())).resolve(): each for each in _installed(packages) for file in each.files or ()}
    found: dict[str, set[Path]] = {}
    for source in sorted({each.resolve() for each in sources}):
        owner = owners.get(source)
        if owner is not None:
            found.setdefault(owner.name, set()).update(_texts(owner))
        elif source.is_relative_to(python) or source.name.startswith("libpython"):
            found["Python"] = {python / "LICENSE.txt"}
        elif source.is_relative_to(prefix := python.parents[1]) and (prefix / "share" / "licenses").exists():
            name = source.name.partition(".so")[0]
            found[name] = set((prefix / "share" / "licenses" / name).glob("*"))
        else:
            package = _package_of_debian(source)
            copyright_file = Path("/usr/share/doc") / package / "copyright"
            found[package] = {copyright_file, *named_by(copyright_file)}
    for name, texts in found.items():
        if not texts:
            raise SystemExit(f"{name} has no licence text; look which it has, and name it in {__name__}")
        for number, text in enumerate(sorted(texts)):
            (target / name).mkdir(parents=True, exist_ok=True)
            # Several of them may have one name.
            shutil.copyfile(text, target / name / (f"{number:02}-{text.name}" if len(texts) > 1 else text.name))


def named_by(copyright_file: Path) -> list[Path]:
    """Return the common licences that a copyright file of Debian only names."""
    names = re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", copyright_file.read_text(encoding="utf-8"))
    return [Path("/usr/share/common-licenses") / name for name in sorted({*names})]


def _installed(packages: Path) -> Iterable[Distribution]:
    return sorted(distributions(path=[str(packages)]), key=lambda each: each.name)


def _texts(owner: Distribution) -> set[Path]:
    """Return the licence texts that a package has installed."""
    files = (file for file in owner.files or () if ".dist-info" in str(file) and _IS_LICENCE.match(file.name))
    return {Path(str(file.locate())) for file in files}


def _package_of_debian(file: Path) -> str:
    """Return the name of the package that has a file. Raises SystemExit if there is none."""
    # Older packages list /lib/..., which is a link to /usr/lib/... now.
    for name in (str(file), str(file).removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "--search", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    raise SystemExit(f"{file} belongs to no package: its licence is not known")
