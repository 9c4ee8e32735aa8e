"""Every call to the system fails, once and for good, in whole runs of `clean`, retention, copies and `recover`.

Each run is a forked child of this process. After it, partitions are untouched or cleaned group by group, the exit code
is that of the table in `docs/cli.md`, and the message names the cause. Then kcompact runs again without faults: it must
succeed, leave nothing behind, and a reader that shares no code with kcompact must find the records that were there.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.support.crash import clone
from tests.torture import full_disks, spark_errors
from tests.torture.children import one_core, scratch, side_by_side
from tests.torture.faults import (
    ERRORS,
    KERNEL,
    KINDS,
    LISTS,
    LOCK_QUESTION,
    NO_BYTES,
    OTHER_BYTES,
    READS,
    REPORT,
    STATUS,
    Call,
    Fault,
    can_happen,
)
from tests.torture.faulty_runs import (
    RECOVER,
    Ran,
    Scene,
    load_everything,
    prepare_scene,
    remove,
    scenes,
    state_problems,
    view_problems,
)
from tests.torture.faulty_runs import (
    run as run_command,
)
from tests.torture.plain_reader import contents
from tests.torture.tally import Tally

RUNS = 2_600
"""At share 1."""

UNFINISHED = 8
FINISHED = "is left of a copy that is finished"
STAYS = " stays: "
"""The note that a staging directory could not be removed after the partition was cleaned."""
MAY_FAIL = (*READS, *STATUS, *LISTS, "open", "dup", KERNEL, LOCK_QUESTION)
"""Calls whose failure a command may get over, if its result is the right one."""
CODES = {
    "EIO": 1,
    "ENOSPC": 7,
    "EDQUOT": 7,
    "EROFS": 4,
    "EACCES": 4,
    "EMFILE": 1,
    "EINTR": 1,
    OTHER_BYTES: 3,
    NO_BYTES: 3,
}
"""The exit code of each fault. What is short must not be noticed at all."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A command and a call of it that fails."""

    scene: Scene
    call: Call
    fault: Fault

    def __str__(self) -> str:
        return f"{self.scene.name}: {self.fault.kind}{' for good' if self.fault.persistent else ''} at {self.call}"


def run(*, share: float, seed: int) -> Tally:
    """Let calls of the commands fail, chosen by the seed, and fill small disks."""
    load_everything()
    tally = Tally()
    with scratch() as directory, one_core():
        prepared = scenes()
        for number, scene in enumerate(prepared):
            prepare_scene(scene, directory / f"scene-{number}")
            for what in scene.escaped:
                tally.fail(f"{scene.name}: {what} is not numbered")
        trials = _chosen(prepared, round(RUNS * share), seed)
        done = side_by_side(partial(_tried, directory=str(directory)), trials)
    tally.outcomes.update(done.outcomes)
    tally.failures += done.failures
    for each in (full_disks.run(share=share, seed=seed), spark_errors.run(share=share, seed=seed)):
        tally.outcomes.update(each.outcomes)
        tally.failures += each.failures
    return tally


def _chosen(prepared: Sequence[Scene], count: int, seed: int) -> list[Trial]:
    """Return trials: in turn one of each scene, and in each scene every call before one comes again."""
    dice = random.Random(seed)
    queues = [_queue(scene, dice) for scene in prepared]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return list(itertools.islice((trial for trial in turns if trial is not None), count))


def _queue(scene: Scene, dice: random.Random) -> list[Trial]:
    of_call = []
    for call in scene.calls:
        faults = [
            Fault(call.number, kind, persistent)
            for kind in KINDS
            if can_happen(kind, call)
            for persistent in ((False,) if kind == "EINTR" else (False, True))
        ]
        dice.shuffle(faults)
        of_call.append([Trial(scene, call, fault) for fault in faults])
    dice.shuffle(of_call)
    return [trial for round_ in itertools.zip_longest(*of_call) for trial in round_ if trial is not None]


def _tried(trials: Sequence[Trial], *, directory: str) -> Tally:
    tally = Tally()
    for trial in trials:
        home = trial.scene.home.with_name(f"{os.getpid()}-run")
        clone(trial.scene.home, home)
        try:
            ran = run_command(trial.scene, home, trial.fault)
            problems = [*_problems_of(trial, ran), *_problems_after(trial, ran, home)]
        except (ValueError, LookupError, OSError, struct.error) as problem:
            problems = [f"what it left cannot be read: {problem!r}"]
        finally:
            remove(home)
        if problems:
            tally.fail(f"{trial}: {'; '.join(problems)}")
        else:
            tally.count(f"ended with {ran.code}" if ran.code else "not harmed")
    return tally


