"""The order of the groups on a disk that is nearly full, compared with all possible orders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest

from kcompact.cleaner.order import Need, best_order, least_free_bytes, least_free_bytes_of_all

END = 4


def need(peak: int, freed: int, *, keeps_order: bool = False, manifest: int = 0) -> Need:
    return Need(peak_bytes=peak, manifest_bytes=manifest, freed_bytes=freed, keeps_order=keeps_order)


def numbered(needs: Iterable[Need]) -> dict[int, Need]:
    return dict(enumerate(needs))


def fits(needs: dict[int, Need], order: Sequence[int], free: int, end: int) -> bool:
    """Do the groups one by one, as the swap does: the old manifest stays until the new one is complete."""
    present = 0
    for number in order:
        peak, manifest, freed, _ = needs[number]
        if peak > free:
            return False
        free += present - manifest + freed
        present = manifest
    return end <= free


def is_allowed(needs: dict[int, Need], order: Sequence[int]) -> bool:
    place = {number: position for position, number in enumerate(order)}
    return all(
        place[before] < place[number]
        for number in needs
        if needs[number].keeps_order
        for before in needs
        if before < number
    )


@pytest.mark.parametrize(
    ("needs", "free", "order"),
    [
        # The first group fits only after another one has freed space.
        ([need(100, 0), need(10, 90)], 50, [1, 0]),
        # Of those that fit, the one first that frees most per byte needed.
        ([need(200, -50), need(10, 20), need(20, 60), need(30, 30)], 89, None),
        ([need(200, -50), need(10, 20), need(20, 60), need(30, 30)], 90, [2, 1, 3, 0]),
        # One opens the way for the next.
        ([need(90, 10), need(50, 50), need(20, 40)], 20, [2, 1, 0]),
        # Of those that take space, the one first that leaves most of what it needs.
        ([need(40, -40), need(60, -30)], 60, None),
        ([need(20, -20), need(60, -10)], 60, [1, 0]),
        # The second one must wait for the first, and frees too late.
        ([need(100, 0), need(10, 90, keeps_order=True)], 50, None),
        ([need(100, 0), need(10, 90, keeps_order=True), need(10, 60)], 50, [2, 0, 1]),
        # A group that frees nothing goes before one that waits for it.
        ([need(10, -10), need(15, 90, keeps_order=True), need(90, 0)], 30, [0, 1, 2]),
        # The checkpoint must fit in the end.
        ([need(10, -10)], 13, None),
        ([need(10, -10)], 14, [0]),
    ],
)
def test_an_order(needs: list[Need], free: int, order: list[int] | None) -> None:
    assert best_order(numbered(needs), free, end_bytes=END) == order


def some_needs(dice: random.Random, *, keeps_order: float, manifest: int) -> dict[int, Need]:
    needs = []
    for _ in range(dice.randint(1, 5)):
        staged, own_manifest = dice.randint(0, 20), dice.randint(0, manifest)
        freed = dice.randint(0, 25) - staged
        needs.append(need(staged + own_manifest, freed, keeps_order=dice.random() < keeps_order, manifest=own_manifest))
    return numbered(needs)


def test_an_order_is_found_where_there_is_one() -> None:
    dice = random.Random(1)
    found = 0
    for _ in range(600):
        needs = some_needs(dice, keeps_order=0, manifest=0)
        free = dice.randint(0, 40)
        exists = any(fits(needs, order, free, END) for order in permutations(needs))
        assert (best_order(needs, free, end_bytes=END) is not None) == exists, (needs, free)
        found += exists
    assert 200 < found < 500


def test_an_order_that_is_found_fits_and_keeps_the_rule() -> None:
    dice = random.Random(2)
    found = missed = 0
    for _ in range(600):
        needs = some_needs(dice, keeps_order=0.3, manifest=3)
        free = dice.randint(0, 40)
        order = best_order(needs, free, end_bytes=END)
        if order is not None:
            found += 1
            assert sorted(order) == sorted(needs)
            assert is_allowed(needs, order)
            assert fits(needs, order, free, END)
            assert least_free_bytes(needs, order, end_bytes=END)[0] <= free
        else:
            missed += any(is_allowed(needs, each) and fits(needs, each, free, END) for each in permutations(needs))
    assert found > 200
    assert missed < 30  # Only by the space of a manifest, or among groups that take space.


def test_the_least_free_space_is_exact() -> None:
    dice = random.Random(3)
    for _ in range(300):
        needs = some_needs(dice, keeps_order=0.3, manifest=3)
        order = dice.sample(sorted(needs), len(needs))
        least = least_free_bytes(needs, order, end_bytes=END)[0]
        assert fits(needs, order, least, END)
        assert not fits(needs, order, least - 1, END)
        of_all = least_free_bytes_of_all(needs, end_bytes=END, block_bytes=1)
        assert of_all <= least_free_bytes(needs, sorted(needs), end_bytes=END)[0]
        if best_order(needs, of_all, end_bytes=END) is None:
            assert fits(needs, sorted(needs), of_all, END)
