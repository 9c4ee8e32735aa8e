"""The disk loses what was not synced, at every operation of a cleaning, of retention and of a recovery.

The operations are recorded from whole runs. `tests.support.power_loss` says what a disk may lose: since the last sync
of a directory any of its changes, and of a file that was not synced its data or a part of it. Kafka's own loader judges
each state, with and without the clean-shutdown marker; then kcompact recovers it, and Kafka judges that.

After each operation all states are enumerated if there are no more than LIMIT; of more, LIMIT are chosen.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kcompact.errors import KcompactError
from kcompact.swap.recovery.interrupted_round import recover
from tests.oracle.driver import build
from tests.oracle.real_kafka import RealKafka
from tests.support.copies import read_files
from tests.support.crash import clone
from tests.support.power_loss import Disk, Tree
from tests.torture import scene
from tests.torture.children import PROCESSES, one_core, scratch, side_by_side
from tests.torture.judge import Judge, checkpoint_problems, visible
from tests.torture.recorded import Files, Recording, Store, files_of, record
from tests.torture.tally import Tally

LIMIT = 4096
"""States after one operation, where there are more; at share 1."""
LEAST_LIMIT = 64
STAGING_LIMIT = 64
"""The same, while nothing changes but the staging directory, which a broker does not read."""
RECOVERIES_OF_STATE = 3
"""How many states are recovered that a broker sees as the same."""
RECOVERIES_CUT = 60
"""At share 1, how many recoveries lose power themselves, at each of their operations."""


def prepare(kafka: RealKafka, log_dir: Path) -> None:
    """Write the log directory and clean `prices-0`, so that the checkpoint exists."""
    scene.write(kafka, log_dir)
    scene.clean(log_dir, topics=("prices",))


RUNS: dict[str, dict[str, object]] = {
    "clean": {},
    "retention": {"config": scene.EXPIRING, "apply_retention": True},
    "retention alone": {"config": scene.EXPIRING | {"min.compaction.lag.ms": "99999999"}, "apply_retention": True},
}
"""Options of the cleanings of `orders-0` that are recorded. The last cleans nothing, but deletes segments."""


def recorded(log_dir: Path, work: Path) -> dict[str, Recording]:
    """Record the runs."""
    found = {}
    for name, options in RUNS.items():
        clone(log_dir, work / name)
        with one_core():
            found[name] = record(work / name, partial(_clean, work / name, **options))
    return found


def _clean(log_dir: Path, **options: Any) -> None:
    scene.clean(log_dir, topics=("orders",), **options).raise_failure()


def log_starts(name: str) -> Collection[int]:
    """Return where the log may start after a run was interrupted."""
    if name == "retention":
        return scene.CLEANED_BASES[scene.ORDERS]
    return scene.BASES if name == "retention alone" else (0,)


def states(disk: Disk, limit: int, chance: random.Random) -> Iterator[Tree]:
    """Yield what a power cut can leave now, without more than a few trees that a broker sees as the same."""
    is_staging = not any(disk.pending[directory] for directory in ("", scene.ORDERS))
    same: Counter[int] = Counter()
    for tree in disk.trees(STAGING_LIMIT if is_staging else limit, chance):
        seen = state_key(visible(files_of(tree)))
        same[seen] += 1
        if same[seen] <= RECOVERIES_OF_STATE:
            yield tree


def state_key(files: Files) -> int:
    """Return a number that tells states apart in this process and its children."""
    return hash(frozenset(files.items()))


class Cuts:
    """Judges and recovers states, of one recording."""

    def __init__(self, judge: Judge, recording: Recording, source: Path, work: Path, name: str) -> None:
        self._judge = judge
        self._starts = log_starts(name)
        self._store = Store(recording, source, work / f"store-{name}-{os.getpid()}")
        self._home = work / f"home-{os.getpid()}"

    def problems(self, tree: Tree) -> list[str]:
        """Return what is wrong with a state: as a broker loads it, and after kcompact has recovered it."""
        return self._judged(files_of(tree)) or self._after_recovery(tree)

    def _judged(self, files: Files) -> list[str]:
        return [*checkpoint_problems(files), *self._judge.problems(files, self._starts)]

    def _after_recovery(self, tree: Tree) -> list[str]:
        shutil.rmtree(self._home, ignore_errors=True)
        self._store.create(tree, self._home)
        try:
            recover_orders(self._home)
        except KcompactError as error:
            return [f"recovery: {error}"]
        files = read_files(self._home)
        left = [path for path in files if path.endswith((".cleaned", ".swap")) or ".kcompact-" in path]
        found = [f"recovery left {path}" for path in left]
        return found or [f"after recovery: {each}" for each in self._judged(files)]

    def recovery_of(self, tree: Tree, place: Path) -> tuple[Recording, Path]:
        """Record the recovery of a state; return it and the directory before it."""
        self._store.create(tree, place / "before")
        clone(place / "before", place / "recovered")
        return record(place / "recovered", lambda: recover_orders(place / "recovered")), place / "before"

    def is_unchanged(self) -> bool:
        """Return whether no recovery has written into a file that was there before."""
        return self._store.is_unchanged()


def recover_orders(log_dir: Path) -> None:
    """Recover `orders-0` and its checkpoint."""
    recover(log_dir / scene.ORDERS, log_dir=log_dir)


def _work(
    original: Path, work: Path, recordings: dict[str, Recording], share: float, seed: int, hands: Sequence[int]
) -> Tally:
    """Judge the states of this hand. All processes enumerate the same states, and each takes its part of them."""
    tally = Tally()
    (hand,) = hands
    with Judge(original, work, only=scene.ORDERS) as judge:
        for name, recording in recordings.items():
            cuts = Cuts(judge, recording, original, work, name)
            _all_states(tally, cuts, name, recording, share=share, seed=seed, hand=hand, work=work)
            if not cuts.is_unchanged():
                tally.fail(f"{name}: a recovery has written into a file that was there before")
        tally.count("different states in Kafka, in both modes", judge.states)
        tally.count("loads", judge.loads)
    return tally


def _all_states(
    tally: Tally, cuts: Cuts, name: str, recording: Recording, *, share: float, seed: int, hand: int, work: Path
) -> None:
    chance, dice, seen = random.Random(f"{seed} {name}"), random.Random(f"{seed} {hand}"), set()
    # The square, because most operations have fewer states than a small share of the limit.
    limit = max(LEAST_LIMIT, round(LIMIT * share**2))
    cut_each = max(1, round(len(recording.operations) * PROCESSES / (RECOVERIES_CUT * share)))
    for number, disk in recording.disks():
        if hand == 0:
            kind = "enumerated" if disk.is_enumerated(limit) else "sampled"
            tally.count(f"operations with {kind} states")
        mine = []
        for tree in states(disk, limit, chance):
            key = state_key(files_of(tree))
            if key in seen:
                continue
            seen.add(key)
            if state_key(visible(files_of(tree))) % PROCESSES == hand:
                mine.append(tree)
        what = f"{name}: a power cut after {number} operations"
        for tree in mine:
            tally.count("states recovered")
            for problem in cuts.problems(tree)[:1]:
                tally.fail(f"{what}: {problem}")
        if mine and number % cut_each == hand:
            _cut_recovery(tally, cuts, dice.choice(mine), what, work / f"recovery-{hand}", dice)


def _cut_recovery(tally: Tally, cuts: Cuts, tree: Tree, what: str, place: Path, dice: random.Random) -> None:
    """Let the recovery of a state lose power at each of its operations."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    recording, before = cuts.recovery_of(tree, place)
    again = Cuts(cuts._judge, recording, before, place, what.partition(":")[0])
    for number, disk in recording.disks():
        for state in disk.trees(3, dice):
            tally.count("states of cut recoveries")
            for problem in again.problems(state)[:1]:
                tally.fail(f"{what}, and in its recovery after {number}: {problem}")


def run(*, share: float, seed: int) -> Tally:
    """Judge a share of the states."""
    build()
    with scratch() as work:
        original = work / "original"
        with RealKafka() as kafka:
            prepare(kafka, original)
        recordings = recorded(original, work)
        return side_by_side(partial(_work, original, work, recordings, share, seed), range(PROCESSES))
