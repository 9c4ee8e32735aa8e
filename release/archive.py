"""Make the archive for hosts without Python: python -m release.archive WHEEL --output DIR

It is DIR/kcompact-VERSION-linux-x86_64.tar.xz. Its tree stays in DIR/kcompact-VERSION, for the image. The same wheel,
Python and SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import sys
import tempfile
from pathlib import Path

from kcompact import __version__
from release import accessories, glibc, tarball
from release.frozen import freeze

NAME = f"kcompact-{__version__}"
ARCHIVE = f"{NAME}-linux-x86_64.tar.xz"


def make(wheel: Path, output: Path, *, mtime: int) -> Path:
    """Return the archive that was made. The Python that runs this becomes a part of it."""
    output.mkdir(parents=True, exist_ok=True)
    tree = output / NAME
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        frozen = freeze(wheel.resolve(), Path(scratch).resolve(), python=sys.executable)
        accessories.add(frozen, mtime=mtime)
        shutil.rmtree(tree, ignore_errors=True)
        frozen.tree.rename(tree)
    archive = output / ARCHIVE
    with lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        tarball.write(tree, file, prefix=NAME, mtime=mtime)
    return archive


def main() -> None:
    """Make it, and say how large it is and what it needs."""
    parser = argparse.ArgumentParser(description="make the archive for hosts without Python")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--most-glibc", type=glibc.version_of, help="fail if a newer glibc is needed")
    arguments = parser.parse_args()
    archive = make(arguments.wheel, arguments.output, mtime=int(os.environ["SOURCE_DATE_EPOCH"]))
    needed = {file: glibc.needed_by(file) for file in glibc.elf_files(arguments.output / NAME)}
    newest = max(needed.values())
    of = [file.name for file, version in needed.items() if version == newest]
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB; needs glibc {glibc.text_of(newest)} ({', '.join(of)})")
    if arguments.most_glibc and newest > arguments.most_glibc:
        sys.exit(f"that is newer than {glibc.text_of(arguments.most_glibc)}: run it in release/debian_11.sh")


if __name__ == "__main__":
    main()
