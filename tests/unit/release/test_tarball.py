from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from release import tarball

MTIME = 1_700_000_000


def packed(tree: Path, *, prefix: str = "it") -> bytes:
    file = io.BytesIO()
    tarball.write(tree, file, prefix=prefix, mtime=MTIME)
    return file.getvalue()


def entries(tar: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return opened.getmembers()


def plant(tree: Path, names: list[str], *, umask: int) -> Path:
    before = os.umask(umask)
    try:
        tree.mkdir()
        for name in names:
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_text(name)
        (tree / "b" / "program").chmod(0o700)
        (tree / "link").symlink_to("b/program")
    finally:
        os.umask(before)
    return tree


def test_the_bytes_depend_on_names_and_content_alone(tmp_path: Path) -> None:
    one = plant(tmp_path / "one", ["a", "b/program", "c"], umask=0o022)
    other = plant(tmp_path / "other", ["c", "b/program"], umask=0o077)
    os.link(other / "c", other / "a")
    (other / "a").unlink()
    (other / "a").write_text("a")
    os.utime(other / "c", (1, 1))
    assert packed(one) == packed(other)


def test_names_of_one_inode_are_files_of_their_own(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", ["a", "b/program"], umask=0o022)
    os.link(tree / "a", tree / "z")
    with tarfile.open(fileobj=io.BytesIO(packed(tree))) as tar:
        content = tar.extractfile("it/z")
        assert content is not None
        assert content.read() == b"a"


def test_who_may_execute_is_kept_and_all_belongs_to_root(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", ["a", "b/program"], umask=0o077)
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    found = {entry.name: (entry.mode, entry.uname, entry.uid, entry.mtime) for entry in entries(packed(tree))}
    modes = {"": 0o755, "/a": 0o644, "/b": 0o755, "/b/program": 0o755, "/link": 0o777, "/tmp": 0o1777}
    assert found == {f"it{name}": (mode, "root", 0, MTIME) for name, mode in modes.items()}


def test_without_a_prefix_the_tree_itself_has_no_entry(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", ["b/program"], umask=0o022)
    assert [entry.name for entry in entries(packed(tree, prefix=""))] == ["b", "b/program", "link"]
