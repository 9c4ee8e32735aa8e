from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from kcompact import __version__
from release import check_image, image, libc, tarball
from release.acceptance import NotAcceptedError

MTIME = 1_700_000_000


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is in the archive, and the C library of a system, both of a few bytes."""

    def copy(target: Path, *, system: Path = Path("/")) -> None:
        (target / libc.LOADER).parent.mkdir(parents=True)
        (target / libc.LOADER).write_bytes(b"loader")

    monkeypatch.setattr(libc, "copy", copy)
    tree = tmp_path / "tree"
    (tree / "_internal").mkdir(parents=True)
    (tree / "kcompact").write_bytes(b"program")
    (tree / "kcompact").chmod(0o755)
    return tree


@pytest.fixture
def layout(tree: Path, tmp_path: Path) -> Path:
    with tarfile.open(image.make(tree, tmp_path, mtime=MTIME)) as tar:
        tarball.unpack(tar, tmp_path / "layout")
    return tmp_path / "layout"


def test_the_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    made = image.make(tree, tmp_path, mtime=MTIME)
    before = made.read_bytes()
    (tree / "kcompact").touch()
    assert image.make(tree, tmp_path, mtime=MTIME).read_bytes() == before


def test_it_has_the_tree_the_loader_and_a_directory_for_temporary_files(layout: Path, tmp_path: Path) -> None:
    config = check_image.unpack(layout, tmp_path / "root")
    assert (tmp_path / "root" / image.PROGRAM.lstrip("/")).read_bytes() == b"program"
    assert (tmp_path / "root" / libc.LOADER).read_bytes() == b"loader"
    assert (tmp_path / "root" / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["config"]["Entrypoint"] == [image.PROGRAM]
    assert config["config"]["User"] == "1001:1001"


def test_the_index_names_the_version_and_the_platform(layout: Path) -> None:
    (descriptor,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert descriptor["annotations"] == {"org.opencontainers.image.ref.name": __version__}
    assert descriptor["platform"] == {"architecture": "amd64", "os": "linux"}


def test_a_blob_with_other_bytes_is_found(layout: Path, tmp_path: Path) -> None:
    largest = max((layout / "blobs" / "sha256").iterdir(), key=lambda blob: blob.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(content)
    with pytest.raises(NotAcceptedError, match="is not what its descriptor says"):
        check_image.unpack(layout, tmp_path / "root")
