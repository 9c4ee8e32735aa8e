"""Brokers, other runs, other programs and signals at the same time as a cleaning.

`locks`: a JVM takes and gives back the lock as a broker does, while this process takes it. `cleanings`, `copies`: two
runs begin together. `changes`: another program changes a file between two stages. `signals`: the real command gets a
signal at any time of its run.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kcompact.cleaner import partition as cleaning
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.round import clean_log_dir
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError, LogChangedError, LogDirLockedError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl
from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    DIRTY,
    LOG0,
    LOG3,
    LOG6,
    command,
    digest,
    environment,
    partition,
    settings,
    values,
)
from tests.support.copies import names
from tests.support.patience import PATIENCE_S, becomes
from tests.torture.tally import Tally

PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))
POLICY = {"cleanup.policy": "compact"}
STAGING = "*/.kcompact-*"


def run(*, share: float, seed: int) -> Tally:
    """Run all races, or a share of each."""
    tally = Tally()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="torture-races-") as scratch:
        directory = Path(scratch)
        _locks(directory / "locks", round(1000 * share), chance, tally)
        _runs(directory / "runs", round(100 * share), chance, tally)
        _outputs(directory / "outputs", round(60 * share), chance, tally)
        _changes(directory / "changes", share, chance, tally)
        _signals(directory / "signals", round(12 * share), chance, tally)
        _second_ctrl_c(directory / "second", round(12 * share), chance, tally)
    return tally


# The lock


BROKER = """
import java.io.*;
import java.nio.channels.*;
import java.nio.file.*;
public class Broker {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Path path = Path.of(args[0]);
        FileChannel channel = null;
        FileLock lock = null;
        for (String line; (line = in.readLine()) != null; ) {
            if (line.equals("start")) {
                channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ,
                                           StandardOpenOption.WRITE);
                lock = channel.tryLock();
                System.out.println(lock == null ? "refused" : "held");
                if (lock == null)
                    channel.close();
            } else {
                lock.release();
                channel.close();
                Files.deleteIfExists(path);
                System.out.println("stopped");
            }
        }
    }
}
"""
"""Takes and gives back a lock as `org.apache.kafka.server.util.FileLock`: it deletes the file after it has unlocked."""


@contextlib.contextmanager
def _broker(log_dir: Path) -> Iterator[Callable[[str], Callable[[], str]]]:
    """Yield a function that sends a line to a JVM and returns a function that waits for the answer."""
    source = log_dir.parent / "Broker.java"
    source.write_text(BROKER)
    java = shutil.which("java")
    assert java is not None, "the races need a JDK"
    started = [java, "-XX:TieredStopAtLevel=1", str(source), str(log_dir / ".lock")]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout

        def send(line: str) -> Callable[[], str]:
            to.write(line + "\n")
            to.flush()
            return lambda: answers.readline().strip()

        yield send
        to.close()


def _locks(scratch: Path, count: int, chance: random.Random, tally: Tally) -> None:
    """A broker starts or stops while kcompact takes the lock: never do both hold a lock that is in force."""
    log_dir = scratch / "data"
    log_dir.mkdir(parents=True)
    with _broker(log_dir) as send:
        assert send("start")() == "held"  # The JVM is warm.
        assert send("stop")() == "stopped"
        broker_runs = False
        for number in range(count):
            answer = send("stop" if broker_runs else "start")
            _spin(chance.random() * 0.0004)
            try:
                with log_dir_lock(log_dir) as lock:
                    said = answer()
                    if broker_runs:
                        # It has stopped. The next one must not start while the lock is in force.
                        holds = lock.is_in_force() and send("start")() == "held"
                        broker_runs = holds
                    else:
                        holds = broker_runs = said == "held"
                    if holds and lock.is_in_force():
                        tally.fail(f"lock race {number}: a broker and kcompact hold the lock")
                    tally.count("locks: kcompact holds")
            except (LogDirLockedError, LogChangedError):
                broker_runs = answer() == "held"
                tally.count("locks: the broker holds")
        if broker_runs:
            send("stop")()


def _spin(duration_s: float) -> None:
    end = time.perf_counter() + duration_s
    while time.perf_counter() < end:
        pass


# Two runs


def _together(*actions: Callable[[], int]) -> list[int]:
    """Run the actions at the same time in forked children, and return their exit codes."""
    children = []
    start = time.monotonic() + 0.01
    for action in actions:
        child = os.fork()
        if child == 0:
            code = 99
            with contextlib.suppress(BaseException):
                _spin(max(0.0, start - time.monotonic()))
                code = action()
            os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _cleaned(log_dir: Path, delay_s: float, output: Path | None = None) -> int:
    _spin(delay_s)
    try:
        options = CleanOptions(output=None if output is None else str(output))
        return clean_log_dir(log_dir, POLICY, plan_options=PLAN, options=options).exit_code
    except KcompactError as problem:
        return problem.exit_code


def _runs(scratch: Path, count: int, chance: random.Random, tally: Tally) -> None:
    for number in range(count):
        log_dir = scratch / str(number)
        directory = partition(log_dir)
        delays = chance.random() * 0.1, chance.random() * 0.1
        codes = _together(*(partial(_cleaned, log_dir, delay_s) for delay_s in delays))
        if not set(codes) <= {0, 5} or values(directory) != COMPACTED or any(log_dir.glob(STAGING)):
            tally.fail(f"two cleanings {number} after {delays}: exit codes {codes}, {names(directory)}")
        else:
            tally.count(f"cleanings: {' and '.join(map(str, sorted(codes)))}")
        shutil.rmtree(log_dir)


def _outputs(scratch: Path, count: int, chance: random.Random, tally: Tally) -> None:
    for number in range(count):
        log_dir, output = scratch / f"{number}-data", scratch / f"{number}-out"
        directory = partition(log_dir)
        before = digest(directory)
        delays = chance.random() * 0.03, chance.random() * 0.03
        codes = _together(*(partial(_cleaned, directory, delay_s, output) for delay_s in delays))
        copy = output / directory.name
        problem = ""
        if digest(directory) != before:
            problem = "the source has changed"
        elif 0 not in codes or 99 in codes:
            problem = "no run, or a broken one"
        elif not copy.is_dir() or values(copy) != COMPACTED or (output / ".kcompact-copy").exists():
            problem = "the copy is not complete"
        if problem:
            tally.fail(f"two copies {number} after {delays}: {problem}, exit codes {codes}")
        else:
            tally.count(f"copies: {' and '.join(map(str, sorted(codes)))}")
        shutil.rmtree(log_dir)
        shutil.rmtree(output, ignore_errors=True)


# Other programs


def _append(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(bytes(61))


def _replace(file: Path) -> None:
    other = file.with_name("other")
    shutil.copy2(file, other)
    other.rename(file)


CHANGES: dict[str, Callable[[Path], object]] = {
    "append": _append,
    "truncate": lambda file: os.truncate(file, file.stat().st_size // 2),
    "remove": Path.unlink,
    "replace": _replace,
    "touch": os.utime,
}
STAGES = (
    (InProcess, "scan_and_reduce"),
    (InProcess, "run"),
    (cleaning, "carry_over"),
    (cleaning, "write_manifest"),
)
"""Before each of them, another program changes a file."""


def _changes(scratch: Path, share: float, chance: random.Random, tally: Tally) -> None:
    turns = list(itertools.product(STAGES, CHANGES, (LOG0, LOG3, LOG6)))
    for (owner, stage), change, name in chance.sample(turns, max(1, round(len(turns) * share))):
        log_dir = scratch / f"{stage}-{change}-{name}"
        directory = partition(log_dir)
        with _changed_before(owner, stage, partial(CHANGES[change], directory / name), directory) as after:
            code = _cleaned(log_dir, 0.0)
        if code == 0 or digest(directory) != after[0]:
            tally.fail(f"{change} {name} before {stage}: exit code {code}, {names(directory)}")
        else:
            tally.count(f"changes: exit code {code}")


@contextlib.contextmanager
def _changed_before(
    owner: Any, stage: str, change: Callable[[], object], directory: Path
) -> Iterator[list[dict[str, str]]]:
    """Call `change` before the first call of a stage; yield a list that gets the directory's digest after it."""
    after: list[dict[str, str]] = []
    real = getattr(owner, stage)

    def changed(*arguments: Any, **options: Any) -> Any:
        if not after:
            change()
            after.append({file: text for file, text in digest(directory).items() if ".kcompact-" not in file})
        return real(*arguments, **options)

    setattr(owner, stage, changed)
    try:
        yield after
    finally:
        setattr(owner, stage, real)


