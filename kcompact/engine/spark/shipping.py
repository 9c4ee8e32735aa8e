"""This package on its way to workers that may not have it.

Spark unpacks it into a directory of the application, beside which every worker looks for modules: so its files are
files there, and what the kernels are compiled from can be read.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import kcompact

PACKAGE = "kcompact"
"""The name that the archive is unpacked under. It has no such directory itself."""


def packed(directory: Path) -> Path:
    """Return an archive of this package's modules, made in `directory`, which is private."""
    root = Path(kcompact.__file__).resolve().parent
    target = directory / "kcompact.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root))
    return target
