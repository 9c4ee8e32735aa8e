"""A real broker and a cleaning at the same time, on the log directory of a real broker.

`paused`: a broker is started while a cleaning stands still under its lock: in its scan, in its writing, between two
calls of its swaps. It must not start. The cleaning goes on, and the next broker serves the newest record of each key.
`beside`: while that broker runs, cleanings reach its files by several paths. `killed`: it dies while cleanings are
tried. `together`: a broker starts while one cleaning follows the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError as ClientError

from fixtures.broker import (
    MINUTE_MS,
    NOW_MS,
    PARTITION,
    RECORDS,
    Broker,
    Produced,
    batches,
    complaints,
    consume,
    send,
)
from fixtures.checkout import copy_directory
from kcompact.host.throttle import Throttle
from kcompact.log.lock import LOCK_NAME
from tests.oracle.driver import build
from tests.support.command_line import Ran, digest, kcompact
from tests.torture.children import in_child, scratch, side_by_side
from tests.torture.faulty_runs import load_everything
from tests.torture.system_calls import Call, observed
from tests.torture.tally import Tally

CLEAN = ("clean", "--engine", "in-process", "--force", "--yes", "--config", "segment.bytes=40000")
"""Each segment of the fixture is a group of its own, so there are three swaps."""
POLICY = ("--config", "cleanup.policy=compact")
"""For a partition without the metadata log of its broker beside it."""
REFUSAL = "Failed to acquire lock on file .lock"
NOT_STOPPED = "the broker was not shut down cleanly"
CLEANED = 1_000
"""At most so many of the fixture's records are left of it after a cleaning."""
STARTS, TOGETHER = 20, 10
"""How many brokers are started beside a paused cleaning, and beside one cleaning after the other."""
START_S = 4.0
"""About as long as a broker takes until it has its lock. The first cleaning begins within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is tried once. `moment` is the number of the event before which the cleaning is paused, None if it is not.

    A turn without a moment starts a broker beside one cleaning after the other.
    """

    number: int
    seed: int
    home: Path
    moment: int | None = None
    kind: str = ""

    def __str__(self) -> str:
        return f"turn {self.number}" + ("" if self.moment is None else f", paused in {self.kind}, event {self.moment}")

    @property
    def log_dir(self) -> Path:
        return self.home / "log-dir"

    @property
    def partition(self) -> Path:
        return self.log_dir / PARTITION


def run(*, share: float, seed: int) -> Tally:
    """Start brokers beside cleanings; at a smaller share fewer, spread over the same moments."""
    assert os.geteuid() == 0, "only root can bind directories to other paths"
    build()
    load_everything()
    chance = random.Random(seed)
    with scratch() as directory:
        moments = _moments(directory / "model")
        turns = []
        for number in range(max(2, round(STARTS * share))):
            kind = list(moments)[(number + seed) % len(moments)]
            turns.append(_turn(directory, number, seed, moment=chance.choice(moments[kind]), kind=kind))
        for number in range(len(turns), len(turns) + max(1, round(TOGETHER * share))):
            turns.append(_turn(directory, number, seed))
        return side_by_side(_tried, turns)


def _turn(directory: Path, number: int, seed: int, **moment: Any) -> Turn:
    return Turn(number=number, seed=seed, home=directory / f"turn-{number}", **moment)


def _tried(turns: Sequence[Turn]) -> Tally:
    tally = Tally()
    for turn in turns:
        copy_directory("broker", "before", turn.log_dir)
        try:
            if turn.moment is None:
                _together(turn, tally)
            else:
                _paused(turn, tally)
        except (AssertionError, RuntimeError, ClientError) as problem:
            tally.fail(f"{turn}: {problem}")
        finally:
            shutil.rmtree(turn.home)
    return tally


# The moments of a cleaning


def _moments(home: Path) -> dict[str, list[int]]:
    """Return the numbers of the events of a cleaning that holds its lock, by what it does there."""
    copy_directory("broker", "before", home / "log-dir")
    found = json.loads(in_child(partial(_events, home / "log-dir")))
    staging = next(number for number, event in enumerate(found) if event.startswith("mkdir"))
    swaps = next(number for number, event in enumerate(found) if event.startswith("rename"))
    ends = {"the scan": (0, staging), "the writing": (staging, swaps), "the swaps": (swaps, len(found))}
    return {name: list(range(*each)) for name, each in ends.items()}