# Signals


COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("verify",),
    "plan": ("plan", *COMPACT),
    "dry run": ("clean", "--engine", "in-process", "--dry-run", *COMPACT),
    "clean": ("clean", "--engine", "in-process", *COMPACT),
    "output": ("clean", "--engine", "in-process", *COMPACT, "--output", "OUT"),
    "recover": ("recover",),
}
MANY, FEW = 300, 20
"""The number of partitions for `plan`, and for the other commands."""


def _signals(scratch: Path, turns: int, chance: random.Random, tally: Tally) -> None:
    old = values(partition(scratch / "one"))
    models = {number: _model(scratch / f"model-{number}", number) for number in (MANY, FEW)}
    for name, arguments in COMMANDS.items():
        model = models[MANY if name == "plan" else FEW]
        longest_s = 0.0
        for number in range(1 + turns * len(SIGNALS)):
            turn = scratch / "turn"
            shutil.copytree(model, turn / "data")
            (turn / "tmp").mkdir()
            if name == "recover":
                for directory in (turn / "data").glob("orders-*"):
                    (directory / ".kcompact-0123456789abcdef").mkdir(mode=0o700)
            sent = SIGNALS[number % len(SIGNALS)]
            delay_s = None if number == 0 else chance.random() * longest_s
            code, error, took_s = _with_signals(turn, arguments, [(delay_s, sent)])
            what = f"{sent.name} after {delay_s} s of {name}"
            if number == 0:
                longest_s = took_s
                if code:
                    tally.fail(f"{name} without a signal: exit code {code}, {error}")
            else:
                _judge(what, code, error, sent, tally)
            _judge_files(what, turn, old, tally, is_recovered=name != "recover")
            shutil.rmtree(turn)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _model(log_dir: Path, count: int) -> Path:
    first = partition(log_dir, settings("name=orders-0", DIRTY))
    for number in range(1, count):
        shutil.copytree(first, log_dir / f"orders-{number}")
    return log_dir


