"""Ctrl-C, SIGTERM and SIGHUP while `clean` runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.signals import StopRequest, stop_request
from kcompact.engine.in_process import InProcess
from kcompact.errors import CleaningAbortedError
from tests.support.command_line import (
    COMPACT,
    clean,
    command,
    digest,
    environment,
    kcompact,
    partition,
    settings,
    values,
)


@pytest.fixture
def hang_up() -> Iterator[None]:
    """Let SIGHUP act: under `nohup` it is ignored, and kcompact leaves it so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_between_two_steps(
    number: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path / "a")
    other = partition(tmp_path / "b", settings("name=users-0"))
    before = digest(tmp_path)
    write = InProcess.write

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        return write(*arguments)

    monkeypatch.setattr(InProcess, "write", interrupted)
    handlers = signal.getsignal(number)
    ran = clean(directory, other)
    assert ran.code == code
    assert [(entry["status"], entry["exit_code"]) for entry in ran.json["partitions"]] == [("failed", code)] * 2
    assert digest(tmp_path) == before
    assert signal.getsignal(number) is handlers


def test_signals_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_request():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_request_is_checked() -> None:
    stop = StopRequest()
    stop.check("orders-0")
    stop.exit_code = 143
    with pytest.raises(CleaningAbortedError) as caught:
        stop.check("orders-0")
    assert caught.value.exit_code == 143


SLOW = """
import sys, time
from kcompact.engine.in_process import InProcess
def write(self, *arguments):
    print("writing", flush=True, file=sys.stderr)
    time.sleep(30)
InProcess.write = write
from kcompact.cli.app import main
main(sys.argv[1:])
"""


@pytest.mark.long
def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    arguments = command("clean", "--engine", "in-process", "--json", *COMPACT, directory)[3:]
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments], stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert slow.stderr is not None
    assert slow.stderr.readline() == "writing\n"
    slow.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert slow.poll() is None
    slow.send_signal(signal.SIGINT)
    assert slow.wait(10) == 130
    assert "press Ctrl-C again" in slow.stderr.read()
    slow.stderr.close()
    assert kcompact("recover", directory).code == 0
    assert values(directory)[0] == (b"a", b"1")
