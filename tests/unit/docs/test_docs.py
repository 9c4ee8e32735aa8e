"""Every example of README and docs is run, and says what really happens. `--rewrite` writes what happens into the page.

A `console` block holds commands (`$ kcompact ...`, `$ kcompact ... | grep ...`, `$ ls`) and what they print: standard
output, and when a command fails also standard error and `[exit code N]`. A line `...` stands for lines that are not
shown; those before and after it are compared. Comments before a block prepare a new scratch directory for it; a block
without any goes on in the directory of the one before.

    <!-- fixture: mixed before logs -->     ./logs is a copy of fixtures/logs/mixed/before, file times and all
    <!-- example: fruit-prices logs -->     ./logs is what tests/support/examples/fruit-prices.txt describes
    <!-- bucket: mixed before backups eu --> s3://backups/eu is the fixture, on a server of its own; once in all pages
    <!-- before: rm logs/.lock -->          a command that is run first and not shown
    <!-- clock: 2023-11-15T22:00:00Z -->    the time, so that the commands of a page need no --now
    <!-- spark -->                          the block starts a JVM, so it is run by a test of its own

A `python` block is run in the same way, in one namespace with those before it; what it prints is the `text` block that
follows. Durations and rates are not compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import click
import pytest

from fixtures import checkout
from kcompact.host import machine
from tests.support import examples
from tests.support.command_line import EVERY_COMMAND, IMPORTED_FROM
from tests.support.pages import Block, abridged, blocks, commands, run, without_timings
from tests.support.s3_server import moto

if TYPE_CHECKING:
    from kcompact.engine.spark import OnSpark

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(slots=True, kw_only=True)
class Session:
    """Blocks that are run one after the other in one scratch directory."""

    page: Path
    number: int
    directives: tuple[tuple[str, str], ...] = ()
    blocks: list[Block] = field(default_factory=list)

    @property
    def needs_spark(self) -> bool:
        return any(kind == "spark" for kind, _ in self.directives)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}-{self.number}"


def sessions(page: Path) -> list[Session]:
    found: list[Session] = []
    previous: Block | None = None
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language in ("console", "python"):
            if block.directives or not found:
                found.append(Session(page=page, number=len(found) + 1, directives=block.directives))
            found[-1].blocks.append(block)
        elif block.language == "text" and previous is not None and previous.language == "python":
            found[-1].blocks.append(block)
        previous = block
    return found


SESSIONS = [session for page in PAGES for session in sessions(page)]


def prepare(session: Session, scratch: Path, stack: contextlib.ExitStack) -> None:
    for kind, words in session.directives:
        if kind == "fixture":
            name, directory, target = words.split()
            checkout.copy_directory(name, directory, scratch / target)
        elif kind == "example":
            name, target = words.split()
            examples.build(name, scratch / target)
        elif kind == "bucket":
            name, directory, bucket, prefix = words.split()
            server = stack.enter_context(moto())
            stack.enter_context(patch.dict(os.environ, server.environment))
            server.make_bucket(bucket)
            server.upload(checkout.LOGS / name / directory, bucket, prefix)
        elif kind == "before":
            assert run(words, scratch, in_process=True) == []


# Running


def run_session(session: Session, scratch: Path, *, in_process: bool) -> dict[int, list[str]]:
    """Run the blocks and return, by the line they start at, the lines that they should consist of."""
    with contextlib.ExitStack() as stack:
        prepare(session, scratch, stack)
        return _run_blocks(session, scratch, in_process=in_process)


def _run_blocks(session: Session, scratch: Path, *, in_process: bool) -> dict[int, list[str]]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    actual: dict[int, list[str]] = {}
    printed: list[str] = []
    for block in session.blocks:
        if block.language == "console":
            lines: list[str] = []
            for shown, command, expected in commands(block):
                result = abridged(run(command, scratch, in_process=in_process), expected)
                same = without_timings(result) == without_timings(expected)
                lines += [*shown, *(expected if same else result)]
            actual[block.start] = lines
        elif block.language == "python":
            assert not printed, "a python block prints something, and no text block follows"
            stream = io.StringIO()
            source = "\n" * block.start + "\n".join(block.lines)
            with contextlib.redirect_stdout(stream):
                exec(compile(source, str(session.page), "exec"), namespace)
            printed = [line.rstrip() for line in stream.getvalue().splitlines()]
        else:
            actual[block.start], printed = printed, []
    assert not printed, "a python block prints something, and no text block follows"
    return actual


def check(session: Session, scratch: Path, *, rewrite: bool, in_process: bool) -> None:
    actual = run_session(session, scratch, in_process=in_process)
    expected = {block.start: list(block.lines) for block in session.blocks if block.start in actual}
    if not rewrite:
        assert actual == expected
        return
    # Blocks of other sessions may have grown meanwhile, so they are found again by their number.
    numbers = {block.start: number for number, block in enumerate(blocks(_original(session.page)))}
    lines = session.page.read_text(encoding="utf-8").splitlines()
    for start, wanted in sorted(actual.items(), reverse=True):
        block = blocks("\n".join(lines))[numbers[start]]
        lines[block.start : block.start + len(block.lines)] = wanted
    session.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


ORIGINALS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def _original(page: Path) -> str:
    return ORIGINALS[page]


@pytest.mark.long
@pytest.mark.parametrize("session", [each for each in SESSIONS if not each.needs_spark], ids=str)
def test_examples(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, words in session.directives:
        if kind == "clock":
            now_ns = int(datetime.fromisoformat(words).timestamp()) * 1_000_000_000
            monkeypatch.setattr(machine, "time", SimpleNamespace(time_ns=lambda now_ns=now_ns: now_ns))
    check(session, tmp_path, rewrite=rewrite, in_process=True)


ON_SPARK = [each for each in SESSIONS if each.needs_spark]
IN_PYTHON = [each for each in ON_SPARK if each.blocks[0].language == "python"]
SMALL_SPARK = """
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.sql.shuffle.partitions 1
"""
"""Settings of Spark for small data and a short run. They change no result."""


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning", "ignore:.*pandas.*:FutureWarning")
@pytest.mark.parametrize(
    "session",
    [pytest.param(each, marks=[pytest.mark.slow] if each in IN_PYTHON else []) for each in ON_SPARK],
    ids=map(str, ON_SPARK),
)
def test_examples_on_spark(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool) -> None:
    monkeypatch.chdir(tmp_path)
    # A Python block starts Spark by itself. Its workers are this Python, with this package.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(IMPORTED_FROM))
    settings = tmp_path / "conf" / "spark-defaults.conf"
    settings.parent.mkdir()
    settings.write_text(SMALL_SPARK)
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings.parent))
    check(session, tmp_path, rewrite=rewrite, in_process=False)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning", "ignore:.*pandas.*:FutureWarning")
@pytest.mark.parametrize("session", IN_PYTHON, ids=str)
def test_python_examples_on_the_spark_of_the_tests(
    session: Session, on_spark: OnSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool
) -> None:
    """As in a notebook that has started Spark: the builder of a session takes it. The page does not stop it."""
    from pyspark.sql import DataFrameReader

    load = DataFrameReader.load
    monkeypatch.chdir(tmp_path)
    # Spark's processes are in another directory.
    monkeypatch.setattr(DataFrameReader, "load", lambda reader, path: load(reader, str(tmp_path / path)))
    monkeypatch.setattr(type(on_spark.sc), "stop", lambda _: None)
    check(session, tmp_path, rewrite=rewrite, in_process=False)


# The pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_console_block_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    written = sum(line.strip().startswith("```console") for line in text.splitlines())
    found = [(session, block) for session in sessions(page) for block in session.blocks if block.language == "console"]
    assert len(found) == written
    for session, block in found:
        for _, command, _ in commands(block):
            if re.search(r" --(master|spark-conf|engine spark)\b", command):
                assert session.needs_spark, command
    hidden = [block for block in blocks(text) if block.language != "console" and "$ kcompact" in "\n".join(block.lines)]
    assert not hidden, "a command in a block that is not run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert path.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(path), target


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings get: lower case, punctuation gone, blanks to hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:kcompact|tests|fixtures|docs)/[\w./-]+\.(?:py|md|txt|sh|json))`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


OF_OTHER_PROGRAMS = {"--all", "--describe", "--entity-type", "--override"}
"""Options of Kafka's tools that the manual names."""


def test_the_manual_has_every_command_and_no_unknown_option() -> None:
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in EVERY_COMMAND if f"`{name}`" not in manual] == []
    options = {option for command in EVERY_COMMAND.values() for each in command.params for option in each.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", manual)) - options - OF_OTHER_PROGRAMS == {
        "--help",
        "--version",
    }


def test_every_option_has_a_help_text() -> None:
    """The manual explains only what the help texts lack."""
    missing = [
        f"{name} {option.opts[0]}"
        for name, command in EVERY_COMMAND.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert missing == []
