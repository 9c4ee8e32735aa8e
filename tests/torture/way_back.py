"""The process dies by SIGKILL at every call of a cleaning that keeps what it replaces, and of a restore.

After each kill `recover` must leave the same view, and `restore` must give back every file as it was: content, inode,
time, mode, owner, and the checkpoint. Where the kill came before anything was replaced, nothing may have changed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support import log_dsl, log_writer
from tests.support.command_line import clean, kcompact
from tests.support.committed_view import committed_view
from tests.torture.children import KILLED, in_child, one_core, scratch, side_by_side
from tests.torture.system_calls import Call, killed_at, observed
from tests.torture.tally import Tally

LOG = """\
log now=10:00
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6 [e=7 f=8](pid=7 epoch=0 seq=0 txn) [abort](pid=7 epoch=0)
10: c=9 g=1
12: d=2 a=8
14: h=1 b=1
16: a=9
txnindex 6: pid=7 first=7 last=9 stable=10
"""
"""Six segments that become two or more groups, one with an aborted transaction, and an active one."""
OPTIONS = ("--config", "internal.segment.bytes=640")
PARTITION = "orders-0"
CHECKPOINT = "cleaner-offset-checkpoint"

State = dict[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A kill in a command at the call of this number."""

    command: str
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{self.command} killed {'after' if self.after else 'before'} call {self.number}"


def run(*, share: float, seed: int) -> Tally:
    """Kill both commands at every call, or at a share of them."""
    with scratch() as work:
        origin = work / "origin"
        log_writer.write(log_dsl.parse(LOG), origin)
        trials = []
        for command in ("clean", "restore"):
            count = _calls(origin, work / "count", command)
            trials += [Trial(command=command, number=n, after=after) for n in range(count) for after in (False, True)]
        random.Random(seed).shuffle(trials)
        return side_by_side(partial(_tried, origin, work), trials[: max(1, round(share * len(trials)))])


def _state(log_dir: Path) -> State:
    found: State = {}
    for path in sorted(log_dir.rglob("*")):
        if path.name == ".lock":
            continue
        status = path.stat()
        own = () if path.name == CHECKPOINT or path.is_dir() else (status.st_ino, status.st_mtime_ns)
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(log_dir))] = (content, *own, status.st_mode, status.st_uid, status.st_gid)
    return found


def _command(command: str, place: Path) -> int:
    if command == "clean":
        journal = ("--journal", place / "journal")
        return clean(*OPTIONS, *journal, "--keep-replaced", place / "kept", place / "logs").code
    return kcompact(command, place / ("kept" if command == "restore" else "logs")).code


def _prepared(origin: Path, place: Path, command: str) -> State:
    """Make the directory of a trial and return the state of its log before anything was cleaned."""
    place.mkdir()
    shutil.copytree(origin, place / "logs")  # Not by links: a trial at the same time would change their number.
    before = _state(place / "logs")
    if command == "restore":
        assert _command("clean", place) == 0
    return before


def _calls(origin: Path, place: Path, command: str) -> int:
    shutil.rmtree(place, ignore_errors=True)
    _prepared(origin, place, command)
    seen: list[Call] = []
    with one_core(), observed([place], seen.append, lambda call: None):
        assert _command(command, place) == 0
    return len(seen)


def _tried(origin: Path, work: Path, trials: Sequence[Trial]) -> Tally:
    tally = Tally()
    view = committed_view(origin / PARTITION)
    for trial in trials:
        place = work / f"{trial.command}-{trial.number}-{trial.after}"
        before = _prepared(origin, place, trial.command)

        def die(trial: Trial = trial, place: Path = place) -> str:
            with killed_at([place], trial.number, after=trial.after):
                return str(_command(trial.command, place))

        if (found := in_child(die)) != KILLED:
            tally.fail(f"{trial}: not killed: {found}")
        elif problem := _problem(place, before, view, trial):
            tally.fail(f"{trial}: {problem}")
        else:
            tally.count(f"{trial.command} put back")
        shutil.rmtree(place, ignore_errors=True)
    return tally


def _problem(place: Path, before: State, view: dict[bytes | None, bytes], trial: Trial) -> str:
    if code := _command("recover", place):
        return f"recover: {code}"
    recovered = _state(place / "logs")
    if committed_view(place / "logs" / PARTITION) != view:
        return "another view after the recovery"
    code = _command("restore", place)
    if code == 4 and trial.command == "clean" and recovered == before:
        return ""  # Nothing had been replaced or kept.
    if code:
        return f"restore: {code}"
    after = _state(place / "logs")
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"not as before: {changed}" if changed else ""
