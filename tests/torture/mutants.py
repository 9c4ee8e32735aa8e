"""Swaps with an error in their protocol: the judge of `power_loss` must find states that they lose records in.

Each mutant is the recording of a whole cleaning with syncs removed or operations exchanged. Of the states that it can
leave and the right protocol cannot, a sample is loaded by Kafka and recovered by kcompact. A mutant without a bad state
is a failure of the judge, and so is a bad state of the right protocol.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kcompact.log.lock import LogDirLock
from kcompact.swap.steps import CLEANED, DELETED, SWAP, Remove, Rename, SyncDir
from tests.oracle.driver import build
from tests.oracle.real_kafka import RealKafka
from tests.support.crash import clone
from tests.support.power_loss import SyncFile, Tree
from tests.torture import scene
from tests.torture.children import in_child, one_core, scratch, side_by_side
from tests.torture.judge import Judge
from tests.torture.power_loss import Cuts, prepare, recorded, state_key
from tests.torture.recorded import Operation, Recording, files_of
from tests.torture.system_calls import Call, observed
from tests.torture.tally import Tally

Operations = Sequence[Operation]
STATES = 200
"""States of each mutant that are judged, at share 1."""
LEAST_STATES = 80
LIMIT = 256
"""Legal states after one operation, where there are more."""
EXTREMES = 0
"""As limit: only the states with all changes, none, all but one, or only one."""
TAIL = 45
"""Operations after the last one that differs, at which the power is cut too: the next group is begun by then."""


# --- Which operations -----------------------------------------------------------------------------------


def _renames_to(suffix: str) -> Callable[[Operation], bool]:
    return lambda operation: isinstance(operation, Rename) and operation.target.endswith(suffix)


def _renames_from(*suffixes: str) -> Callable[[Operation], bool]:
    return lambda operation: isinstance(operation, Rename) and operation.source.endswith(suffixes)


def _concerns(name: str) -> Callable[[Operation], bool]:
    """Whether an operation is about a file of this name, or its `.tmp`."""

    def concerns(operation: Operation) -> bool:
        named = operation.source if isinstance(operation, Rename) else operation.name
        return named.rpartition("/")[2].removesuffix(".tmp") == name

    return concerns


_is_checkpoint = _concerns(scene.CHECKPOINT_NAME)
_is_lock = _concerns(".lock")
_is_manifest = _concerns("manifest.json")


def _groups(operations: Operations) -> tuple[list[Operation], list[list[Operation]], list[Operation]]:
    """Return what comes before the swaps, the swap of each group, and what comes after them."""
    starts = [n for n, each in enumerate(operations) if _renames_to(f".index{CLEANED}")(each)]
    end = next(n for n, each in enumerate(operations) if _is_checkpoint(each))
    bounds = [*starts, end]
    swaps = [list(operations[low:high]) for low, high in itertools.pairwise(bounds)]
    return list(operations[: starts[0]]), swaps, list(operations[end:])


# --- What is wrong with them ----------------------------------------------------------------------------


def without_sync_after(
    matches: Callable[[Operation], bool], *, count: int = 1, of_staging: bool = False
) -> Callable[[Operations], list[Operation]]:
    """Return the mutation without the next syncs of the partition, or of the staging directory, after some operations.

    Only the first run of such operations is looked at, so the first group.
    """

    def mutate(operations: Operations) -> list[Operation]:
        first = next(n for n, each in enumerate(operations) if matches(each))
        syncs = [
            n
            for n, each in enumerate(operations)
            if n > first and isinstance(each, SyncDir) and (".kcompact-" in each.name) == of_staging
        ]
        return [each for n, each in enumerate(operations) if n not in syncs[:count]]

    return mutate


def without(matches: Callable[[Operation], bool]) -> Callable[[Operations], list[Operation]]:
    """Return the mutation without some operations."""
    return lambda operations: [each for each in operations if not matches(each)]


def checkpoint_first(operations: Operations) -> list[Operation]:
    before, swaps, after = _groups(operations)
    end = next(n for n, each in enumerate(after) if isinstance(each, SyncDir)) + 1
    return [*before, *after[:end], *itertools.chain(*swaps), *after[end:]]


def manifest_removed_early(operations: Operations) -> list[Operation]:
    before, swaps, after = _groups(operations)
    (removed,) = (each for each in after if isinstance(each, Remove) and _is_manifest(each))
    return [
        *before,
        *swaps[0][:10],
        removed,
        *swaps[0][10:],
        *itertools.chain(*swaps[1:]),
        *without(lambda each: each is removed)(after),
    ]


def two_groups_at_once(operations: Operations) -> list[Operation]:
    """Begin the first group, and swap the second before the first is committed."""
    before, swaps, after = _groups(operations)
    begun = next(n for n, each in enumerate(swaps[0]) if isinstance(each, SyncDir)) + 2
    return [*before, *swaps[0][:begun], *swaps[1], *swaps[0][begun:], *itertools.chain(*swaps[2:]), *after]


def two_groups_in_swap(operations: Operations) -> list[Operation]:
    """Commit the first and the third group together."""
    before, (first, second, third), after = _groups(operations)
    committed = next(n for n, each in enumerate(first) if _renames_to(f".log{DELETED}")(each))
    return [*before, *first[:committed], *third, *first[committed:], *second, *after]


def without_guard(operations: Operations) -> list[Operation]:
    """Rename straight from the staging directory to `.swap`."""
    changed: list[Operation] = []
    for each in operations:
        if _renames_from(CLEANED)(each):
            continue
        if isinstance(each, Rename) and each.target.endswith(CLEANED):
            changed.append(Rename(each.source, each.target.removesuffix(CLEANED) + SWAP))
        else:
            changed.append(each)
    return changed


def old_files_aside_first(operations: Operations) -> list[Operation]:
    """Set the old files aside before the new ones are committed."""
    before, (first, *others), after = _groups(operations)
    aside = [each for each in first if _renames_to(DELETED)(each)]
    rest = [each for each in first if each not in aside]
    commit = next(n for n, each in enumerate(rest) if _renames_to(SWAP)(each))
    return [*before, *rest[:commit], *aside, *rest[commit:], *itertools.chain(*others), *after]


def new_names_first(operations: Operations) -> list[Operation]:
    """Let the new files replace the old ones by name, and set only the others aside, afterwards."""
    before, (first, *others), after = _groups(operations)
    names = {each.target for each in first if isinstance(each, Rename) and _renames_from(SWAP)(each)}
    kept = [
        each
        for each in first
        if not (isinstance(each, Rename) and each.source in names)
        and not (isinstance(each, Remove) and each.name.removesuffix(DELETED) in names)
    ]
    aside = [each for each in kept if _renames_to(DELETED)(each)]
    rest = [each for each in kept if each not in aside]
    end = next(n for n, each in enumerate(rest) if isinstance(each, Remove))
    return [*before, *rest[:end], *aside, SyncDir(scene.ORDERS), *rest[end:], *itertools.chain(*others), *after]


MUTANTS: dict[str, tuple[str, Callable[[Operations], list[Operation]]]] = {
    "staged files not synced": (
        "clean",
        without(lambda each: isinstance(each, SyncFile) and ".kcompact-" in each.name and not _is_manifest(each)),
    ),
    "manifest not synced": ("clean", without(lambda each: isinstance(each, SyncFile) and _is_manifest(each))),
    "name of the manifest not synced": ("clean", without_sync_after(_renames_to("manifest.json"), of_staging=True)),
    "staging directory's name not synced": ("clean", without_sync_after(_renames_to("manifest.json"))),
    "no sync of the guard": ("clean", without_sync_after(_renames_to(CLEANED))),
    "no sync at the commit point": ("clean", without_sync_after(_renames_to(SWAP))),
    "no sync when old files are aside": ("clean", without_sync_after(_renames_to(f".log{DELETED}"), count=2)),
    "no sync between the groups": ("clean", without_sync_after(_renames_from(f"index{SWAP}"), count=2)),
    "checkpoint not synced": ("clean", without(lambda each: isinstance(each, SyncFile) and _is_checkpoint(each))),
    "checkpoint before the swaps": ("clean", checkpoint_first),
    "manifest removed early": ("clean", manifest_removed_early),
    "two groups begun": ("clean", two_groups_at_once),
    "two groups committed": ("clean", two_groups_in_swap),
    "no guard": ("clean", without_guard),
    "old files aside first": ("clean", old_files_aside_first),
    "new names first": ("clean", new_names_first),
    "retention: log and indexes together": ("retention alone", without_sync_after(_renames_to(f".log{DELETED}"))),
}
"""What each mutant does wrong, and in which recording."""


# --- Judging them ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Legal:
    """The states that the right protocol can leave, as far as they were enumerated."""

    keys: set[int]

    @staticmethod
    def of(recording: Recording, chance: random.Random) -> _Legal:
        return _Legal(
            {
                state_key(files_of(tree))
                for _, disk in recording.disks()
                for limit in (LIMIT, EXTREMES)
                for tree in disk.trees(limit, chance)
            }
        )


def new_states(right: Recording, mutant: Recording, legal: _Legal, chance: random.Random) -> list[Tree]:
    """Return the states around the operations that differ, without those that are legal.

    They have all changes, none, all but one, or only one: such a state is legal only where it was found to be.
    """
    pairs = zip(right.operations, mutant.operations, strict=False)
    first = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    backwards = zip(reversed(right.operations), reversed(mutant.operations), strict=False)
    last = len(mutant.operations) - sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], backwards))
    found: dict[int, Tree] = {}
    for number, disk in mutant.disks():
        if first <= number <= last + TAIL:
            for tree in disk.trees(EXTREMES, chance):
                found.setdefault(state_key(files_of(tree)), tree)
    return [tree for key, tree in found.items() if key not in legal.keys]


def _work(
    original: Path, work: Path, recordings: dict[str, Recording], share: float, seed: int, names: Sequence[str]
) -> Tally:
    tally, chance = Tally(), random.Random(seed)
    legal = {name: _Legal.of(recordings[name], chance) for name in sorted({MUTANTS[name][0] for name in names})}
    with Judge(original, work, only=scene.ORDERS) as judge:
        for number, name in enumerate(names):
            run, mutate = MUTANTS[name]
            right = recordings[run]
            mutant = right.with_operations(mutate(right.operations))
            assert mutant.operations != right.operations, name
            states = new_states(right, mutant, legal[run], chance)
            sample = chance.sample(states, min(len(states), max(LEAST_STATES, round(STATES * share))))
            place = work / f"mutant-{os.getpid()}-{number}"
            place.mkdir()
            cuts = Cuts(judge, mutant, original, place, run)
            bad = [problems[0] for tree in sample if (problems := cuts.problems(tree))]
            tally.count("states of mutants", len(sample))
            tally.count("bad states", len(bad))
            if bad:
                tally.count("mutants caught")
            else:
                tally.fail(f"{name}: none of {len(sample)} of {len(states)} new states is bad")
    return tally


# --- The lock -------------------------------------------------------------------------------------------


def _begun_without_lock(log_dir: Path, number: int, *, checks: bool) -> str:
    """Clean, and replace `.lock` after the call of this number; return what was begun after that, or "".

    Without `checks` kcompact does not look at `.lock` again.
    """
    begun: list[str] = []
    seen = 0
    lock = log_dir / ".lock"

    def after(call: Call) -> None:
        nonlocal seen
        if seen > number and (call.path.endswith(f".index{CLEANED}") or call.target.endswith(f".index{CLEANED}")):
            begun.append(str(call))
        if seen > number and _is_checkpoint(Rename(call.path, call.target)):
            begun.append(str(call))
        if seen == number:
            lock.rename(log_dir / "lock-of-a-broker-that-stops")
            lock.touch()
        seen += 1

    if not checks:
        LogDirLock.check = lambda self: None  # type: ignore[method-assign]
    with observed([log_dir / scene.ORDERS, log_dir / scene.CHECKPOINT_NAME], lambda call: None, after):
        scene.clean(log_dir, topics=("orders",))
    return " ".join(begun[:1])


def _lock(original: Path, work: Path, operations: Operations, tally: Tally) -> None:
    """Replace `.lock` before each swap and before the checkpoint: nothing may begin then."""
    before, swaps, _ = _groups(operations)
    first = sum(not _is_lock(each) for each in before) - 1
    counts = itertools.accumulate((len(swap) for swap in swaps), initial=first)
    bad = {True: 0, False: 0}
    for number in counts:
        for checks in (True, False):
            place = work / f"lock-{number}-{checks}"
            clone(original, place)
            bad[checks] += bool(in_child(partial(_begun_without_lock, place, number, checks=checks)))
    tally.count("lost locks", 2 * (len(swaps) + 1))
    if bad[True]:
        tally.fail(f"lock re-checked: {bad[True]} swaps or checkpoints began without it")
    if bad[False]:
        tally.count("mutants caught")
    else:
        tally.fail("lock not re-checked: nothing began without it")


def run(*, share: float, seed: int) -> Tally:
    """Judge a share of the states of each mutant."""
    build()
    names, tally = list(MUTANTS), Tally()
    random.Random(seed).shuffle(names)
    with scratch() as work:
        original = work / "original"
        with RealKafka() as kafka:
            prepare(kafka, original)
        recordings = recorded(original, work)
        with one_core():
            _lock(original, work, recordings["clean"].operations, tally)
        done = side_by_side(partial(_work, original, work, recordings, share, seed), names)
    done.outcomes.update(tally.outcomes)
    done.failures += tally.failures
    return done
