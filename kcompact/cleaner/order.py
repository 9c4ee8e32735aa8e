"""The order in which the groups of a partition are replaced on a disk that is nearly full. Pure.

The new files of a group are complete before its old ones go, so each group needs space first and frees some then. Where
the ascending order does not fit, groups that free space go first. A group that sets or applies delete horizons waits
for all groups before it: otherwise a run that is interrupted could leave an old value without the tombstone that
deletes it. `docs/decisions/0012-waves-and-full-disks.md` has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Need(NamedTuple):
    """The space for one group, in bytes: while it is written, and what its swap frees, less than 0 if it takes more.

    `manifest_bytes` are part of `peak_bytes`. They are not freed: the manifest stays until another one takes its place.
    """

    peak_bytes: int
    manifest_bytes: int
    freed_bytes: int
    keeps_order: bool = False


def least_free_bytes(
    needs: Mapping[int, Need], order: Sequence[int], *, end_bytes: int, present_bytes: int = 0
) -> list[int]:
    """Return the least space with which the groups get done one by one in this order, `end_bytes` after the last.

    `present_bytes` is a manifest that is there already; its space counts as free, and so does that of all others. The
    first element is that of all groups, the next one that of all but the first, and so on.
    """
    rests = [end_bytes]
    least = end_bytes + (needs[order[-1]].manifest_bytes if order else 0)
    for position in range(len(order) - 1, -1, -1):
        need = needs[order[position]]
        least -= need.freed_bytes
        rests.append(max(need.peak_bytes + (0 if position else present_bytes), least))
        if position:
            least = max(need.peak_bytes + needs[order[position - 1]].manifest_bytes, least)
    return rests[::-1]


def best_order(
    needs: Mapping[int, Need], free_bytes: int, *, end_bytes: int, present_bytes: int = 0
) -> list[int] | None:
    """Return an order of the groups that fits the free space, None if none is found. See `least_free_bytes`.

    Of the groups that fit and free space, the one comes first that frees most per byte needed. Then, one by one, those
    that take space, the one first that leaves most of what it needs.
    """
    order = _Ordering(needs, free_bytes, present_bytes).order()
    if order is None:
        return None
    least_bytes = least_free_bytes(needs, order, end_bytes=end_bytes, present_bytes=present_bytes)[0]
    return order if least_bytes <= free_bytes else None


def least_free_bytes_of_all(
    needs: Mapping[int, Need], *, end_bytes: int, present_bytes: int = 0, block_bytes: int
) -> int:
    """Return the least space with which the groups get done in any order that is found, in whole blocks."""
    ascending = least_free_bytes(needs, sorted(needs), end_bytes=end_bytes, present_bytes=present_bytes)[0]
    too_few, enough = 0, -(-ascending // block_bytes)
    while too_few + 1 < enough:
        middle = (too_few + enough) // 2
        order = best_order(needs, middle * block_bytes, end_bytes=end_bytes, present_bytes=present_bytes)
        too_few, enough = (middle, enough) if order is None else (too_few, middle)
    return enough * block_bytes


class _Ordering:
    """The groups that are done, and those that are left. What frees space and need not wait can come at any time."""

    def __init__(self, needs: Mapping[int, Need], free_bytes: int, present_bytes: int) -> None:
        self._needs = needs
        self._free_bytes = free_bytes
        self._present_bytes = present_bytes
        self._most_manifest_bytes = max(need.manifest_bytes for need in needs.values())
        self._done: dict[int, None] = {}
        self._ascending = sorted(needs)
        # Groups that free space. What does not fit yet waits, the smallest first; of what fits, the best is first.
        self._waiting = [(need.peak_bytes, number) for number, need in needs.items() if _is_free(need)]
        self._fitting: list[tuple[float, int]] = []
        heapify(self._waiting)

    def order(self) -> list[int] | None:
        """Return the order, None if a group does not fit."""
        start = 0
        for position, number in enumerate(self._ascending):
            if self._needs[number].keeps_order:
                self._do_freeing()
                if not (self._do_others(self._ascending[start:position]) and self._do(number)):
                    return None
                start = position + 1
        self._do_freeing()
        return list(self._done) if self._do_others(self._ascending[start:]) else None

    def _do_freeing(self) -> None:
        """Do what can come at any time and frees space, as long as anything of it fits."""
        while True:
            while self._waiting and self._waiting[0][0] <= self._usable_bytes():
                _, number = heappop(self._waiting)
                need = self._needs[number]
                heappush(self._fitting, (-need.freed_bytes / max(1, need.peak_bytes), number))
            if not self._fitting:
                return
            self._do(heappop(self._fitting)[1])

    def _do_others(self, numbers: Sequence[int]) -> bool:
        """Do those of some groups that are left. They take space, or they do not fit."""
        left = [number for number in numbers if number not in self._done]
        left.sort(key=lambda number: -(self._needs[number].peak_bytes + self._needs[number].freed_bytes))
        return all(self._do(number) for number in left)

    def _do(self, number: int) -> bool:
        need = self._needs[number]
        if need.peak_bytes > self._usable_bytes():
            return False
        self._free_bytes += need.freed_bytes
        self._done[number] = None
        return True

    def _usable_bytes(self) -> int:
        return self._free_bytes - (self._most_manifest_bytes if self._done else self._present_bytes)


def _is_free(need: Need) -> bool:
    return not need.keeps_order and need.freed_bytes > 0
