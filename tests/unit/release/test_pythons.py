from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release import pythons
from release.pythons import Interpreter

SCRIPT = Path(__file__).parents[3] / ".ci" / "newest-python"


def test_of_each_version_the_first_python_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Interpreter(python=name, version=version) for name, version in (("a", "3.11"), ("b", "3.13"), ("c", "3.13"))
    ]
    monkeypatch.setattr(pythons, "_candidates", lambda: iter(found))
    assert pythons.distinct() == found[:2]


def test_a_shim_that_starts_nothing_does_not_count(tmp_path: Path) -> None:
    """Where pyenv has a version that is not activated, that version is taken by its path."""
    programs, versions = tmp_path / "bin", tmp_path / "root" / "versions"
    _program(programs / "python3.19", "exit 127")
    _program(programs / "python3.12", "exit 0")
    _program(programs / "pyenv", f"echo {tmp_path / 'root'}")
    _program(versions / "3.14.2" / "bin" / "python3.14", "exit 0")
    assert _newest(programs) == str(versions / "3.14.2" / "bin" / "python3.14")
    (programs / "pyenv").unlink()
    assert _newest(programs) == "python3.12"


def _program(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _newest(programs: Path) -> str:
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)], env={"PATH": str(programs)}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
