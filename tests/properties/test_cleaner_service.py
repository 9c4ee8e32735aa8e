"""What `Cleaner` promises holds whatever happens: calls at once, failing system calls, lost locks, moved directories.

Each step lets logs grow, so that they are cleaned, lets a thread of the service wait before one of its system calls,
does things beside, and lets the thread go on. The threads are real: what is checked holds for every order of events.
"""

from __future__ import annotations

import errno
import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.service import Cleaner, CleanerThread
from kcompact.cleaner.states import StateKind
from kcompact.errors import KcompactError
from tests.support.command_line import digest
from tests.support.contested_log_dirs import DEEDS, ContestedLogDirs
from tests.support.gated_calls import CALLS, START, Fault, GatedCalls
from tests.support.known_log import KnownLog
from tests.support.log_writer import DEFAULT_TIME
from tests.support.parameters import few_examples
from tests.support.patience import PATIENCE_S, becomes

STEPS = 8
LOOK_S = 0.001
CHANGES = ("rename", "unlink", "rmdir", "mkdir", "write", "fsync", START)
API = ("startup", "shutdown", "restart", "pause", "resume", "abort", "forget", "wait", "truncate")
CONFIG = {
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "3",
    "retention.ms": "-1",
    "log.cleaner.backoff.ms": "2",
}


@dataclass(frozen=True, slots=True)
class Step:
    """The logs of the numbers `which` grow; the first is that of the deed and of the calls, which are made at once.

    A thread waits before its call number `wait_at` (0: none does). The next `on_cleaned` makes the call `callback`.
    """

    which: Sequence[int]
    added: str
    cut: bool
    deletes: bool
    wait_at: int
    fault: Fault | None
    callback: str
    deed: str
    calls: Sequence[str]

    @staticmethod
    def thrown(dice: random.Random) -> Step:
        """Return any step. A cleaning takes the calls from about 60 to 250 after a log has grown."""
        name = dice.choice(CHANGES if dice.random() < 0.6 else (*CALLS, START))
        number = dice.choice((errno.EIO, CALLS.get(name, errno.EAGAIN)))
        fault = Fault(name, number, dice.randrange(dice.choice((3, 12))), dice.random() < 0.3)
        return Step(
            which=dice.sample(range(3), dice.randint(1, 2)),
            added="".join(dice.choices("abcABC", k=dice.randint(1, 3))),
            cut=dice.random() < 0.5,
            deletes=dice.random() < 0.2,
            wait_at=dice.choice((0, dice.randint(1, 60), *(dice.randint(60, 260) for _ in range(4)))),
            fault=fault if dice.random() < 0.6 else None,
            callback=dice.choice(("", "raise", *API)),
            deed=dice.choice(DEEDS) if dice.random() < 0.3 else "",
            calls=dice.choices((*API, "shutdown", "truncate"), k=dice.choice((0, 1, 2, 2, 3))),
        )


