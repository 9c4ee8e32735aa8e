"""The command line in tests: run it, read its JSON, and see whether a directory changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from kcompact.cli.app import main
from tests import notation

ROOT = Path(__file__).parent.parent
NOW = "2024-01-01T10:00:00Z"
COMPACT = ("--config", "cleanup.policy=compact", "--now", NOW)

DIRTY = """\
log now=10:00
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6
"""
"""Two dirty segments and an active one."""


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


def on_terminal(width: int, *arguments: str | Path) -> list[str]:
    """Run a command line on a terminal of so many columns and return the lines that it shows."""
    import fcntl
    import pty
    import struct
    import termios

    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES")}
    env |= {"NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen(command(*arguments), stdin=terminal, stdout=terminal, stderr=terminal, env=env):
        os.close(terminal)
        seen = b""
        with contextlib.suppress(OSError):  # How a terminal says that nobody writes to it any more.
            while chunk := os.read(controller, 4096):
                seen += chunk
    os.close(controller)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode()).splitlines()]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "kcompact", *(str(argument) for argument in arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def clean(*arguments: str | Path) -> Ran:
    """Run `clean` in this process, without Spark, in JSON."""
    return kcompact("clean", "--engine", "in-process", "--json", *COMPACT, *arguments)


def partition(log_dir: Path, text: str = DIRTY) -> Path:
    """Write the log of a text and return its partition directory."""
    return notation.write(notation.parse(text), log_dir)


def digest(directory: Path) -> dict[str, str]:
    """Return names, contents and times of everything below, but for the lock, which is made to be locked."""
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
