"""Completion in shells: what a real bash and a real fish offer, and what the command prints."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import IMPORTED_FROM, command, environment, kcompact

NEEDS_FISH = pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
IN_BASH = """
source {directory}/completion
for line in "$@"; do
    COMP_WORDS=($line); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
    compopt() {{ COMPREPLY+=("$2"); }}
    _kcompact_completion kcompact
    echo "${{COMPREPLY[*]}}"
done
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory with a program `kcompact` that runs this package."""
    program = tmp_path / "kcompact"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{IMPORTED_FROM}" exec {sys.executable} -m kcompact "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def said_by(shell: list[str], program: Path) -> list[str]:
    env = {
        **os.environ,
        "HOME": str(program),
        "XDG_CONFIG_HOME": str(program),
        "PATH": f"{program}:{os.environ['PATH']}",
    }
    ran = subprocess.run(shell, capture_output=True, text=True, check=True, env=env, cwd=program)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_what_bash_offers(program: Path) -> None:
    (program / "completion").write_text(kcompact("completion", "bash").out)
    lines = {
        "kcompact re": "records report recover restore",
        "kcompact clean --eng": "--engine",
        "kcompact clean --engine i": "in-process",
        "kcompact plan lo": "default",
        "kcompact plan --replica lo": "dirnames",
        "kcompact nonsense x": "",
    }
    asks = IN_BASH.format(directory=program)
    assert said_by(["bash", "--norc", "-c", asks, "bash", *lines], program) == list(lines.values())


@NEEDS_FISH
def test_what_fish_offers(program: Path) -> None:
    (program / "logs").mkdir()
    completions = program / "fish" / "completions" / "kcompact.fish"
    completions.parent.mkdir(parents=True)
    completions.write_text(kcompact("completion", "fish").out)
    lines = {"kcompact insp": "inspect\tShow what is on the disk.", "kcompact plan lo": "logs/"}
    asks = "; ".join(f"complete -C '{line}'" for line in lines)
    assert said_by(["fish", "-c", asks], program) == list(lines.values())


@pytest.mark.parametrize(
    ("shell", "start"), [("bash", "_kc"), ("zsh", "#compdef kcompact\n"), ("fish", "function _kc")]
)
def test_the_command_prints_what_the_variable_asks_for(shell: str, start: str) -> None:
    printed = kcompact("completion", shell)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith(start)
    asks = {**environment(), "_KCOMPACT_COMPLETE": f"{shell}_source"}
    by_click = subprocess.run(command(), capture_output=True, text=True, check=True, env=asks).stdout
    assert by_click.rstrip() == printed.out.rstrip()