def _with_signals(
    turn: Path, arguments: Sequence[str], signals: Sequence[tuple[float | None, signal.Signals]]
) -> tuple[int, str, float]:
    """Run a command with a signal after each delay; return its exit code, its standard error and its duration."""
    words = [str(turn / "out") if word == "OUT" else word for word in arguments]
    started = time.monotonic()
    with (turn / "errors").open("w+") as errors:
        process = subprocess.Popen(
            command(*words, turn / "data"),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**environment(), "TMPDIR": str(turn / "tmp")},
            preexec_fn=_with_default_signals,
        )
        try:
            for delay_s, sent in signals:
                if delay_s is not None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(delay_s)
                    process.send_signal(sent)
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = 98
        took_s = time.monotonic() - started
        errors.seek(0)
        return code, errors.read(), took_s


def _with_default_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _judge(what: str, code: int, error: str, sent: signal.Signals, tally: Tally) -> None:
    if "Fatal Python error" in error or ("Traceback" in error and "kcompact/__main__.py" not in error):
        tally.count("signals: before the first line of kcompact")  # There the interpreter prints what it likes.
    elif "Traceback" in error:
        tally.fail(f"{what}: {error}")
    elif code == 0:
        tally.count("signals: too late")
    elif code in (128 + sent, -sent):
        tally.count(f"signals: {128 + sent}")
    else:
        tally.fail(f"{what}: exit code {code}, {error}")


def _judge_files(
    what: str, turn: Path, old: dict[int, Any], tally: Tally, *, is_recovered: bool, is_swapped: bool = True
) -> None:
    if left := names(turn / "tmp"):
        tally.fail(f"{what}: {left} in TMPDIR")
    for directory in (turn / "data").glob("orders-*"):
        temporary = [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
        staging = is_recovered and any(directory.glob(".kcompact-*"))
        if is_swapped and (temporary or staging):
            tally.fail(f"{what}: {names(directory)}")
        elif is_swapped and values(directory) not in (old, COMPACTED):
            tally.fail(f"{what}: {directory.name} is neither old nor new")


def _second_ctrl_c(scratch: Path, turns: int, chance: random.Random, tally: Tally) -> None:
    """Two Ctrl-C at any time of a cleaning on Spark: no scratch, no JVM, and recovery gives old or new partitions."""
    old = values(partition(scratch / "one"))
    model = _model(scratch / "model", FEW)
    for _ in range(turns):
        turn = scratch / "turn"
        shutil.copytree(model, turn / "data")
        (turn / "tmp").mkdir()
        first, second = chance.random() * 6, chance.random() * 0.5
        what = f"Ctrl-C after {first} s and again after {second} s of a cleaning on Spark"
        arguments = ("clean", "--master", "local[1]", *COMPACT)
        code, error, _ = _with_signals(turn, arguments, [(first, signal.SIGINT), (second, signal.SIGINT)])
        _judge(what, code, error, signal.SIGINT, tally)
        if not becomes(functools.partial(_has_no_java, turn / "tmp")):
            tally.fail(f"{what}: a JVM is left")
        _judge_files(what, turn, old, tally, is_recovered=False, is_swapped=False)
        recovered, error, _ = _with_signals(turn, ("recover",), [(None, signal.SIGINT)])
        if recovered:
            tally.fail(f"{what}: recover ended with {recovered}, {error}")
        _judge_files(what, turn, old, tally, is_recovered=True)
        shutil.rmtree(turn)


def _has_no_java(directory: Path) -> bool:
    """Return whether no process has a path below a directory in its command line."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in (process / "cmdline").read_bytes():
                return False
    return True
