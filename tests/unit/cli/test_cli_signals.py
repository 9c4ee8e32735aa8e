"""Ctrl-C, SIGTERM and SIGHUP while `clean` runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner import engines
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.engine.in_process import InProcess
from kcompact.errors import CleaningAbortedError
from tests.support.command_line import (
    ASSUMED,
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
from tests.support.patience import PATIENCE_S


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
    run = InProcess.run

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        return run(*arguments)

    monkeypatch.setattr(InProcess, "run", interrupted)
    monkeypatch.setattr(engines, "available_cores", lambda: 1)  # One partition after the other.
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
def run(self, *arguments):
    print("writing", flush=True, file=sys.stderr)
    while True:  # A signal just before a sleep does not end it.
        time.sleep(0.05)
InProcess.run = run
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
    for _ in range(2):  # On what the broker and the topic may have of their own.
        assert ASSUMED.match(slow.stderr.readline())
    assert slow.stderr.readline() == "writing\n"
    slow.send_signal(signal.SIGINT)
    assert slow.stderr.readline() == "\n"  # After the ^C that a terminal shows.
    assert "press Ctrl-C again" in slow.stderr.readline()
    assert slow.poll() is None
    slow.send_signal(signal.SIGINT)
    assert slow.wait(PATIENCE_S) == 130
    slow.stderr.close()
    assert kcompact("recover", directory).code == 0
    assert values(directory)[0] == (b"a", b"1")


AT_ONCE = """
import os, signal, sys
number, place, *arguments = sys.argv[1:]
module, _, name = place.rpartition(".")
def hit(*_, **__):
    os.kill(os.getpid(), int(number))
    raise SystemExit("the signal was survived")
if name == "import":
    class Finder:
        def find_spec(self, asked, path=None, target=None):
            if asked == module:
                hit()
    sys.meta_path.insert(0, Finder())
else:
    __import__(module)
    setattr(sys.modules[module], name, hit)
from kcompact.__main__ import main
sys.argv[1:] = arguments
main()
"""


@pytest.mark.parametrize(
    ("number", "code", "place", "arguments"),
    [
        (signal.SIGINT, 130, "click.import", ("--version",)),
        (signal.SIGTERM, 143, "numpy.import", ("keys", "PATH")),
        (signal.SIGINT, 130, "kcompact.plan.partition.plan_partition", ("plan", "PATH")),
        (signal.SIGHUP, 129, "kcompact.plan.partition.plan_partition", ("clean", "--engine", "in-process", "PATH")),
        (signal.SIGTERM, 143, "kcompact.questions.verify.log.verify_log", ("verify", "PATH")),
    ],
)
def test_a_signal_ends_the_command_and_shows_no_traceback(
    number: signal.Signals, code: int, place: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("orders-0", "orders-1"):
        partition(tmp_path, settings(f"name={name}"))
    before = digest(tmp_path)
    words = [str(tmp_path) if word == "PATH" else word for word in arguments]
    ended = subprocess.run(
        [sys.executable, "-c", AT_ONCE, str(int(number)), place, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (ended.returncode, ended.stderr) == (code, "\ninterrupted\n")
    assert digest(tmp_path) == before


def test_ctrl_c_before_the_handlers_are_set_shows_no_traceback() -> None:
    words = [sys.executable, "-c", AT_ONCE, str(int(signal.SIGINT)), "kcompact.cli.import", "--version"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


IN_AN_IMPORT = """
import builtins, os, signal
from kcompact.cli import signals

def refuse(*arguments, **options):
    raise ImportError("partially initialized module")

signals.end_at_signals()
builtins.__import__ = refuse
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_signal_during_an_import_imports_nothing() -> None:
    """The main thread may be importing what the handler would import."""
    ended = subprocess.run([sys.executable, "-c", IN_AN_IMPORT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (130, "\ninterrupted\n")


IN_RECOVERY = """
import os, signal, sys
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.cleaner import round as rounds
real = recovery.begin_recovery
def begin(directory, **options):
    if directory.name == "orders-1":
        os.kill(os.getpid(), signal.SIGTERM)
    return real(directory, **options)
rounds.begin_recovery = recovery.begin_recovery = begin
from kcompact.__main__ import main
main()
"""


@pytest.mark.parametrize("arguments", [("recover",), ("clean", "--engine", "in-process", *COMPACT)])
def test_a_recovery_that_has_begun_is_finished_and_no_other_begun(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for number in range(3):
        directory = partition(tmp_path, settings(f"name=orders-{number}"))
        (directory / ".kcompact-0123456789abcdef").mkdir(mode=0o700)
    ended = subprocess.run(
        [sys.executable, "-c", IN_RECOVERY, *arguments, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 143
    assert "Traceback" not in ended.stderr
    left = [path.parent.name for path in tmp_path.glob("*/.kcompact-*")]
    assert left == ["orders-2"]


SCRATCH = """
import os, signal, subprocess, sys, time
from kcompact.cli import signals
from kcompact.engine.spark.scratch import private_directory
from kcompact.host.process_end import undone_at_abrupt_end
with signals.stop_request() as stop, private_directory(None) as directory:
    writer = subprocess.Popen(["sh", "-c", f"while :; do : > {directory}/file; done"])
    with undone_at_abrupt_end(writer.kill):
        stop.is_deferred = True
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_second_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRATCH],
        capture_output=True,
        check=False,
        env={**environment(), "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 130, ended.stderr
    assert list(tmp_path.iterdir()) == []
