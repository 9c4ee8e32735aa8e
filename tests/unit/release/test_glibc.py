from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release import glibc

LISTED = """\
Version needs section '.gnu.version_r' contains 2 entries:
  000000: Version: 1  File: libm.so.6  Cnt: 1
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 4
  0x0020: Version: 1  File: libc.so.6  Cnt: 2
  0x0030:   Name: GLIBC_{newest}  Flags: none  Version: 3
  0x0040:   Name: GLIBC_2.4  Flags: none  Version: 2
"""


@pytest.mark.parametrize(
    ("newest", "version"), [("2.14", (2, 14)), ("2.3.4", (2, 4)), ("2.31", (2, 31)), ("ABI_DT_RELR", (2, 36))]
)
def test_the_newest_symbol_decides(newest: str, version: glibc.Version, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = subprocess.CompletedProcess([], 0, LISTED.format(newest=newest))
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: listed)
    assert glibc.needed_by(Path("some.so")) == version


def test_versions_are_compared_by_their_numbers() -> None:
    assert glibc.version_of("2.4") < glibc.version_of("2.31")
    assert glibc.text_of(glibc.version_of("2.31")) == "2.31"


def test_programs_and_libraries_are_found_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "extension").write_bytes(b"\x7fELF...")
    (tmp_path / "lib" / "text.so").write_bytes(b"INPUT(libc.so.6)")
    (tmp_path / "lib" / "link").symlink_to("extension")
    assert list(glibc.elf_files(tmp_path)) == [tmp_path / "lib" / "extension"]
