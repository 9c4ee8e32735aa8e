"""The progress of `records`: where it is shown, how, and where nothing may disturb the list."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from kcompact.cli.output import progress as progress_module
from kcompact.cli.output import streams
from kcompact.cli.output.progress import ListProgress
from kcompact.host.process_end import undo_all
from tests.support.command_line import kcompact, partition

LOGS = [(Path("a-0/0.log"), 100), (Path("a-0/7.log"), 60), (Path("b-3/0.log"), 240)]
END = "(end)"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let standard error be a terminal; yield the descriptor of what is behind it."""
    behind, before = os.openpty()
    with os.fdopen(before, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress_module, "LEAST_BYTES", 1)
        monkeypatch.setattr(progress_module, "LINE_EVERY_S", 0.0)
        monkeypatch.setenv("TERM", "xterm")
        yield behind
    os.close(behind)


def shown(behind: int) -> str:
    """What is on the terminal since the last call."""
    sys.stderr.write(END)
    sys.stderr.flush()
    found = b""
    while not found.endswith(END.encode()):
        found += os.read(behind, 1 << 16)
    return found.decode().removesuffix(END)


def read_all(progress: ListProgress) -> None:
    for log, size_bytes in LOGS:
        progress.reached(log, size_bytes // 2)
        progress.reached(log, size_bytes)
    progress.pause()


@pytest.mark.parametrize("output", ["file", "null", "pipe", "terminal", "closed"])
def test_where_progress_is_shown(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[TextIO] = []
    with terminal(monkeypatch) as behind:
        if output == "pipe":
            reader, writer = os.pipe()
            opened = [os.fdopen(reader, "r"), os.fdopen(writer, "w")]
        elif output != "closed":
            of_terminal = os.ttyname(sys.stderr.fileno())
            target = {"file": str(tmp_path / "list"), "null": "/dev/null", "terminal": of_terminal}[output]
            opened = [Path(target).open("w")]  # noqa: SIM115 - closed below
        monkeypatch.setattr(sys, "stdout", opened[-1] if opened else streams.ClosedOutput())
        read_all(ListProgress(LOGS, into_file=False))
        found = shown(behind)
    for stream in opened:
        stream.close()
    has_bars = output in ("file", "null")
    assert ("\x1b[" in found) == has_bars  # Bars move the cursor.
    assert ("b-3 reading" in found) == has_bars
    assert ("1 of 2 partitions" in found) == (has_bars or output in ("pipe", "closed"))
    assert ("400 B of 400 B read" in found) == (output in ("pipe", "closed"))


def test_no_line_while_a_pager_has_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as behind:
        monkeypatch.setattr(sys, "stdout", streams.ClosedOutput())
        tty.setcbreak(sys.stderr.fileno(), termios.TCSANOW)
        read_all(ListProgress(LOGS, into_file=False))
        assert shown(behind) == ""


def test_bars_go_on_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as behind:
        progress = ListProgress(LOGS, into_file=True)
        progress.reached(LOGS[0][0], 100)
        progress.pause()
        assert "a-0 reading" in shown(behind)
        progress.pause()
        assert shown(behind) == ""
        progress.reached(LOGS[1][0], 60)
        progress.pause()
        progress.reached(LOGS[2][0], 120)
        progress.pause()
        found = shown(behind)
    for text in ("1 of 2 partitions", "280 B of 400 B", "120 B of 240 B"):
        assert text in found


def test_ctrl_c_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    with terminal(monkeypatch):
        monkeypatch.setattr(os, "write", lambda number, data: written.append(data))
        progress = ListProgress(LOGS, into_file=True)
        progress.reached(LOGS[0][0], 100)
        undo_all()
        assert written == [b"\x1b[?25h"]
        progress.pause()
        undo_all()
        assert len(written) == 1


@pytest.mark.parametrize("options", [[], ["--key", "k1"], ["--latest"], ["--transaction", "none"], ["--limit", "3"]])
def test_every_list_says_how_far_it_is(
    options: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[tuple[str, int]] = []
    monkeypatch.setattr(ListProgress, "reached", lambda self, log, position: reached.append((log.name, position)))
    directory = partition(tmp_path / "logs", "log\n0: k1=v k2=v k3=v\n3: k1=w k4=v")
    ran = kcompact("records", *options, "--output", tmp_path / "list.jsonl", directory)
    assert ran.code == 0
    sizes = [(path.name, path.stat().st_size) for path in sorted(directory.glob("*.log"))]
    assert list(dict.fromkeys(one for one in reached if one in sizes)) == sizes
    assert len(reached) > len(sizes)
