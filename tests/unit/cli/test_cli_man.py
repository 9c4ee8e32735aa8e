"""The man pages: what is in them, and that roff takes no text for a request."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from kcompact.cli.app import main
from kcompact.cli.commands.man import page_of
from tests.support.command_line import EVERY_COMMAND, kcompact

REQUESTS = {".TH", ".SH", ".B", ".BR", ".PP", ".TP", ".nf", ".fi"}
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("share") / "man" / "man1"
    ran = kcompact("man", directory)
    assert (ran.code, ran.err) == (0, "")
    assert sorted(ran.out.splitlines()) == sorted(str(file) for file in directory.iterdir())
    return directory


def names() -> list[str]:
    return ["kcompact", *(f"kcompact-{name}" for name in EVERY_COMMAND)]


def test_there_is_a_page_for_each_command(pages: Path) -> None:
    assert sorted(file.name for file in pages.iterdir()) == sorted(f"{name}.1" for name in names())


@pytest.mark.parametrize("name", names())
def test_the_parts_of_a_page(name: str, pages: Path) -> None:
    page = (pages / f"{name}.1").read_text(encoding="utf-8")
    found = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)
    assert found == [section for section in SECTIONS if section in found]
    assert found[:4] == [*SECTIONS[:3], "OPTIONS"]
    requests = {line.split(" ")[0] for line in page.splitlines() if line[:1] in (".", "'")}
    assert requests <= REQUESTS
    assert not re.search(r"[^\x20-\x7e\n]|(?<!\\)-|\n\n", page)


def test_every_option_has_its_help(pages: Path) -> None:
    page = (pages / "kcompact-clean.1").read_text(encoding="utf-8").replace("\\-", "-")
    for parameter in EVERY_COMMAND["clean"].params:
        if isinstance(parameter, click.Option):
            assert re.search(rf"^\.TP\n\\fB.*{parameter.opts[0]}\b.*\n\w", page, re.MULTILINE), parameter.opts


@click.command("odd", help=".TH starts a title\n\n'br \\fB back\\slash\n\n\b\nExamples:\n  odd --a '~^`' \\\n.B c")
@click.option("--a-b", "-a", metavar="'X'", help=".not a request")
def odd() -> None:
    """Text that roff could take for requests."""


def test_text_is_never_a_request() -> None:
    page = page_of(click.Context(odd, click.Context(main, info_name="kcompact"), "odd"))
    assert page.splitlines()[2] == r"kcompact\-odd \- \&.TH starts a title"
    assert "\n.PP\n\\(aqbr \\efB back\\eslash\n" in page
    assert ".SH EXAMPLES\n.nf\n  odd \\-\\-a \\(aq\\(ti\\(ha\\(ga\\(aq \\e\n\\&.B c\n.fi\n" in page
    assert "\\fB\\-a, \\-\\-a\\-b\\fR\\fI \\(aqX\\(aq\\fR\n\\&.not a request\n" in page


def test_a_page_is_the_same_every_time(pages: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert kcompact("man", tmp_path).code == 0
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
            file.name: file.read_bytes() for file in pages.iterdir()
        }


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    ran = kcompact("man", tmp_path / "not" / "there")
    assert (ran.code, len(ran.out.splitlines())) == (0, len(list((tmp_path / "not" / "there").iterdir())))


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = kcompact("man", tmp_path / "file" / "man1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {tmp_path}/file/man1: Not a directory")