def _events(log_dir: Path) -> str:
    seen: list[str] = []
    with _watched(log_dir, seen.append):
        ran = kcompact(*CLEAN, log_dir)
    assert ran.code == 0, ran.err
    return json.dumps(seen)


@contextlib.contextmanager
def _watched(log_dir: Path, observe: Callable[[str], object]) -> Iterator[None]:
    """Call `observe` before each call that changes the log directory, and before each piece that is read or written.

    What creates the lock file is left out: there the lock is not held yet.
    """
    take = Throttle.take

    def taking(*arguments: Any, **options: Any) -> None:
        observe("take")
        take(*arguments, **options)

    def before(call: Call) -> None:
        if Path(call.path).name != LOCK_NAME:
            observe(str(call))

    Throttle.take = taking  # type: ignore[method-assign]
    try:
        with observed([log_dir], before, lambda call: None):
            yield
    finally:
        Throttle.take = take  # type: ignore[method-assign]


# A broker beside a paused cleaning


def _paused(turn: Turn, tally: Tally) -> None:
    problem = in_child(partial(_refused_in_mid_clean, turn))
    assert not problem, problem
    tally.count(f"paused in {turn.kind}: the broker does not start")
    with Broker(turn.home) as broker:
        _serves(broker, PRODUCED, CLEANED)
        _add(broker)
        _beside(turn, tally)
        if turn.number % 2:
            _killed(turn, broker, tally)
            broker.start()
        _serves(broker, PRODUCED + LATER, CLEANED + len(LATER))
    ran = _clean(turn.log_dir)
    assert ran.code == 0, f"after the broker: {ran}"
    tally.count("the broker serves what it should")


PRODUCED = [record for batch in batches(RECORDS) for record in batch]
LATER = [
    Produced(codec=None, timestamp_ms=NOW_MS + number * MINUTE_MS, key=b"item-%d" % number, value=b"later", headers=[])
    for number in range(20)
]
"""So much later that the first of them closes the active segment: there is something to clean again."""


def _refused_in_mid_clean(turn: Turn) -> str:
    """Clean, and start a broker at the moment of the turn; return what is wrong."""
    problems = ["the moment did not come"]
    count = iter(range(turn.moment or 0, -1, -1))

    def observe(event: str) -> None:
        if next(count, None) == 0:
            problems[:] = _start_refused(turn)

    with _watched(turn.log_dir, observe):
        ran = kcompact(*CLEAN, turn.log_dir)
    problems += [] if ran.code == 0 else [f"the cleaning: {ran}"]
    return "; ".join(problems)


def _start_refused(turn: Turn) -> list[str]:
    before = digest(turn.partition), (turn.log_dir / LOCK_NAME).stat().st_ino
    broker = Broker(turn.home)
    if _starts(broker):
        broker.stop()
        return ["the broker starts"]
    after = digest(turn.partition), (turn.log_dir / LOCK_NAME).stat().st_ino
    return [] if after == before else ["the broker that was refused has changed the partition or the lock file"]


def _starts(broker: Broker) -> bool:
    """Start a broker; return False if it is refused because of the lock. Raises RuntimeError for any other reason."""
    try:
        broker.start()
    except RuntimeError as problem:
        if REFUSAL not in str(problem):
            raise
        return False
    return True


def _serves(broker: Broker, produced: list[Produced], most: int) -> None:
    seen = consume(broker.address)
    wrong = complaints(produced, seen)
    assert not wrong, f"the broker serves: {wrong[:3]}"
    assert len(seen) <= most, f"the broker serves {len(seen)} records"


def _add(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=60_000, batch_size=1 << 20)
    try:
        send(producer, LATER)
    finally:
        producer.close()


# A cleaning beside a broker


def _clean(path: Path, *options: str) -> Ran:
    answer = in_child(lambda: json.dumps(kcompact(*CLEAN, *options, path)))
    try:
        return Ran(*json.loads(answer))
    except ValueError:
        return Ran(-1, "", answer)


def _beside(turn: Turn, tally: Tally) -> None:
    """Every path to the files of a running broker is refused, and nothing is changed."""
    before = digest(turn.partition)
    for name, (path_of, by) in PATHS.items():
        with path_of(turn) as path:
            ran = _clean(path, *POLICY)
        assert (ran.code, by in ran.err) == (5, True), f"beside the broker, {name}: {ran}"
        assert digest(turn.partition) == before, f"beside the broker, {name}: the partition was changed"
        tally.count("beside a broker: refused")


