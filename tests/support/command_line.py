"""The command line in tests: run it, read its JSON, and see whether a directory changed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click import Context
from click.testing import CliRunner

import kcompact as package
from kcompact.cli.app import main
from kcompact.cli.options import commands_of
from tests.support import log_dsl, log_writer
from tests.support.log_reader import read_log_records

ROOT = Path(__file__).parents[2]
IMPORTED_FROM = Path(package.__file__).parents[1]
"""Where this process has kcompact from: the checkout, or an installation that is tested instead."""
EVERY_COMMAND = commands_of(Context(main))
NOW = "2024-01-01T10:00:00Z"
COMPACT = ("--config", "cleanup.policy=compact", "--now", NOW)

DIRTY = """\
log now=10:00
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6
"""
"""Two dirty segments and an active one."""
COMPACTED = {3: (b"b", b"4"), 2: (b"a", b"3"), 4: (b"c", b"5"), 5: (b"d", None), 6: (b"a", b"6")}
"""The `values` of DIRTY once it is cleaned."""
LOG0, LOG3, LOG6 = (f"{base:020d}.log" for base in (0, 3, 6))
"""The logs of DIRTY."""

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that hide or reorder text."""


ASSUMED = re.compile(
    r"^note: no (?:server\.properties that names .* was read|source has the settings that).*\n", re.MULTILINE
)
"""The note on settings that decide and are only assumed, which every plan without the files of a broker has."""


def note_texts(described: Mapping[str, Any]) -> list[str]:
    """Return the sentences of the notes of a JSON object, of the whole run or of a partition."""
    return [note["text"] for note in described["notes"]]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def partition(self) -> dict[str, Any]:
        """The only partition of the answer."""
        (entry,) = self.json["partitions"]
        found: dict[str, Any] = entry
        return found

    @property
    def notes(self) -> list[str]:
        """The notes on the whole run, without the one on assumed settings."""
        return [text for text in note_texts(self.json) if not ASSUMED.match(f"note: {text}\n")]

    @property
    def complaints(self) -> str:
        """What is on standard error, without the note on assumed settings."""
        return ASSUMED.sub("", self.err)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def kcompact(*arguments: str | Path) -> Ran:
    """Run a command line in this process."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="kcompact")
    return Ran(result.exit_code, result.stdout, result.stderr)


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=environment(), **options
    )


def in_shell(redirection: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process whose streams a shell has redirected, or closed."""
    script = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *command(*arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def terminal(width: int) -> Iterator[bytearray]:
    """Put a terminal of a width in the place of the streams of this process; yield what it is sent."""
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    sent = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # Reading fails when nothing has the terminal open any more.
            while chunk := os.read(controller, 1 << 16):
                sent.extend(chunk)

    kept = [os.dup(stream) for stream in range(3)]
    reader = threading.Thread(target=read)
    reader.start()
    for stream in range(3):
        os.dup2(end, stream)
    os.close(end)
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as streams:
            for name in ("COLUMNS", "LINES"):
                patch.delenv(name, raising=False)
            for name, value in (("NO_COLOR", "1"), ("TERM", "xterm")):
                patch.setenv(name, value)
            for stream, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
                patch.setattr(sys, name, streams.enter_context(open(stream, mode, closefd=False)))
            yield sent
    finally:
        for stream, descriptor in enumerate(kept):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        reader.join()
        os.close(controller)


def on_terminals(runs: Sequence[tuple[int, Sequence[str | Path]]]) -> list[list[str]]:
    """Run command lines in this process, each on a terminal of a width; return the lines that each shows."""
    shown = []
    for width, arguments in runs:
        with terminal(width) as sent, contextlib.suppress(SystemExit):
            main([str(argument) for argument in arguments], prog_name="kcompact")
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent.decode())
        shown.append([line.rstrip() for line in text.splitlines()])
    return shown


def on_terminal(widths: Sequence[int], *arguments: str | Path) -> dict[int, list[str]]:
    """Run a command line on a terminal of each width; return the lines that each shows."""
    return dict(zip(widths, on_terminals([(width, arguments) for width in widths]), strict=True))


def after_notes(lines: list[str]) -> list[str]:
    """Return the lines of a terminal below the notes on the whole run, which it may have broken."""
    return lines[next(n for n, line in enumerate(lines) if re.match(r"partition +[a-z]|reason +clean", line)) :]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "kcompact", *(str(argument) for argument in arguments)]


def environment() -> dict[str, str]:
    """Return the environment of a process that imports the same kcompact as this one, in any working directory."""
    return {**os.environ, "PYTHONPATH": str(IMPORTED_FROM)}


def clean(*arguments: str | Path) -> Ran:
    """Run `clean` in this process, without Spark, in JSON."""
    return kcompact("clean", "--engine", "in-process", "--json", *COMPACT, *arguments)


def partition(log_dir: Path, text: str = DIRTY) -> Path:
    """Write the log that the text describes and return its partition directory."""
    return log_writer.write(log_dsl.parse(text), log_dir)


def server_properties(*log_dirs: Path, text: str = "") -> Path:
    """Write the file of the broker of some log directories beside the first one, with more lines; return its path."""
    file = log_dirs[0].with_name("server.properties")
    named = ",".join(map(str, log_dirs))
    file.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={named}\n{text}\n", encoding="utf-8")
    return file


def settings(words: str, text: str = DIRTY) -> str:
    """Return the text of a log with more words in its first line."""
    return text.replace("now=10:00", f"now=10:00 {words}")


def values(directory: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return the records of a partition as a reader sees them: key and value by offset."""
    return {
        record.offset: (record.key, record.value)
        for log in sorted(directory.glob("*.log"))
        for record in read_log_records(log)
    }


def digest(directory: Path) -> dict[str, str]:
    """Return names, contents and times of everything below, except of `.lock`, which each command may create."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.name != ".lock":
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
            found[str(path.relative_to(directory))] = f"{content} {path.stat().st_mtime_ns if path.is_file() else 0}"
    return found


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Damage one byte and leave the times alone; a negative position counts from the end."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[position] ^= bits
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file's content and leave its times alone."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def leave_swap(directory: Path) -> None:
    """Leave a file of an interrupted swap, as a broker would."""
    (directory / f"{LOG0}.swap").write_bytes(b"")


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "a+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running_broker(log_dir: Path, *words: str) -> Iterator[int]:
    """Hold the lock as a broker does: a POSIX record lock of another process, whose id is yielded.

    `words` are the end of its command line.
    """
    arguments = [sys.executable, "-c", HOLD, str(log_dir / ".lock"), *words]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == "held\n"
        try:
            yield broker.pid
        finally:
            broker.stdin.close()
            broker.wait()
