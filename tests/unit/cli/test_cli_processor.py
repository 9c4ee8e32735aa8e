"""A processor without the instructions that numpy and the kernels need."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact import __main__ as program
from kcompact.host import machine

OLD = "processor\t: 0\nflags\t\t: fpu sse sse2 ssse3 cx16\n\nprocessor\t: 1\nflags\t\t: sse4_2 popcnt\n"
USUAL = "processor\t: 0\nflags\t\t: fpu sse sse2 ssse3 cx16 sse4_1 sse4_2 popcnt\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd crc32\n"


@pytest.mark.parametrize(("known", "expected"), [(OLD, True), (USUAL, False), (ARM, False), ("", False), (None, False)])
def test_the_processor_of_a_machine(known: str | None, expected: bool, tmp_path: Path) -> None:
    if known is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc" / "cpuinfo").write_text(known)
    assert machine.lacks_instructions(tmp_path) is expected


def test_the_instructions_that_are_lacking_are_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "lacks_instructions", lambda: True)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 4
    assert capfd.readouterr().err.startswith("error: this processor lacks the instructions of x86-64-v2 (SSE 4.2 and")
