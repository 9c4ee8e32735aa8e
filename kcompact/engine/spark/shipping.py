"""Packs this package for workers that do not have it.

Spark unpacks the archive into a directory of the application, next to which every worker finds modules. The modules
are files there, because the kernels are compiled from their source text.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import kcompact

PACKAGE = "kcompact"
"""The name of the directory that Spark unpacks the archive into. The archive itself has no such directory."""


def packed(directory: Path) -> Path:
    """Return the path of an archive of this package's modules, written to `directory`, which is private."""
    root = Path(kcompact.__file__).resolve().parent
    target = directory / "kcompact.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root))
    return target
