"""The process dies by SIGKILL at every call: of a cleaning, of a recovery, of retention, between waves, of a copy.

After each kill Kafka's own loader judges what is left, with and without the clean-shutdown marker. Then kcompact runs
again, must succeed and leave nothing behind, and Kafka judges the result. Most kills hit forked children, through
`system_calls`; others hit the real command, through `strace`. `strace` also shows that no call escapes `system_calls`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kcompact.cleaner import space
from kcompact.config.settings import LONG_MAX
from kcompact.log.lock import log_dir_lock
from kcompact.swap.copy.marker import MARKER
from kcompact.swap.recovery.interrupted_round import recover
from tests.oracle.driver import build
from tests.oracle.real_kafka import RealKafka
from tests.support.command_line import IMPORTED_FROM, digest, environment
from tests.support.copies import read_files
from tests.support.crash import clone
from tests.torture import scene
from tests.torture.children import KILLED, in_child, one_core, scratch, side_by_side
from tests.torture.judge import Judge, checkpoint_problems
from tests.torture.system_calls import Call, killed_at, observed
from tests.torture.tally import Tally

PAIRS = 2_000
COMMANDS = 200
"""At share 1: kills of a recovery that follows a kill, and kills of the real command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A kill. `name` is that of a run in RUNS, or `command`; `number` is that of the call.

    `recoveries` are the calls of a recovery at which that is killed too. Of a command, `call` is the name of the system
    call and `number` its occurrence.
    """

    name: str
    number: int
    after: bool = False
    recoveries: int = 0
    call: str = ""

    def __str__(self) -> str:
        return f"{self.name} killed {'after' if self.after else 'before'} call {self.call} {self.number}"


Run = Callable[[Path], str]
"""What is done to the log directory `logs` in a directory; returns the problem."""

# --- The runs -------------------------------------------------------------------------------------------


def _clean(home: Path, **options: Any) -> str:
    """Clean the log directory in `home`; return the problem."""
    result = scene.clean(home / "logs", **options)
    failed = [f"{each.directory.name}: {each.error}" for each in result.partitions if each.error is not None]
    return "; ".join(failed) or (f"exit code {result.exit_code}" if result.exit_code else "")


@contextmanager
def _free(blocks: int) -> Iterator[None]:
    """Let each disk seem to have so many free blocks of 512 bytes."""
    status = SimpleNamespace(f_bavail=blocks, f_frsize=512, f_flag=0)
    with mock.patch.object(os, "statvfs", return_value=status):
        yield


def _clean_in_waves(home: Path, blocks: int) -> str:
    """Clean on a disk that seems to have so little room that each group needs a wave of its own."""
    with _free(blocks):
        return _clean(home)


def _clean_descending(home: Path) -> str:
    """Clean the last group first, as on a nearly full disk. No horizons are set, so no group has to wait."""

    def descending(self: space._Sizes, numbers: Sequence[int], *_: object, **__: object) -> list[int]:
        return sorted(numbers, reverse=True)

    with _free(0), mock.patch.object(space._Sizes, "order", descending):
        return _clean(home, config=scene.CONFIG | {"delete.retention.ms": str(LONG_MAX)})


def _recover(home: Path) -> str:
    with log_dir_lock(home / "logs"):
        for name in (scene.ORDERS, scene.PRICES):
            recover(home / "logs" / name, log_dir=home / "logs")
    return ""


def _runs(blocks: int) -> dict[str, Run]:
    """Return the runs by their names; `blocks` is the free space for cleaning in waves."""
    return {
        "clean": _clean,
        "waves": partial(_clean_in_waves, blocks=blocks),
        "descending": _clean_descending,
        "retention": partial(_clean, config=scene.EXPIRING, apply_retention=True),
        "output": lambda home: _clean(home, output=home / "output"),
    }


def _calls_of(run: Run, home: Path) -> list[Call]:
    """Run to the end, and return the calls that change something."""
    calls: list[Call] = []
    with observed([home], calls.append, lambda call: None):
        problem = run(home)
    assert not problem, problem
    return calls


# --- Trials ---------------------------------------------------------------------------------------------


class _Trials:
    """The trials of one process: a judge, the runs, and the directory for them."""

    def __init__(self, original: Path, home: Path, judge: Judge, runs: Mapping[str, Run]) -> None:
        self._original = original
        self._home = home
        self._judge = judge
        self._runs = runs
        self._source = digest(original)
        self._dice = random.Random(str(home))
        self.tally = Tally()

    def run(self, trial: Trial) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.copytree(self._original, self._home / "logs")
        if trial.name == "command":
            killed = _run_command(self._home / "logs", trial.call, trial.number) == -9
            problem = "" if killed else KILLED
        else:
            run = self._runs[trial.name]

            def act() -> str:
                with killed_at([self._home], trial.number, after=trial.after):
                    return run(self._home)

            problem = in_child(act)
            killed = problem == KILLED
        if not killed:
            if trial.name == "command":
                self.tally.count("commands that ended before the call")
            else:
                self.tally.fail(f"{trial}: not killed: {problem}")
            return
        self.tally.count(f"kills of {trial.name}")
        self._judge_killed(trial)
        if trial.recoveries:
            self._kill_recoveries(trial)
        else:
            self._run_again(
                str(trial),
                self._runs[trial.name if trial.name in ("retention", "output") else "clean"],
                self._home,
                trial.name,
            )

    def _judge_killed(self, trial: Trial) -> None:
        logs, output = self._home / "logs", self._home / "output"
        if trial.name != "output":
            files = read_files(logs)
            self._require(str(trial), list(checkpoint_problems(files)))
            self._require(str(trial), self._judge.problems(files, self._log_starts(trial.name)))
        else:
            if digest(logs) != self._source:
                self.tally.fail(f"{trial}: the source was changed")
            if output.exists() and any(path.name != ".lock" for path in output.iterdir()):
                if (output / MARKER).exists():
                    if not self._judge.refuses(output):
                        self.tally.fail(f"{trial}: a broker starts on the unfinished copy")
                else:
                    self._require(f"{trial}: unmarked copy", self._judge.problems(read_files(output)))

    @staticmethod
    def _log_starts(name: str) -> tuple[int, ...]:
        return tuple(scene.CLEANED_BASES[scene.ORDERS]) if name == "retention" else (0,)

    def _run_again(self, what: str, run: Run, home: Path, name: str) -> None:
        problem = in_child(lambda: run(home))
        result = home / ("output" if name == "output" else "logs")
        if name == "output" and "is left of a copy that is finished" in problem:
            shutil.rmtree(result / MARKER)  # As the message says.
        elif problem and not (name == "output" and "is not empty" in problem and not (result / MARKER).exists()):
            self.tally.fail(f"{what}: the next run: {problem}")
            return
        self._require(f"{what}: after the next run", self._judge.problems(read_files(result), self._log_starts(name)))
        # What retention has set aside stays until a broker starts, as after a broker that was killed.
        unfinished = r"\.(cleaned|swap|tmp)$|\.kcompact-" + ("" if name == "retention" else r"|\.deleted$")
        left = [path for path in result.rglob("*") if re.search(unfinished, path.name)]
        if left:
            self.tally.fail(f"{what}: the next run left {left[0].name}")
        # Both entries are in one bucket of Kafka's map: the one that recovery has written comes first.
        written = (result / scene.CHECKPOINT_NAME).read_text()
        if sorted(written.splitlines()) != sorted(scene.CHECKPOINT.splitlines()):
            self.tally.fail(f"{what}: the checkpoint after the next run")

    def _kill_recoveries(self, trial: Trial) -> None:
        """Kill recoveries of the state at chosen calls; then recover to the end, and clean."""
        state = self._home.with_name(self._home.name + "-state")
        shutil.rmtree(state, ignore_errors=True)
        self._home.rename(state)
        clone(state, self._home)
        counted = in_child(lambda: str(len(_calls_of(_recover, self._home))))
        if not counted.isdigit():
            self.tally.fail(f"{trial}: its recovery: {counted}")
            return
        count = int(counted)
        for number in sorted(self._dice.sample(range(count), min(count, trial.recoveries))):
            what = f"{trial}, and its recovery before call {number}"
            shutil.rmtree(self._home)
            clone(state, self._home)

            def act(number: int = number) -> str:
                with killed_at([self._home], number):
                    return _recover(self._home)

            problem = in_child(act)
            if problem != KILLED:
                self.tally.fail(f"{what}: not killed: {problem}")
                continue
            self.tally.count("kills of its recovery")
            self._judge_killed(trial)
            self._run_again(what, _clean, self._home, "clean")

    def _require(self, what: str, problems: Sequence[str]) -> None:
        for problem in problems[:1]:
            self.tally.fail(f"{what}: {problem}")


def _work(original: Path, work: Path, blocks: int, trials: Sequence[Trial]) -> Tally:
    home = work / f"home-{os.getpid()}"
    with Judge(original, work) as judge:
        done = _Trials(original, home, judge, _runs(blocks))
        for trial in trials:
            done.run(trial)
        done.tally.count("states in Kafka", judge.states)
        done.tally.count("loads", judge.loads)
        return done.tally


# --- The real command -----------------------------------------------------------------------------------

STRACED = {
    "openat": "open",
    "renameat": "rename",
    "renameat2": "rename",
    "rename": "rename",
    "unlinkat": "unlink",
    "unlink": "unlink",
    "rmdir": "rmdir",
    "mkdirat": "mkdir",
    "mkdir": "mkdir",
    "utimensat": "utime",
    "fsetxattr": "setxattr",
    "setxattr": "setxattr",
    "fremovexattr": "removexattr",
    "fchown": "chown",
    "fchownat": "chown",
    "fchmod": "chmod",
    "fchmodat": "chmod",
    "chmod": "chmod",
    "fallocate": "posix_fallocate",
    "pwrite64": "pwrite",
    **{
        name: name
        for name in (
            *(
                "write",
                "writev",
                "pwritev",
                "pwritev2",
                "ftruncate",
                "truncate",
                "copy_file_range",
                "sendfile",
                "splice",
            ),
            *("fsync", "fdatasync", "sync_file_range", "link", "linkat", "symlink", "symlinkat", "io_uring_setup"),
        )
    },
}
"""System calls that change a file, and the name in `os` of what makes them."""
SAME_CALL = {"replace": "rename", "remove": "unlink", "fchmod": "chmod", "fchown": "chown"}
WRITES = ("write", "writev", "pwrite64", "pwritev")
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")


def _command(log_dir: Path) -> list[str]:
    config = [part for name, value in scene.CONFIG.items() for part in ("--config", f"{name}={value}")]
    options = ["--engine", "in-process", "--yes", "--force", "--quiet", *config, "--now", str(scene.NOW_MS)]
    return [os.path.realpath(sys.executable), "-m", "kcompact", "clean", *options, str(log_dir)]


def _run_command(log_dir: Path, call: str, occurrence: int) -> int:
    """Run the real command, killed before an occurrence of a system call; return its exit code."""
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    inject += ["-e", f"inject={call}:signal=KILL:when={occurrence}"]
    return subprocess.run(
        [*inject, *_command(log_dir)], env=_environment(), capture_output=True, check=False
    ).returncode


def _environment() -> dict[str, str]:
    # The real interpreter does not find the packages of a virtual environment by itself.
    packages = sysconfig.get_paths()["purelib"]
    return environment() | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{IMPORTED_FROM}{os.pathsep}{packages}"}


def _straced(log_dir: Path, output: Path) -> Iterator[tuple[str, int, str]]:
    """Run the real command under `strace` to its end; yield the calls that change the log directory, in order.

    Of each: the system call, which occurrence of it in its thread that is, and `name` and path as `Call` has them.
    """
    trace = ["strace", "-f", "-y", "-qq", "-s", "4096", "-o", str(output), "-e", f"trace={','.join(STRACED)}"]
    done = subprocess.run([*trace, *_command(log_dir)], env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen: Counter[tuple[str, str]] = Counter()
    for line in output.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        thread, call, rest = match.groups()
        seen[thread, call] += 1
        # What is written to the journal names the directory too.
        place = rest.partition(">")[0] if call in WRITES else rest
        if str(log_dir) not in place or (call == "openat" and not re.search("O_CREAT|O_TRUNC", rest)):
            continue
        name = "rmdir" if "AT_REMOVEDIR" in rest else STRACED[call]
        yield call, seen[thread, call], name


def _escaped(original: Path, work: Path, tally: Tally) -> list[Trial]:
    """Compare what strace sees of the command with what `system_calls` sees; return a trial for each call."""
    for name in ("shim", "strace"):
        shutil.copytree(original, work / name / "logs")
    with one_core():  # One thread writes; strace counts the calls of each thread by themselves.
        calls = _calls_of(_clean, work / "shim")
        straced = list(_straced(work / "strace" / "logs", work / "trace"))
    for name in ("shim", "strace"):
        assert (work / name / "logs" / scene.CHECKPOINT_NAME).read_text() == scene.CHECKPOINT
        assert not list(checkpoint_problems(read_files(work / name / "logs")))
    by_shim = Counter(SAME_CALL.get(call.name, call.name) for call in calls)
    by_strace = Counter(name for _, _, name in straced)
    for name in sorted(by_strace.keys() | by_shim.keys()):
        if by_strace[name] != by_shim[name]:
            tally.fail(f"strace sees {by_strace[name]} calls of {name}, system_calls {by_shim[name]}")
    tally.count("calls seen by strace and by system_calls", len(straced))
    return [Trial(name="command", call=call, number=number) for call, number, _ in straced]


# --- The part -------------------------------------------------------------------------------------------


def run(*, share: float, seed: int) -> Tally:
    """Run a share of all trials."""
    build()
    dice, tally = random.Random(seed), Tally()
    with scratch() as work:
        original = work / "original"
        with RealKafka() as kafka:
            scene.write(kafka, original)
        blocks = _blocks_for_waves(original, work)
        trials = _sample(dice, _escaped(original, work, tally), COMMANDS * share)
        counts = {name: _count(one, original, work / f"count-{name}") for name, one in _runs(blocks).items()}
        if not counts["clean"] < counts["waves"] <= counts["descending"]:  # Each wave writes its own manifest.
            tally.fail(f"no waves with {blocks} blocks")
        for name, count in counts.items():
            numbers = range(count)
            kills = [Trial(name=name, number=number) for number in numbers]
            if name == "clean":
                kills += [Trial(name=name, number=number, after=True) for number in numbers]
            trials += _sample(dice, kills, len(kills) * share)
            if name == "clean":
                # The first calls take the lock; there is nothing to recover then.
                killed = [
                    Trial(name=name, number=number, recoveries=-(-PAIRS // len(numbers)) + 1) for number in numbers
                ]
                trials += _sample(dice, killed[4:], len(killed) * share)
        dice.shuffle(trials)  # So that both processes have the same amount of work.
        done = side_by_side(partial(_work, original, work, blocks), trials)
    done.outcomes.update(tally.outcomes)
    done.failures += tally.failures
    return done


def _count(run: Run, original: Path, home: Path) -> int:
    """Return the number of calls of a run."""
    shutil.copytree(original, home / "logs")
    with one_core():
        return int(in_child(lambda: str(len(_calls_of(run, home)))))


def _blocks_for_waves(original: Path, work: Path) -> int:
    """Return the least free space, in blocks, with which the log directory can be cleaned."""
    low, high = 1, 1000
    while low < high:
        middle = (low + high) // 2
        shutil.copytree(original, work / "waves" / "logs")
        fails = in_child(lambda middle=middle: _clean_in_waves(work / "waves", middle))  # type: ignore[misc]
        shutil.rmtree(work / "waves")
        low, high = (middle + 1, high) if fails else (low, middle)
    return low


def _sample(dice: random.Random, trials: Sequence[Trial], count: float) -> list[Trial]:
    return dice.sample(trials, min(len(trials), max(1, round(count))))
