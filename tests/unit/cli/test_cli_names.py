"""Names with ends of lines and other control characters: no command prints them as they are, and no line is forged."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcompact import readable
from tests.support.command_line import COMPACT, CONTROL, DIRTY, LOG0, LOG3, flip, kcompact, leave_swap, partition

FORGED = "\nerror: forged\x1b[31m\u202e\u2028\r"
IN_PROCESS = ("--engine", "in-process", *COMPACT)


def foreign(directory: Path) -> None:
    (directory / f"x{FORGED}").touch()
    (directory / f"{LOG0}{FORGED}").touch()
    os.close(os.open(os.fsencode(directory) + b"/\xff\n\xfe", os.O_CREAT))
    (directory.parent / f"sub{FORGED}").mkdir()
    partition(directory.parent, DIRTY.replace("now=10:00", "now=10:00 name=other-0")).rename(
        directory.parent / f"t{FORGED}-0"
    )


def linked(directory: Path) -> None:
    (directory / LOG3).rename(directory / "elsewhere")
    (directory / LOG3).symlink_to("elsewhere")


def not_a_staging_directory(directory: Path) -> None:
    (directory / ".kcompact-0123456789abcdef").touch()


STATES = {
    "dirty": lambda directory: None,
    "damaged": lambda directory: flip(directory / LOG0, 100),
    "left over": leave_swap,
    "foreign": foreign,
    "linked": linked,
    "staging": not_a_staging_directory,
}


def command_lines(directory: Path, out: Path) -> Iterator[tuple[str | Path, ...]]:
    for path in (directory, directory.parent, directory / LOG0, directory / f"x{FORGED}", directory / f"no{FORGED}"):
        yield "inspect", path
        yield "verify", path
        yield "inspect", "--batches", path
        yield "inspect", "--json", path
        yield "plan", *COMPACT, path
        yield "plan", "-v", path
        yield "clean", *IN_PROCESS, "--dry-run", path
        yield "clean", *IN_PROCESS, "--output", directory / LOG0, path
        yield "recover", path
    yield "clean", *IN_PROCESS, "--dry-run", "--output", out, directory.parent
    yield "clean", *IN_PROCESS, "--output", out, directory.parent
    yield "clean", *IN_PROCESS, "--output", out, directory


WRONG = [
    *[("plan", f"--{option}", FORGED) for option in ("config", "topic", "now", "bootstrap-server", "broker-config")],
    ("plan", "--config", f"{FORGED}=x"),
    ("plan", f"--{FORGED}"),
    (f"pl{FORGED}",),
    *[("clean", f"--{option}", FORGED) for option in ("master", "spark-conf", "engine", "memory", "output")],
]
"""Command lines whose arguments are printed in messages; each gets a directory."""


def forged_lines(printed: str) -> list[str]:
    """Return the lines with a control character, and those that start as if kcompact had not printed a name."""
    lines = re.split("[\n\r\u2028\x85]", printed)
    return [line for line in lines if CONTROL.search(line) or line.lstrip(" '\"").startswith("error: forged")]


@pytest.mark.parametrize("state", STATES)
def test_no_name_forges_a_line(state: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / f"data{FORGED}")
    STATES[state](directory)
    for arguments in command_lines(directory, tmp_path / f"out{FORGED}"):
        ran = kcompact(*arguments)
        assert forged_lines(ran.out) == forged_lines(ran.err) == [], arguments
        assert "a bug of kcompact" not in ran.err, arguments


@pytest.mark.parametrize("arguments", WRONG)
def test_no_argument_forges_a_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = kcompact(*arguments, partition(tmp_path))
    assert ran.code != 0
    assert forged_lines(ran.err) == []


WORDS = st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=20)


@given(words=WORDS)
@example(words=["\n'", "\\n", "\u202e7", "it's", "", "-x", "~", "$HOME", "a b", "\x1b[31m1", "é"])
def test_a_command_can_be_pasted(words: list[str]) -> None:
    command = " ".join(map(readable.shell_word, words))
    assert not CONTROL.search(command)
    assert "\n" not in command
    if "$'" not in command:
        assert shlex.split(command) == words


def test_the_shell_reads_a_pasted_command_as_it_was() -> None:
    words = ["\n'", "\\n", "\u202e7", "it's", "", "~", "$HOME", "a b", "\x1b[31m1", "é", os.fsdecode(b"\xff1")]
    command = " ".join(map(readable.shell_word, ["printf", r"%s\0", *words]))
    printed = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert printed.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