class Scene:
    """A service, and what it must do."""

    def __init__(self, dice: random.Random) -> None:
        self.dirs = ContestedLogDirs(Path(tempfile.mkdtemp()))
        self.calls = GatedCalls(("kcompact", "caller"), "kcompact")
        clock = itertools.count(DEFAULT_TIME + 3_600_000)
        deletes = dice.random() < 0.5
        policy, threads = "compact,delete" if deletes else "compact", str(dice.randint(1, 2))
        self.cleaner = Cleaner(
            self.dirs.log_dirs,
            {**CONFIG, "cleanup.policy": policy, "log.cleaner.threads": threads},
            clock=lambda: next(clock),
            options=CleanOptions(apply_retention=deletes),
            on_cleaned=self.on_cleaned,
        )
        self.pauses = dict.fromkeys(self.dirs.logs, 0)
        self.guard = threading.Lock()
        self.callback, self.no_callback = "", threading.Event()
        self.no_callback.set()
        self.has_raised: list[threading.Thread] = []
        self.problems: list[BaseException] = []
        self.may_start = True
        self.still: dict[str, str] | None = None

    # --- Calls

    def call(self, name: str, log: KnownLog) -> None:
        """Make one call of the service. Raises KcompactError."""
        cleaner, partition = self.cleaner, log.partition
        if name in ("shutdown", "restart"):
            cleaner.shutdown()
            with self.calls.by_the_test(), self.guard:
                if not self.may_start:
                    assert not self.dirs.locked(), "locks after a shutdown"
                    self.still = self.still or digest(self.dirs.root)
        if name in ("startup", "restart"):
            cleaner.startup()
            self.dirs.replaced = {}
        if name == "pause":
            cleaner.abort_and_pause_cleaning(partition)
            self.pauses[log] += 1
        if name == "resume" and self.pauses[log]:
            self.pauses[log] -= 1
            cleaner.resume_cleaning([partition])
        if name == "abort":
            cleaner.abort_cleaning(partition)
        if name == "forget":
            cleaner.forget_uncleanable(partition)
        if name == "wait":
            cleaner.await_cleaned(partition, log.base, 0.01)
        if name == "truncate":
            with cleaner.truncating(partition, 0), self.calls.by_the_test():
                assert not cleaner.checkpoint_of(partition) or not self.dirs.is_original(log.log_dir)

    def on_cleaned(self, result: CleanResult) -> None:
        with self.guard:
            name, self.callback = self.callback, ""
            if name:
                self.no_callback.clear()
        if name == "raise":
            self.has_raised.append(threading.current_thread())
            self.no_callback.set()
            raise ZeroDivisionError
        if name:
            (log,) = [log for log in self.dirs.logs if log.name == result.directory.name]
            self.caught(partial(self.call, name, log))
            self.no_callback.set()

    def caught(self, action: Callable[[], None]) -> None:
        """Keep what a call must not raise for the end of the step."""
        try:
            action()
        except KcompactError:
            pass
        except BaseException as problem:
            if not str(problem).startswith("can't start"):
                self.problems.append(problem)

    def at_once(self, *actions: Callable[[], None], head_start_s: float = 0.01) -> None:
        """Call from a thread each, while the gate is closed, then open it if one waits, until all have returned."""
        threads = [threading.Thread(target=self.caught, args=[action], name="caller") for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(head_start_s)  # Enough for a call that does not wait for the service.
        if any(thread.is_alive() for thread in threads):
            self.calls.open()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a call does not return"

    # --- A step

    def step(self, step: Step) -> None:
        logs = [self.dirs.logs[number] for number in step.which]
        self.may_start = bool({"startup", "restart"} & {*step.calls, step.callback})
        for log in reversed(logs):
            self.grow(log, step)
        if step.wait_at:
            assert becomes(lambda: self.calls.reached.is_set() or not self.is_alive(), look_every_s=LOOK_S)
        with self.guard:
            self.dirs.do(step.deed, logs[0])
            if self.may_start or not self.cleaner._is_running:
                self.still = None
        self.at_once(*[partial(self.call, name, logs[0]) for name in step.calls])
        self.calls.open()
        self.await_settled()
        with self.guard:
            self.callback = ""
        assert self.no_callback.wait(PATIENCE_S)
        self.calls.disarm()
        self.check()
        assert becomes(self.is_mended, look_every_s=LOOK_S), self.cleaner.uncleanable_partitions

    def grow(self, log: KnownLog, step: Step) -> None:
        """Let a log grow, truncated before or not, if it is in its place. The last one arms the calls."""
        kept = max(0, len(log.active) - step.cut)
        offset = log.base // 2 if step.cut else log.base + kept  # One that is too low only costs work.
        is_last = log is self.dirs.logs[step.which[0]]

        def change() -> None:
            log.change(kept, step.added, deletes=step.deletes)
            if is_last:  # Before the service may begin with the log.
                self.arm(step)

        def truncate() -> None:
            with self.cleaner.truncating(log.partition, offset), self.calls.by_the_test():
                assert (self.cleaner.checkpoint_of(log.partition) or 0) <= offset
                change()

        self.calls.disarm()
        if self.dirs.has(log):
            self.at_once(truncate, head_start_s=0.2) if self.cleaner._is_running else change()
        if is_last and not self.calls.is_armed:
            self.arm(step)

    def arm(self, step: Step) -> None:
        self.callback = step.callback
        self.calls.arm(step.fault, step.wait_at)

    def mend(self) -> None:
        """Undo what was done to the directories, start anew, and require that everything is cleaned."""
        self.may_start = False
        self.at_once(partial(self.call, "shutdown", self.dirs.logs[0]))
        self.check()
        self.dirs.mend()
        self.still = None
        with self.cleaner:
            for log, pauses in self.pauses.items():
                self.cleaner.resume_cleaning([log.partition] * pauses)
                self.pauses[log] = 0
            self.await_settled()
            self.check()
            assert (self.cleaner.uncleanable_partitions, self.cleaner.offline_log_dirs) == ({}, {})
        self.check()

    # --- What must be so

    def is_alive(self) -> bool:
        return self.cleaner._is_running and len(self.cleaner.thread_failures) < len(self.cleaner._threads)

    def is_settled(self) -> bool:
        return all(map(self.is_done, self.dirs.logs))

    def is_done(self, log: KnownLog) -> bool:
        """Return whether a log is cleaned, or is named, or is paused, or is not there."""
        cleaner = self.cleaner
        if cleaner.state_of(log.partition).kind is StateKind.PAUSED or log.log_dir in cleaner.offline_log_dirs:
            return True
        if log.partition in cleaner.uncleanable_partitions:
            return True
        if not self.dirs.has(log):
            return log.log_dir.is_dir() and log.log_dir not in self.dirs.replaced
        return max(cleaner.checkpoint_of(log.partition) or 0, log.start) >= log.base

    def await_settled(self) -> None:
        is_over = becomes(lambda: not self.is_alive() or self.is_settled(), look_every_s=LOOK_S)
        assert is_over, "neither cleaned nor named"

    def check(self) -> None:
        """Require what holds as long as nobody does anything."""
        for problem in self.problems:
            raise problem
        cleaner = self.cleaner
        if cleaner._is_running:
            ended = [thread for thread in cleaner._threads if thread in self.has_raised]
            assert becomes(lambda: len(cleaner.thread_failures) >= len(ended), look_every_s=LOOK_S)
            assert len(cleaner.thread_failures) == len(ended), cleaner.thread_failures
            assert self.dirs.locked() == [log_dir.name for log_dir in self.dirs.log_dirs]
        else:
            for thread in threading.enumerate():
                if isinstance(thread, CleanerThread):
                    thread.join(PATIENCE_S)
                    assert not thread.is_alive(), "a thread after a shutdown"
            assert not self.dirs.open_files()
            self.still = self.still or digest(self.dirs.root)
            assert digest(self.dirs.root) == self.still, "changed after a shutdown"
        for log_dir, expected in self.dirs.replaced.items():
            assert digest(log_dir) == expected, "changed without its lock"
        for log in self.dirs.logs:
            is_interrupted = log.partition in cleaner.uncleanable_partitions or any(log.directory.glob(".kcompact-*"))
            if self.dirs.has(log) and not is_interrupted:
                self.at_once(partial(cleaner.abort_and_pause_cleaning, log.partition))
                log.check()
                self.at_once(partial(cleaner.resume_cleaning, [log.partition]))

    def is_mended(self) -> bool:
        """Forget the uncleanable partitions, and return whether only those without a lock are uncleanable again.

        A staging directory that a fault has left may be found later, so more than one call may be necessary.
        """
        self.cleaner.forget_uncleanable()
        self.await_settled()
        named = self.cleaner.uncleanable_partitions.values() if self.is_alive() else ()
        return not any(self.cleaner._locks[each.directory.parent].is_in_force() for each in named)


@few_examples()
@given(st.integers(0, 2**32))
def test_the_service_keeps_its_promises(seed: int) -> None:
    dice = random.Random(seed)
    scene = Scene(dice)
    with ExitStack() as stack:
        stack.callback(scene.dirs.close)
        stack.callback(scene.cleaner.shutdown)
        stack.enter_context(scene.calls.watched(CleanerThread))
        stack.callback(scene.calls.disarm)
        for number in range(STEPS):
            if number == STEPS // 2:
                scene.mend()
            if not scene.cleaner._is_running and dice.random() < 0.8:
                scene.still = None
                scene.caught(partial(scene.call, "startup", scene.dirs.logs[0]))
            scene.step(Step.thrown(dice))
        scene.mend()
