"""Groups in another order than the ascending one: whenever the run stops, readers see what they saw before.

Only a group that sets or applies delete horizons must wait for all groups before it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.groups import count_groups
from kcompact.clean.prepare import prepare_clean
from kcompact.cleaner import partition, space
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import clean_log_dir
from kcompact.engine.in_process import InProcess
from kcompact.errors import CleaningAbortedError
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import plan_partition
from kcompact.swap.replace import replace_segments
from tests.support import log_dsl, log_writer
from tests.support.committed_view import committed_view, misleads
from tests.support.log_writer import LogSpec

HEAD = "log now=10:00 min.cleanable.dirty.ratio=0 name=orders-0 segment.bytes="
PLAIN = f"""\
{HEAD}900
0: a=1 b=1 c=*600
3: a=2 d=1 c=*600
6: b=2 e=1 d=*600
9: c=3 f=*600
11: a=9
"""
TRANSACTIONS = f"""\
{HEAD}900
0: a=1 a=2(pid=7 txn) b=no(pid=8 txn) x=*500
4: c=no(pid=8 txn seq=1) abort(pid=8) x=*500
7: c=1 commit(pid=7) a=3(pid=8 txn seq=2) x=*500
11: abort(pid=8) a=4(pid=7 txn seq=1) x=*500
14: b=2 commit(pid=7) x=*500
17: c=9
txnindex 4: pid=8 first=2 last=5 stable=6
txnindex 11: pid=8 first=9 last=11 stable=12
"""
NEW_TOMBSTONES = f"""\
{HEAD}900
0: a=1 b=1 c=1 x=*600
4: [a=~] b=2 x=*600
7: d=1 x=*600
9: [c=~] x=*600
11: e=1
"""
OLD_TOMBSTONES = NEW_TOMBSTONES.replace("=~]", "=~](horizon=09:30)")

LATER_MS = 3 * 86_400_000
"""Past all horizons of the first cleaning."""


def clean(spec: LogSpec, log_dir: Path, *, later_ms: int = 0) -> PartitionOutcome:
    plan_options = PlanOptions(now_ms=spec.now_ms + later_ms, force=True)
    (outcome,) = clean_log_dir(
        log_dir, {"cleanup.policy": "compact", **spec.settings}, plan_options=plan_options
    ).partitions
    return outcome


def waiting_groups(spec: LogSpec, directory: Path) -> list[bool]:
    """Return for each group whether it must wait for all groups before it."""
    cleaning = prepare_clean(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess(parallelism=1))
    return [size.keeps_order for size in count_groups(cleaning).sizes]


def clean_in_order(
    spec: LogSpec, log_dir: Path, order: Sequence[int], swaps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clean one group after the other in an order, and stop after so many swaps."""
    done: list[object] = []

    def counted(*arguments: Any, **options: Any) -> None:
        if len(done) == swaps:
            raise CleaningAbortedError(path=log_dir)
        done.append(arguments)
        replace_segments(*arguments, **options)

    def ordered(self: space._Sizes, numbers: Sequence[int], *_: object, **__: object) -> list[int]:
        return [number for number in order if number in numbers]

    def one_by_one(self: space._Sizes, left: Sequence[int], *_: object, **__: object) -> space.Wave:
        return space.Wave([left[0]], 0, 0)

    with monkeypatch.context() as patched:
        patched.setattr(partition, "replace_segments", counted)
        patched.setattr(space._Sizes, "order", ordered)
        patched.setattr(space._Sizes, "wave", one_by_one)
        outcome = clean(spec, log_dir)
    assert isinstance(outcome.error, CleaningAbortedError) == (swaps < len(order))
    assert (log_dir / "cleaner-offset-checkpoint").exists() == (swaps == len(order))


def allowed_orders(waits: Sequence[bool]) -> list[tuple[int, ...]]:
    return [
        order
        for order in permutations(range(len(waits)))
        if all(set(range(number)) <= set(order[: order.index(number)]) for number in order if waits[number])
    ]


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        (PLAIN, [False, False, False, False]),
        (TRANSACTIONS, [False, False, False, False, False]),
        (NEW_TOMBSTONES, [False, True, False, True]),
        (OLD_TOMBSTONES, [False, True, False, True]),
    ],
    ids=["plain", "transactions", "new tombstones", "old tombstones"],
)
def test_an_order_that_is_allowed_never_changes_what_readers_see(
    text: str, waits: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse(text)
    original = log_writer.write(spec, tmp_path / "original")
    assert waiting_groups(spec, original) == waits
    before, dice = committed_view(original), random.Random(1)
    orders = allowed_orders(waits)
    for order in dice.sample(orders, min(2, len(orders))):
        for swaps in range(1, len(order)):
            log_dir = tmp_path / "run"
            shutil.rmtree(log_dir, ignore_errors=True)
            shutil.copytree(original.parent, log_dir)
            clean_in_order(spec, log_dir, order, swaps, monkeypatch)
            for later_ms in (0, LATER_MS):
                assert committed_view(log_dir / "orders-0") == before, (order, swaps)
                assert not misleads(log_dir / "orders-0", 0), (order, swaps)
                assert clean(spec, log_dir, later_ms=later_ms).error is None
            assert committed_view(log_dir / "orders-0") == before, (order, swaps)


def test_a_deleted_key_would_return_if_its_tombstone_did_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse(OLD_TOMBSTONES)
    directory = log_writer.write(spec, tmp_path)
    before = committed_view(directory)
    clean_in_order(spec, tmp_path, (3, 0, 1, 2), 1, monkeypatch)
    assert committed_view(directory) == before | {b"c": b"1"}
