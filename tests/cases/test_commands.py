"""Replays the case files of `cases/commands`: logs, what happens to them, commands, and what these print.

A paragraph that begins with `#` starts a story, in a directory of its own. Its lines prepare files or run commands;
what a command prints stands below it, indented. `--rewrite` writes what happens into the files.

    log in=data now=10:00 ...           write a partition into `data`, else into `logs`: `tests/support/log_dsl.py`
    orders [in=data] [checkpoint=3 ...] the log of most stories: two dirty segments and an active one
    example NAME                        `logs` of one of tests/support/examples
    fixture NAME                        `logs` as a broker of fixtures/logs left it, times and all
    flip FILE POSITION [BITS]           damage a byte; a negative position counts from the end
    cut FILE BYTES                      take bytes off the end
    append FILE HEX                     add bytes at the end
    index FILE COUNT                    write so many entries into an offset index
    broker [DIRECTORY]                  let a broker run on a log directory until the story ends
    broker-config LINE [LINE]...        write the server.properties of the broker that uses `logs`
    cp rm ln mkdir touch printf ...     as in a shell
    $ kcompact ...                      a command; `!` marks what it prints on standard error
    $ kcompact ... | show [NAME...]     its JSON in short lines, or only these fields of its partitions: `segments.role`
    $ kcompact ... | grep ...           any other filter of a shell
    $ state DIRECTORY                   the records of a partition, its files, and its entry in the checkpoint
    $ cat FILE, $ ls DIRECTORY          as in a shell

The clock says 10:00 of the first day. `3.log` is the log at offset 3, and `$COMPACT` the setting of a compacted topic.
A command that only reads must leave every file as it is, to the byte and to the time.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import checkout
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.host import machine
from kcompact.log import unchanged_reading
from tests.support import examples, log_dsl, log_writer
from tests.support.command_line import (
    ASSUMED,
    Ran,
    digest,
    flip,
    kcompact,
    rewrite,
    running_broker,
    server_properties,
    settings,
)
from tests.support.log_reader import read_aborted, read_segments
from tests.support.log_writer import DAY_ZERO
from tests.support.pages import without_timings

FILES = sorted((Path(__file__).parent / "commands").glob("*.txt"))
INDENT = " " * 4
WIDTH = 120
BY_BOTH = {"clean", "keys", "records"}
"""The files that `make test` replays with the definitions, too: what reads and writes records."""
MISSING = "absent"
"""What `show` prints for a field that the JSON lacks: null is a value."""
CHANGES = {"clean", "recover", "restore"}
SHELL = {"cp", "rm", "ln", "mv", "mkdir", "mkfifo", "touch", "printf", "chmod"}
SHORT_NAME = re.compile(r"(?<![\w.-])(\d{1,19})(?=\.(?:log|index|timeindex|txnindex|snapshot)\b)")


class Story:
    """The directory of a story, and the brokers that run in it."""

    def __init__(self, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scratch = scratch
        self.running = contextlib.ExitStack()
        self._known: dict[str, str] | None = None
        """The digest of all files, if nothing may have changed them since."""
        scratch.mkdir()
        monkeypatch.chdir(scratch)

    def prepare(self, lines: list[str]) -> None:
        """Do what a line says. Those of a log follow its first one."""
        self._known = None
        verb, *words = shlex.split(SHORT_NAME.sub(_whole_name, lines[0]))
        if verb in ("log", "orders"):
            target = next((word.removeprefix("in=") for word in words if word.startswith("in=")), "logs")
            head = re.sub(r" in=\S+", "", lines[0])
            text = "\n".join([head, *lines[1:]]) if verb == "log" else settings(head.removeprefix("orders"))
            log_writer.write(log_dsl.parse(text), self.scratch / target)
        elif verb == "fixture":
            checkout.copy_directory(words[0], "before", self.scratch / "logs")
        elif verb == "example":
            examples.build(words[0], self.scratch / "logs")
        elif verb == "flip":
            flip(Path(words[0]), int(words[1]), *(int(bits, 0) for bits in words[2:]))
        elif verb == "cut":
            rewrite(Path(words[0]), Path(words[0]).read_bytes()[: -int(words[1])])
        elif verb == "append":
            rewrite(Path(words[0]), Path(words[0]).read_bytes() + bytes.fromhex(words[1]))
        elif verb == "index":
            entries = (struct.pack(">ii", number + 1, number + 1) for number in range(int(words[1])))
            rewrite(Path(words[0]), b"".join(entries))
        elif verb == "broker":
            self.running.enter_context(running_broker(self.scratch / (words or ["logs"])[0]))
        elif verb == "broker-config":
            server_properties(self.scratch / "logs", text="\n".join(words))
        else:
            assert verb in SHELL, f"no such verb: {verb}"
            subprocess.run(SHORT_NAME.sub(_whole_name, lines[0]), shell=True, cwd=self.scratch, check=True)

    def run(self, command: str) -> list[str]:
        """Return what a command prints."""
        command = SHORT_NAME.sub(_whole_name, command).replace("$COMPACT", "--config cleanup.policy=compact")
        first, _, shell_filter = command.partition(" | ")
        program, *words = shlex.split(first)
        if program == "state":
            return state(self.scratch / words[0])
        if program != "kcompact":
            assert program in ("cat", "ls"), f"no such command: {program}"
            return subprocess.run(
                command, shell=True, cwd=self.scratch, stdout=subprocess.PIPE, text=True, check=False
            ).stdout.splitlines()
        if words[0] in CHANGES:
            self._known = None
            ran = kcompact(*words)
        else:
            before = digest(self.scratch) if self._known is None else self._known
            ran = kcompact(*words)
            self._known = digest(self.scratch)
            assert self._known == before, f"{command} has changed something"
        assert not re.search("Traceback|a bug of kcompact", ran.out + ran.err), ran.out + ran.err
        ran = Ran(ran.code, self.without_scratch(ran.out), self.without_scratch(ran.err))
        out = self.filtered(ran, shell_filter) if shell_filter else ran.out
        printed = [*out.splitlines(), *(f"! {line}" for line in ASSUMED.sub("", ran.err).splitlines())]
        printed = [line.rstrip() for line in [*printed, *([f"[exit code {ran.code}]"] if ran.code else [])]]
        return without_timings([re.sub(r"python\S* \(process \d+\)", "python (process _)", line) for line in printed])

    def without_scratch(self, text: str) -> str:
        """Return text with paths that begin in the directory of the story."""
        return re.sub(rf"{re.escape(str(self.scratch))}(/|\b)", "", text)

    def filtered(self, ran: Ran, shell_filter: str) -> str:
        verb, *names = shlex.split(shell_filter)
        if verb == "show":
            document = ran.lines[0] if len(ran.lines) == 1 else {"lines": ran.lines}
            shown = [(f"{name}: ", _field(document, name)) for name in names] or [("", document)]
            return "".join(f"{before}{_in_short_lines(value)}\n" for before, value in shown)
        return subprocess.run(
            shell_filter, shell=True, cwd=self.scratch, input=ran.out, stdout=subprocess.PIPE, text=True, check=False
        ).stdout


def state(directory: Path) -> list[str]:
    """Return the records of a partition as `log_dsl` writes them, the names of its files, and its checkpoint."""
    lines = [log_dsl.segment_text(segment) for segment in read_segments(directory)]
    for base_offset, entries in read_aborted(directory).items():
        lines += [log_dsl.aborted_text(base_offset, entry) for entry in entries]
    lines.append(" ".join(re.sub(r"^0+(?=\d)", "", path.name) for path in sorted(directory.iterdir())))
    checkpoint = directory.parent / CLEANER_OFFSET_CHECKPOINT
    return [*lines, *(checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else ["no checkpoint"])]


def _whole_name(short: re.Match[str]) -> str:
    return f"{int(short[1]):020d}"


def _field(document: Any, name: str) -> Any:
    """Return a field of a document, else of its partitions or lines."""
    entries = next((each for each in ("partitions", "lines") if each in document), "")
    return _at(document if name.partition(".")[0] in document else document[entries], name)


def _at(value: Any, name: str) -> Any:
    """Return a field of a JSON value, of each of a list; `MISSING`, and not None, where there is none."""
    if isinstance(value, list):
        return [_at(each, name) for each in value]
    if not name or value is None or value == MISSING:
        return value
    first, _, rest = name.partition(".")
    return value[name] if name in value else _at(value.get(first, MISSING), rest)


def _in_short_lines(value: Any, indent: str = "") -> str:
    """Return JSON in which only what is too long for a line is spread over several."""
    line = json.dumps(value)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = f"{indent}  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_in_short_lines(each, inner)}" for name, each in value.items()]
    else:
        parts = [_in_short_lines(each, inner) for each in value]
    lines: list[str] = []
    for part in parts:
        last = f"{lines[-1]}, {part}" if lines else ""
        is_simple = not re.search(r"[{\[\n]", last)
        if is_simple and last and len(inner) + len(last) < WIDTH:
            lines[-1] = last
        else:
            lines.append(part)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, ",\n".join(f"{inner}{line}" for line in lines), f"{indent}{closing}"])


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the comments, the preparations with their lines, and the commands with what they print."""
    current: list[str] = []
    for line in text.splitlines():
        continues = current and (
            (line.startswith("#") and current[0].startswith("#"))
            or (current[0].startswith("$") and (line.startswith(INDENT) or not line))
            or (re.match(r"log( |$)", current[0]) and re.match(r"\d+:|snapshot |txnindex ", line))
        )
        if continues:
            current.append(line)
        else:
            if current:
                yield current
            current = [line]
    if current:
        yield current


