"""kcompact with its own Python as a directory: `kcompact` and `_internal`, frozen by PyInstaller.

It is made from a wheel, in an environment that holds what the wheel needs and nothing else, in the versions of
`constraints.txt`.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from release.owners import Owner, owners_of

_HERE = Path(__file__).parent
_CONSTRAINTS = _HERE / "constraints.txt"
_UNSTRIPPED = ("libpython*", "python*/lib-dynload/*.so", "lz4/**/*.so", "xxhash/*.so", "zstandard/*.so")
"""With debug symbols where they come from. Others were changed by auditwheel, and `strip` would damage them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The program's directory, and what it was made from.

    `owners` are those of all files in it. `share` has the man pages and the completions of the wheel.
    """

    tree: Path
    owners: list[Owner]
    share: Path


def freeze(wheel: Path, scratch: Path, *, python: str) -> Frozen:
    """Make the program from a wheel. `python` becomes a part of it, and needs a shared `libpython`.

    Everything is made in `scratch`, which must be empty.
    """
    environment = scratch / "environment"
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    interpreter = str(environment / "bin" / "python")
    _pip(interpreter, "install", str(wheel), str(_pyinstaller(interpreter, scratch / "pyinstaller")))
    work = scratch / "work"
    command = [interpreter, "-m", "PyInstaller", "--distpath", str(scratch), "--workpath", str(work)]
    # Sets of names are written to byte code in the order of their hashes.
    env = os.environ | {"PYTHONHASHSEED": "0", "PYI_LOG_LEVEL": "ERROR"}
    # In another directory than the checkout, which would be imported instead of the wheel.
    subprocess.run([*command, str(_HERE / "pyinstaller" / "kcompact.spec")], check=True, env=env, cwd=scratch)
    tree = scratch / "tree"
    for pattern in _UNSTRIPPED:
        subprocess.run(["strip", "--strip-unneeded", *map(str, sorted((tree / "_internal").glob(pattern)))], check=True)
    paths = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"
    found = json.loads(subprocess.run([interpreter, "-c", paths], check=True, capture_output=True, text=True).stdout)
    (spec_work,) = work.iterdir()
    sources = json.loads((spec_work / "sources.json").read_text(encoding="utf-8"))
    return Frozen(
        tree=tree,
        owners=owners_of(map(Path, sources), packages=Path(found["platlib"]), python=Path(found["stdlib"])),
        share=environment / "share",
    )


def _pyinstaller(interpreter: str, directory: Path) -> Path:
    """Return a wheel of PyInstaller, built here: the bootloader of its own wheel needs libz, and this one has zlib."""
    env = {"PYINSTALLER_COMPILE_BOOTLOADER": "1", "PYI_STATIC_ZLIB": "1"}
    options = ["--no-deps", "--no-binary", "pyinstaller", "--wheel-dir", str(directory)]
    _pip(interpreter, "wheel", *options, "pyinstaller", **env)
    (wheel,) = directory.glob("*.whl")
    return wheel


def _pip(interpreter: str, command: str, *arguments: str, **env: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--constraint", str(_CONSTRAINTS)]
    subprocess.run([interpreter, "-m", "pip", command, *options, *arguments], check=True, env=os.environ | env)
