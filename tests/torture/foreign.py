"""A broker that cleans loses power, and `recover --foreign` ends its swap or refuses.

Kafka's own cleaner cleans a copy of the log. From the files before and after follow the operations of its swaps: new
files, renames and a single sync for each group of segments, so a power cut leaves states that the order of the renames
never makes. `tests.support.power_loss` says which. Each state must be

    recovered   Kafka's own loader finds every record once, with and without the marker of a clean shutdown; where the
                message has it moved away, without it
    by hand     the same after what the message or the note says is done by hand
    refused     exit code 8, nothing is changed

Some recoveries lose power themselves, at each of their operations.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kcompact.errors import RecoveryNeededError
from kcompact.format.names import Suffix
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.swap.recovery.interrupted_round import recover
from kcompact.swap.steps import CLEANED, DELETED, SWAP, Remove, Rename, SyncDir
from tests.oracle.driver import build
from tests.oracle.real_kafka import RealKafka
from tests.support.copies import read_files
from tests.support.crash import clone
from tests.support.power_loss import Create, SyncFile, Tree, Write
from tests.torture import scene
from tests.torture.children import PROCESSES, scratch, side_by_side
from tests.torture.judge import Judge
from tests.torture.power_loss import state_key
from tests.torture.recorded import Files, Operation, Recording, Store, files_of, read_directories, record
from tests.torture.tally import Tally

LIMIT = 150
"""States after one operation, at share 1."""
LEAST_LIMIT = 10
RECOVERIES_CUT = 30
"""At share 1, how many recoveries lose power themselves."""
CONFIG = scene.CONFIG | {"min.cleanable.dirty.ratio": "0"}


def run(*, share: float, seed: int) -> Tally:
    """Judge a share of the states."""
    build()
    with scratch() as work:
        original, cleaned = work / "original", work / "cleaned"
        with RealKafka() as kafka:
            scene.write(kafka, original)
            shutil.copytree(original, cleaned, copy_function=shutil.copy2)
            kafka.clean(cleaned, config=CONFIG, now_ms=scene.NOW_MS, only=scene.ORDERS)
        recording = broker_swaps(original, cleaned)
        return side_by_side(partial(_work, original, work, recording, share, seed), range(PROCESSES))


# --- What a broker does ---------------------------------------------------------------------------------


def broker_swaps(original: Path, cleaned: Path) -> Recording:
    """Return the operations that make the one log from the other. Rule: `LocalLog.replaceSegments`."""
    before, after = read_files(original), read_files(cleaned)
    groups = sorted(scene.CLEANED_BASES[scene.ORDERS])
    ends = [*groups[1:], max(scene.BASES)]
    operations: list[Operation] = []
    removals: list[Operation] = []
    for base, end in zip(groups, ends, strict=True):
        new = [name for name in _names(after, base, base + 1) if not name.endswith(Suffix.SNAPSHOT)]
        old = [name for name in _names(before, base, end) if not name.endswith(Suffix.SNAPSHOT)]
        snapshots = [name for name in _names(before, base + 1, end) if name.endswith(Suffix.SNAPSHOT)]
        for name in new:
            operations += [Create(name + CLEANED), Write(name + CLEANED, after[name]), SyncFile(name + CLEANED)]
        operations.append(SyncDir(scene.ORDERS))  # A file system keeps the name of a new file with its first sync.
        operations += [
            *(Rename(name + CLEANED, name + SWAP) for name in new),
            *(Rename(name, name + DELETED) for name in old),
            *(Rename(name + SWAP, name) for name in new),
            SyncDir(scene.ORDERS),
            *(Rename(name, name + DELETED) for name in snapshots),
        ]
        removals += [Remove(name + DELETED) for name in (*old, *snapshots)]
    times = {
        data: (place / path).stat().st_mtime_ns
        for place, files in ((original, before), (cleaned, after))
        for path, data in files.items()
    }
    return Recording(before, tuple(read_directories(original)), (*operations, *removals), times)


def _names(files: Files, base: int, end: int) -> list[str]:
    """Return the paths of the files of some segments, in the order in which a broker renames them."""
    order = [*Suffix]
    found = []
    for path in files:
        number, dot, suffix = path.removeprefix(f"{scene.ORDERS}/").partition(".")
        if number.isdecimal() and base <= int(number) < end:
            found.append((int(number), order.index(Suffix(dot + suffix)), path))
    return [path for _, _, path in sorted(found)]


# --- What follows ---------------------------------------------------------------------------------------


class Trial:
    """Recovers states and judges what is left."""

    def __init__(self, judge: Judge, recording: Recording, source: Path, work: Path, tally: Tally) -> None:
        self.tally = tally
        self._judge = judge
        self._store = Store(recording, source, work)
        self._home = work / "home"

    def create(self, tree: Tree) -> Path:
        shutil.rmtree(self._home, ignore_errors=True)
        self._store.create(tree, self._home)
        return self._home

    def outcome(self, tree: Tree) -> str:
        """Recover a state; return how that ended, or what is wrong."""
        log_dir = self.create(tree)
        found = self._recovered(log_dir)
        for _ in range(2 * len(scene.BASES) + 1):  # Each time a segment, an index or the marker is moved away.
            if not found.startswith("move "):
                break
            for name in found.split()[1:]:
                (log_dir / scene.ORDERS / name).unlink()
            found = self._recovered(log_dir).replace("recovered", "by hand")
        return found

    def _problems(self, log_dir: Path) -> list[str]:
        files = read_files(log_dir)
        return self._judge.problems(files, modes=(True, False) if CLEAN_SHUTDOWN_FILE in files else (False,))

    def _recovered(self, log_dir: Path) -> str:
        before = read_files(log_dir)
        try:
            report = recover(log_dir / scene.ORDERS, log_dir=log_dir, foreign=True)
        except RecoveryNeededError as error:
            if read_files(log_dir) != before:
                return f"FAILED: refused, and yet changed: {error}"
            names = error.files or (f"../{CLEAN_SHUTDOWN_FILE}",)
            return f"move {' '.join(names)}" if "to another place (mv)" in error.hint else "refused"
        problems = self._problems(log_dir)
        if problems and report.only_copies:
            for base in report.only_copies:
                for path in (log_dir / scene.ORDERS).glob(f"{base:020d}.*{DELETED}"):
                    path.rename(path.with_suffix(""))
            problems = self._problems(log_dir)
            return f"FAILED: only copies put back: {problems[0]}" if problems else "by hand"
        return f"FAILED: {report.status}: {problems[0]}" if problems else "recovered"


def _states(recording: Recording, share: float, seed: int) -> Iterator[tuple[int, Tree]]:
    """Yield different states with the number of operations done. All processes yield the same ones."""
    chance, seen = random.Random(seed), set()
    for number, disk in recording.disks():
        for tree in disk.trees(max(LEAST_LIMIT, round(LIMIT * share)), chance):
            key = state_key(files_of(tree))
            if key not in seen:
                seen.add(key)
                yield number, tree


def _work(original: Path, work: Path, recording: Recording, share: float, seed: int, hands: Sequence[int]) -> Tally:
    tally, (hand,) = Tally(), hands
    dice = random.Random(f"{seed} {hand}")
    place = work / f"hand-{hand}"
    with Judge(original, work, only=scene.ORDERS) as judge:
        trial = Trial(judge, recording, original, place, tally)
        recovered: list[tuple[int, Tree]] = []
        for turn, (number, tree) in enumerate(_states(recording, share, seed)):
            if turn % PROCESSES != hand:
                continue
            if judge.problems(files_of(tree)):
                tally.count("states that a broker loads wrongly")
            found = trial.outcome(tree)
            tally.count(found.partition(":")[0].lower())
            if found.startswith("FAILED"):
                tally.failures.append(f"a power cut after {number} operations: {found}: {sorted(files_of(tree))}")
            if found == "recovered":
                recovered.append((number, tree))
        for number, tree in dice.sample(recovered, min(len(recovered), round(RECOVERIES_CUT * share))):
            _cut(trial, judge, tree, f"a power cut after {number} operations", work / f"cut-{hand}", dice)
    return tally


def _cut(trial: Trial, judge: Judge, tree: Tree, what: str, place: Path, dice: random.Random) -> None:
    """Let the recovery of a state lose power at each of its operations."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    clone(trial.create(tree), place / "before")
    clone(place / "before", place / "recovered")
    log_dir = place / "recovered"
    recording = record(log_dir, lambda: recover(log_dir / scene.ORDERS, log_dir=log_dir, foreign=True))
    again = Trial(judge, recording, place / "before", place / "again", trial.tally)
    for number, disk in recording.disks():
        for state in disk.trees(3, dice):
            trial.tally.count("states of cut recoveries")
            found = again.outcome(state)
            if found not in ("recovered", "by hand"):
                trial.tally.fail(f"{what}, and in its recovery after {number}: {found}")