@contextlib.contextmanager
def _itself(turn: Turn) -> Iterator[Path]:
    yield turn.log_dir


@contextlib.contextmanager
def _bound_log_dir(turn: Turn) -> Iterator[Path]:
    with _bound(turn.log_dir, turn.home / "bound") as path:
        yield path


@contextlib.contextmanager
def _bound_partition(turn: Turn) -> Iterator[Path]:
    with _bound(turn.partition, turn.home / "other" / PARTITION) as path:
        yield path


@contextlib.contextmanager
def _bound(source: Path, target: Path) -> Iterator[Path]:
    target.mkdir(parents=True)
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", target], check=True)
        target.rmdir()


@contextlib.contextmanager
def _linked(turn: Turn) -> Iterator[Path]:
    link = turn.home / "linked" / PARTITION
    link.parent.mkdir()
    link.symlink_to(turn.partition)
    yield link


@contextlib.contextmanager
def _second_names(turn: Turn) -> Iterator[Path]:
    """A copy of the directory as a fast backup makes it: its files are the same ones."""
    copied = turn.home / "copied" / PARTITION
    shutil.copytree(turn.partition, copied, copy_function=os.link)
    yield copied
    shutil.rmtree(copied.parent)


@contextlib.contextmanager
def _without_lock_file(turn: Turn) -> Iterator[Path]:
    (turn.log_dir / LOCK_NAME).unlink()
    yield turn.log_dir


LOCK, OPEN_FILES = ") holds this lock", ") has "
PATHS: dict[str, tuple[Callable[[Turn], contextlib.AbstractContextManager[Path]], str]] = {
    "its own path": (_itself, LOCK),
    "a bind mount of the log directory": (_bound_log_dir, LOCK),
    "a bind mount of the partition": (_bound_partition, OPEN_FILES),
    "a link to the partition": (_linked, OPEN_FILES),
    "second names of the files": (_second_names, OPEN_FILES),
    "no lock file": (_without_lock_file, OPEN_FILES),
}
"""Ways to the files of a broker, and what the refusal says. The last one takes the lock file away for good."""


# A broker that is killed


def _killed(turn: Turn, broker: Broker, tally: Tally) -> None:
    """A broker dies while cleanings are tried. None of them changes anything, and the last one says what to do."""
    before = digest(turn.partition)
    killer = threading.Timer(random.Random(f"{turn.seed} {turn.number}").random(), broker.kill)
    killer.start()
    codes = []
    while killer.is_alive():
        codes.append(_clean(turn.log_dir).code)
    killer.join()
    ran = _clean(turn.log_dir)
    assert set(codes) <= {4, 5}, f"while the broker dies: {codes}"
    assert (ran.code, NOT_STOPPED in ran.err) == (4, True), f"after the broker is killed: {ran}"
    copied = turn.home / "taken out" / PARTITION
    shutil.copytree(turn.partition, copied)
    ran = _clean(copied, *POLICY)
    assert ran.code == 0, f"a copy of the partition of a killed broker: {ran}"
    assert digest(turn.partition) == before, "a cleaning after the broker was killed has changed the partition"
    tally.count("killed: untouched until the broker has started again")


# A broker that starts beside cleanings


def _together(turn: Turn, tally: Tally) -> None:
    """One cleaning after the other until the broker has its lock, or is refused because one of them has."""
    codes: list[int] = []
    delay_s = random.Random(f"{turn.seed} {turn.number}").random() * START_S
    is_over = threading.Event()

    def clean() -> None:
        is_over.wait(delay_s)
        while not is_over.is_set():
            codes.append(_clean(turn.log_dir).code)

    cleaning = threading.Thread(target=clean)
    cleaning.start()
    broker = Broker(turn.home)
    try:
        is_refused = not _starts(broker)
    finally:
        is_over.set()
        cleaning.join()
    try:
        if is_refused:
            broker.start()
        assert set(codes) <= {0, 5}, f"while the broker starts: {codes}"
        _serves(broker, PRODUCED, CLEANED if 0 in codes else RECORDS)
    finally:
        broker.stop()
    tally.count(f"together: {'the broker' if is_refused else 'the cleaning'} is refused")
