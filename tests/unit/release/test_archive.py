from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from release import accessories, archive, glibc, sbom
from release.frozen import Frozen
from release.owners import Owner

NEEDED = {"kcompact": (2, 17), "libpython.so": (2, 28), "_lz4.so": (2, 28)}
"""The programs and libraries of the tree, and the version of glibc that each needs."""


@pytest.fixture(autouse=True)
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyInstaller would make, of a few bytes."""
    licence = tmp_path / "COPYING"
    licence.write_text("terms")

    def freeze(wheel: Path, scratch: Path, *, python: str) -> Frozen:
        (scratch / "tree" / "_internal").mkdir(parents=True)
        for name in NEEDED:
            (scratch / "tree" / "_internal" / name).write_bytes(b"\x7fELF" + name.encode())
        (scratch / "tree" / "_internal" / "base.zip").write_bytes(b"PK")
        (scratch / "share" / "man").mkdir(parents=True)
        (scratch / "share" / "man" / "kcompact.1").write_text("manual")
        owner = Owner(name="numpy", version="2.0", purl="pkg:pypi/numpy", texts=(licence,))
        return Frozen(tree=scratch / "tree", owners=[owner], share=scratch / "share")

    def write_sbom(owners: list[Owner], target: Path, *, mtime: int) -> None:
        target.write_text(f"{[owner.name for owner in owners]} at {mtime}")

    monkeypatch.setattr(archive, "freeze", freeze)
    monkeypatch.setattr(sbom, "write", write_sbom)
    monkeypatch.setattr(glibc, "needed_by", lambda file: NEEDED[file.name])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["archive", *map(str, words)])
    archive.main()


def test_the_archive_has_the_program_and_all_that_people_get_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "dist" / "new"
    run(monkeypatch, tmp_path / "kcompact.whl", "--output", output, "--most-glibc", "2.28")
    with tarfile.open(output / archive.ARCHIVE) as tar:
        files = {each.name.partition("/")[2]: each for each in tar if each.isfile()}
        texts = {name: tar.extractfile(each).read().decode("latin-1") for name, each in files.items()}  # type: ignore[union-attr]
    assert set(files) == {
        *(f"_internal/{name}" for name in (*NEEDED, "base.zip")),
        *("README.txt", "LICENSE", accessories.SBOM, "licenses/numpy/COPYING", "share/man/kcompact.1"),
    }
    assert texts[accessories.SBOM] == "['numpy'] at 1700000000"
    assert "glibc 2.28 or newer" in texts["README.txt"]
    assert {each.mtime for each in files.values()} == {1_700_000_000}
    assert sorted(capsys.readouterr().out.rpartition("(")[2].rstrip(")\n").split(", ")) == ["_lz4.so", "libpython.so"]


def test_an_archive_that_needs_a_newer_glibc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path / "kcompact.whl", "--output", tmp_path / "dist", "--most-glibc", "2.27")


@pytest.mark.parametrize("missing", ["wheel", "output"])
def test_what_has_to_be_given(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words: dict[str, list[object]] = {"wheel": [tmp_path / "x.whl"], "output": ["--output", tmp_path]}
    del words[missing]
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *(word for each in words.values() for word in each))
    assert ended.value.code == 2