def _problems_of(trial: Trial, ran: Ran) -> list[str]:
    """Return what is wrong with the answer of the command that failed."""
    if ran.code < 0 or "Traceback" in ran.errors or "bug of kcompact" in ran.errors:
        return [f"it broke: {ran.errors}"]
    kind = trial.fault.kind
    if ran.code == 0:
        is_right = not ran.hits or kind not in CODES or STAYS in ran.errors or _may_pass(ran.hits[0], kind)
        return [] if is_right else ["it was not noticed"]
    allowed = {CODES.get(kind, 0), UNFINISHED}.union(*map(_more_codes, ran.hits))
    codes = set(ran.codes) or {ran.code}
    problems = [f"the exit code is {ran.code} of {sorted(codes)}: {ran.errors}"] if codes - allowed else []
    cause = os.strerror(getattr(errno, kind)) if kind in ERRORS else ""
    if cause not in ran.errors and not (kind == "EROFS" and "mounted read-only" in ran.errors):
        problems.append(f"the message does not name the cause: {ran.errors}")
    return problems


def _may_pass(call: Call, kind: str) -> bool:
    """Return whether a command may succeed although this call has failed."""
    if call.path == REPORT:
        return kind in (OTHER_BYTES, NO_BYTES)
    is_trial_of_tmp = call.path.startswith("tmp/") and "#" not in call.path  # Python takes another TMPDIR.
    return is_trial_of_tmp or call.name in MAY_FAIL or (call.name == "close" and call.path.endswith(".lock"))


def _more_codes(call: Call) -> set[int]:
    """Return other exit codes that the failure of this call may have."""
    # Altered keys are not damage of the log.
    return {1} if call.path == REPORT or call.path.startswith("tmp/") else set()


def _is_left(name: str) -> bool:
    return "/.kcompact-" in name or name.endswith(".deleted")


def _problems_after(trial: Trial, ran: Ran, home: Path) -> list[str]:
    """Return what is wrong with the directories, before and after kcompact runs again."""
    scene = trial.scene
    is_unfinished = UNFINISHED in (ran.code, *ran.codes) or scene.interrupted is not None
    problems = [] if is_unfinished else state_problems(scene, home, is_over=False)
    result = contents(home / "logs") | contents(home / "out")
    if STAYS in ran.errors:  # The staging directory, as the message says, and what was to be deleted with it.
        result = {name: found for name, found in result.items() if name in scene.result or not _is_left(name)}
    if not ran.code and result != scene.result:
        problems.append("it said that it succeeded")
    stays_in_tmp = any(_leaves_trial(trial.fault, call) for call in (trial.call, *ran.hits))
    problems += [f"before it ran again: {problem}" for problem in _left_in_tmp(home) if not stays_in_tmp]
    command = RECOVER if scene.interrupted is None and not scene.is_copy and trial.fault.number % 2 else scene.command
    if scene.is_copy and contents(home / "out") == scene.after:
        return [*problems, *state_problems(scene, home, is_over=True), *view_problems(scene, home)]
    again = run_command(Scene(name="again", command=command, in_pieces=scene.in_pieces), home)
    if again.code and FINISHED in again.errors and scene.after.items() <= contents(home / "out").items():
        return [*problems, *view_problems(scene, home)]
    if again.code:
        return [*problems, f"it does not run again: {again.code} {again.errors}"]
    is_regrouped = command is scene.command and ran.code != 0 and scene.interrupted is None
    after = state_problems(scene, home, is_over=True, is_regrouped=is_regrouped)
    problems += [f"afterwards: {problem}" for problem in after]
    if scene.is_copy and contents(home / "out") != scene.after:
        problems.append("afterwards: the copy is another one")
    return [*problems, *view_problems(scene, home), *(() if stays_in_tmp else _left_in_tmp(home))]


def _leaves_trial(fault: Fault, failed: Call) -> bool:
    """Return whether the file by which Python tries TMPDIR cannot be removed.

    Only the first failure of each path is noted. If it is for good, the removal that follows fails too.
    """
    if not failed.path.startswith("tmp/"):
        return False
    removal = replace(failed, name="unlink")
    return failed.name == "unlink" or (fault.persistent and can_happen(fault.kind, removal))


def _left_in_tmp(home: Path) -> list[str]:
    left = sorted(path.name for path in (home / "tmp").iterdir())
    return [f"left in TMPDIR: {left}"] if left else []
