"""Bits are flipped in every file that kcompact writes for a later run, at every point where a run can be killed.

The files are the manifest of a swap, `kept.json`, and the marker of a copy. Each run is killed before
each of its calls. At the first and at the last point where a file is there, every bit of it is flipped, at the others
one in SAMPLE. A flip is *detected* if the next run refuses with exit code 3 or 8 and changes nothing. Everything else
fails.

At each point the log is also recovered without a flip, and by hand as the message says that stands for a damaged
manifest. Both results are cleaned ROUNDS times while the log grows, and judged by a consumer that shares no code with
kcompact: `bit_flips.judge`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kcompact.errors import CorruptCheckpointError, KcompactError, RecoveryNeededError
from kcompact.swap.recovery.interrupted_round import recover
from tests.support import txn_log
from tests.support.command_line import kcompact
from tests.support.consumer_view import View, view
from tests.torture.bit_flips import ROUNDS, judge, sound_log
from tests.torture.children import KILLED, in_child, one_core, scratch, side_by_side
from tests.torture.system_calls import Call, killed_at, observed
from tests.torture.tally import Tally

PARTITION = txn_log.SPEC.name
COMMANDS = ("clean", "restore", "copy")
SAMPLE = 50
CODES = {CorruptCheckpointError.exit_code, RecoveryNeededError.exit_code}

State = dict[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run that is killed before the call of this number. Every bit of the files in `whole` is flipped."""

    command: str
    number: int
    whole: frozenset[str]

    def __str__(self) -> str:
        return f"{self.command} killed before call {self.number}"


def run(*, share: float, seed: int) -> Tally:
    """Go through all points, or a share of them, and there flip a share of the bits."""
    with scratch() as work:
        points = [point for command in COMMANDS for point in _points(work / "count", command)]
        chosen = random.Random(seed).sample(points, round(share * len(points)))
        return side_by_side(partial(_tried, work, share, seed), chosen)


# --- The runs -------------------------------------------------------------------------------------------


