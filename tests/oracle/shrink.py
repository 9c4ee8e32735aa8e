"""A spec that differs, made small: whatever can be left out while it still differs is left out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.oracle.real_kafka import Json

Differs = Callable[[Json], list[str]]


def shrink(spec: Json, found: list[str], differs: Differs, *, seconds: float) -> tuple[Json, list[str]]:
    """Return a smaller spec and what differs in it. Greedy, and no longer than `seconds`."""
    deadline = time.monotonic() + seconds
    kind = _kind(found)
    shrunk = True
    while shrunk and time.monotonic() < deadline:
        shrunk = False
        for path in list(_lists(spec)):
            size = max(1, len(_at(spec, path)) // 2)
            while size and time.monotonic() < deadline:
                start = 0
                while start < len(_at(spec, path)) and time.monotonic() < deadline:
                    smaller = copy.deepcopy(spec)
                    del _at(smaller, path)[start : start + size]
                    lines = differs(smaller) if _is_whole(smaller) else []
                    if lines and _kind(lines) == kind:
                        spec, found, shrunk = smaller, lines, True
                    else:
                        start += size
                size //= 2
    return spec, found


def _kind(lines: Sequence[str]) -> str:
    """What a difference is about, without the numbers: a smaller spec must not differ for another reason."""
    text = lines[0].partition(": ")[2]
    return "".join(character for character in text if character.isalpha())[:24]


def _lists(spec: Json) -> Iterator[tuple[Any, ...]]:
    """Yield where the lists are whose members can be left out, the last rounds first, large ones before small ones."""
    yield ("rounds",)
    for number in reversed(range(len(spec["rounds"]))):
        yield ("rounds", number, "writes")
    for number, settings in enumerate(spec["rounds"]):
        for number_of_write in range(len(settings["writes"])):
            yield ("rounds", number, "writes", number_of_write, "actions")
    for number, settings in enumerate(spec["rounds"]):
        for number_of_write, request in enumerate(settings["writes"]):
            for index, action in enumerate(request["actions"]):
                if len(action.get("records", ())) > 1:
                    yield ("rounds", number, "writes", number_of_write, "actions", index, "records")


def _at(spec: Json, path: Sequence[Any]) -> list[Any]:
    """Return a list of the spec; an empty one where an earlier cut took it away."""
    part: Any = spec
    for step in path:
        try:
            part = part[step]
        except (IndexError, KeyError):
            return []
    found: list[Any] = part
    return found


def _is_whole(spec: Json) -> bool:
    requests = [request for settings in spec["rounds"] for request in settings["writes"]]
    return bool(requests) and all(action.get("records", True) for r in requests for action in r["actions"])