def replayed(text: str, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the file as it should be: below every command is what it really prints."""
    written: list[str] = []
    with contextlib.ExitStack() as stories:
        story: Story | None = None
        for number, lines in enumerate(paragraphs(text)):
            if lines[0].startswith("#"):
                story = Story(scratch / str(number), monkeypatch)
                stories.enter_context(story.running)
            elif lines[0].startswith("$"):
                assert story is not None
                printed = story.run(lines[0].removeprefix("$ "))
                blank = [""] * (len(lines) - len("\n".join(lines).rstrip("\n").split("\n")))
                lines = [lines[0], *(f"{INDENT}{line}".rstrip() for line in printed), *blank]
            elif lines[0]:
                assert story is not None
                story.prepare(lines)
            written += lines
    return "\n".join(written) + "\n"


@pytest.mark.parametrize(
    ("path", "compiled"),
    [
        pytest.param(
            path,
            compiled,
            marks=() if compiled or path.stem in BY_BOTH else pytest.mark.slow,
            id=f"{'kernels' if compiled else 'definitions'}-{path.stem}",
        )
        for compiled in (True, False)
        for path in FILES
    ],
    indirect=["compiled"],
)
def test_commands(
    path: Path, on_disk: Path, compiled: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    now_ns = (DAY_ZERO + 10 * 3_600_000) * 1_000_000
    monkeypatch.setattr(machine, "time", SimpleNamespace(time_ns=lambda: now_ns))
    monkeypatch.setattr(unchanged_reading, "_PAUSES_S", (0, 0, 0))
    text = path.read_text(encoding="utf-8")
    actual = replayed(text, on_disk, monkeypatch)
    if request.config.getoption("--rewrite"):
        path.write_text(actual, encoding="utf-8")
    else:
        assert actual == text
