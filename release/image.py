"""Make an OCI image layout of the archive's tree: python -m release.image TREE --output DIR

It is DIR/kcompact-VERSION-oci.tar, the tar of a layout. The image has one layer: the tree in /opt/kcompact, this
machine's C library, an empty /tmp. No other image is needed. The same tree, C library and
SOURCE_DATE_EPOCH give the same bytes. Source: https://github.com/opencontainers/image-spec, version 1.1.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kcompact import __version__
from release import libc, tarball
from release.bare_host import USER

IMAGE = f"kcompact-{__version__}-oci.tar"
PROGRAM = "/opt/kcompact/kcompact"
_TYPES = "application/vnd.oci.image"
_LABELS = {
    "title": "kcompact",
    "description": "Inspect and compact on-disk Kafka partition directories with no broker running",
    "version": __version__,
    # /opt/kcompact/licenses and /usr/share have the texts.
    "licenses": "Apache-2.0 AND LGPL-2.1-or-later",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer in the directory of blobs: its descriptor, and the digest of the tar in it."""

    descriptor: Mapping[str, Any]
    diff_id: str


def make(tree: Path, output: Path, *, mtime: int) -> Path:
    """Return the tar that was made."""
    target = output / IMAGE
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        layout = Path(scratch) / "layout"
        _write_layout(tree, layout, mtime=mtime)
        with target.open("wb") as file:
            tarball.write(layout, file, prefix="", mtime=mtime)
    return target


def _write_layout(tree: Path, layout: Path, *, mtime: int) -> None:
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=layout.parent) as scratch:
        root = Path(scratch)
        shutil.copytree(tree, (root / PROGRAM.lstrip("/")).parent)
        libc.copy(root)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        layer = _layer(root, blobs, mtime=mtime)
    created = datetime.fromtimestamp(mtime, UTC).isoformat().replace("+00:00", "Z")
    labels = {f"org.opencontainers.image.{name}": value for name, value in _LABELS.items()}
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/opt/kcompact", "LANG=C.UTF-8"],
            "Entrypoint": [PROGRAM],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": created, "created_by": "release/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPES}.manifest.v1+json",
        "config": _json_blob(config, blobs, f"{_TYPES}.config.v1+json"),
        "layers": [layer.descriptor],
        "annotations": {**labels, "org.opencontainers.image.created": created},
    }
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPES}.index.v1+json",
        "manifests": [
            {
                **_json_blob(manifest, blobs, f"{_TYPES}.manifest.v1+json"),
                "platform": {"architecture": "amd64", "os": "linux"},
                "annotations": {"org.opencontainers.image.ref.name": __version__},
            }
        ],
    }
    (layout / "index.json").write_bytes(_json(index))
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))


def _layer(root: Path, blobs: Path, *, mtime: int) -> Layer:
    """Add the files below a directory as a layer."""
    tar, blob = blobs / "layer.tar", blobs / "layer"
    with tar.open("wb") as file:
        tarball.write(root, file, prefix="", mtime=mtime)
    # Without a time and without a name, which gzip would keep.
    with (
        tar.open("rb") as source,
        blob.open("wb") as target,
        gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=0) as compressed,
    ):
        shutil.copyfileobj(source, compressed)
    diff_id = _digest(tar)
    tar.unlink()
    return Layer(descriptor=_named(blob, f"{_TYPES}.layer.v1.tar+gzip"), diff_id=diff_id)


def _json_blob(document: Mapping[str, Any], blobs: Path, media_type: str) -> dict[str, Any]:
    blob = blobs / "json"
    blob.write_bytes(_json(document))
    return _named(blob, media_type)


def _named(blob: Path, media_type: str) -> dict[str, Any]:
    """Give a blob the name that it has by its digest. Return its descriptor."""
    digest, size = _digest(blob), blob.stat().st_size
    blob.rename(blob.with_name(digest.removeprefix("sha256:")))
    return {"mediaType": media_type, "digest": digest, "size": size}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"


def main() -> None:
    """Make it, and say where it is."""
    parser = argparse.ArgumentParser(description="make an OCI image layout of the archive's tree")
    parser.add_argument("tree", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    made = make(arguments.tree, arguments.output, mtime=int(os.environ["SOURCE_DATE_EPOCH"]))
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