def _prepared(place: Path, command: str) -> None:
    """Make the directory of a run, as it is before the run."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    sound_log(place / "logs")
    if command == "restore":
        assert _ran(place, "clean") == 0


def _ran(place: Path, command: str) -> int:
    """Run a command and return its exit code."""
    if command == "restore":
        return kcompact("restore", place / "kept").code
    where = ("--output", place / "out") if command == "copy" else ("--keep-replaced", place / "kept")
    settings = [word for name, value in txn_log.SPEC.settings.items() for word in ("--config", f"{name}={value}")]
    return kcompact(
        *("clean", "--engine", "in-process", "--yes", "--now", str(txn_log.NOW)),
        *("--config", "cleanup.policy=compact", *settings),
        *("--journal", place / "journal", *where, place / "logs"),
    ).code


def _points(place: Path, command: str) -> list[Point]:
    """Run a command to its end, and return the points where it can be killed."""
    _prepared(place, command)
    present: list[list[str]] = []

    def look(call: Call) -> None:
        present.append([path.name for path in _own_files(place)])

    with one_core(), observed([place], look, lambda call: None):
        assert _ran(place, command) == 0
    first = {name: number for number, names in reversed([*enumerate(present)]) for name in names}
    last = {name: number for number, names in enumerate(present) for name in names}
    return [
        Point(
            command=command,
            number=number,
            whole=frozenset(name for name in names if number in (first[name], last[name])),
        )
        for number, names in enumerate(present)
    ]


def _killed(place: Path, point: Point) -> str:
    """Make the state that a killed run leaves; return KILLED, or what happened instead."""
    _prepared(place, point.command)

    def die() -> str:
        with killed_at([place], point.number):
            return str(_ran(place, point.command))

    return in_child(die)


# --- The flips ------------------------------------------------------------------------------------------


def _tried(work: Path, share: float, seed: int, points: Sequence[Point]) -> Tally:
    tally = Tally()
    for point in points:
        place = work / f"{point.command}-{point.number}".replace(" ", "-")
        if (found := _killed(place, point)) != KILLED:
            tally.fail(f"{point}: not killed: {found}")
            continue
        own = _own_files(place)
        if own and point.command != "copy":
            _judge_by_hand(tally, place, point)
        _flip(tally, place, point, own, share, random.Random(f"{seed} {point}"))
        shutil.rmtree(place)
    return tally


def _own_files(place: Path) -> list[Path]:
    """Return what the killed run has left for a later one.

    Records of a copy count only with its `copy.json`.
    """
    subjects = sorted(place.glob("out/.kcompact-copy/copy.json"))
    return [
        *sorted(place.glob("logs/*/.kcompact-*/manifest.json")),
        *sorted(place.glob("kept/*/kept.json")),
        *subjects,
        *(record for each in subjects for record in sorted(each.parent.glob("[0-9]*.json"))),
    ]


def _flip(tally: Tally, place: Path, point: Point, own: Sequence[Path], share: float, chance: random.Random) -> None:
    """Flip bits of the files and let the next run refuse."""
    for path in own:
        content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        bits = range(8 * len(content))
        count = share * len(bits) if path.name in point.whole else share * len(bits) / SAMPLE
        for bit in sorted(chance.sample(bits, round(count))):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            before = _state(place)
            code = _next_run(place, path)
            if code in CODES and _state(place) == before:
                tally.count(f"detected {_kind(path)}")
            else:
                tally.fail(f"{point}: {path.name}, bit {bit}: code {code}, changed: {_state(place) != before}")
                return  # The state is another one now.
        path.write_bytes(content)
        os.utime(path, ns=times)


def _kind(path: Path) -> str:
    return "record of a copy" if path.stem.isdigit() else path.name


def _state(place: Path) -> State:
    found: State = {}
    for path in sorted(place.rglob("*")):
        if path.name not in (".lock", "journal"):
            status = path.lstat()
            found[str(path)] = (status.st_ino, status.st_mode, *(() if path.is_dir() else _written(path)))
    return found


def _written(path: Path) -> tuple[object, ...]:
    return path.lstat().st_mtime_ns, path.read_bytes()


def _next_run(place: Path, path: Path) -> int:
    """Do what reads this file, and return the exit code."""
    if path.name == "kept.json":
        return _ran(place, "restore")
    if ".kcompact-copy" in path.parts:
        return _ran(place, "copy")
    try:
        recover(place / "logs" / PARTITION, log_dir=place / "logs")
    except KcompactError as error:
        return error.exit_code
    return 0


# --- The judge ------------------------------------------------------------------------------------------


def _judge_by_hand(tally: Tally, place: Path, point: Point) -> None:
    """Judge the log after a recovery, and after what a user does who has lost the manifest."""
    expected = _expected(place / "judged")
    for how in ("recovered", "by hand"):
        logs, control = place / "judged" / "logs", place / "judged" / "control"
        shutil.copytree(place / "logs", logs)
        sound_log(control)
        problem = _ended(logs, how)
        if not problem:
            verdict, found = judge(logs, control, expected)
            problem = "" if verdict == "harmless" else f"{verdict}: {found}"
        if problem:
            tally.fail(f"{point}: {how}: {problem}")
        else:
            tally.count(how)
        shutil.rmtree(place / "judged")


def _expected(work: Path) -> list[View]:
    """Return what a consumer of the sound log sees before each of the cleanings."""
    grown, found = sound_log(work / "sound"), []
    for number in range(ROUNDS):
        if number:
            txn_log.go_on(grown, number)
        found.append(view(grown, grown / PARTITION))
    shutil.rmtree(grown)
    return found


def _ended(logs: Path, how: str) -> str:
    """End the interrupted run in a copy of the log; return what went wrong."""
    directory = logs / PARTITION
    if how == "by hand":
        for number, staging in enumerate(sorted(directory.glob(".kcompact-*"))):
            shutil.move(staging, logs.parent / f"staging-{number}")
        for path in directory.glob("*.snapshot.*"):
            path.unlink()
    try:
        recover(directory, log_dir=logs, foreign=how == "by hand")
    except KcompactError as error:
        return str(error)
    return ""
