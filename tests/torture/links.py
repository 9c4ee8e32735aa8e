"""The owner of a directory puts a link in its place, at every call of a run of root, and all the time by a thread.

Nothing may be created, changed, given away or deleted where the link leads.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from functools import partial
from pathlib import Path

from kcompact.errors import KcompactError
from tests.support.swapped_links import ATTACKS, attacked_at, make_scene, state_of, swapping
from tests.torture.tally import Tally

TURNS = 300
"""Runs while a thread swaps a directory for a link and back."""


def run(*, share: float, seed: int) -> Tally:
    """Attack every run before each of its calls, then by a thread; count the runs."""
    tally, chance = Tally(), random.Random(seed)
    for attack in ATTACKS:
        number, ran = 0, True
        while ran:
            number += 1
            if number > 1 and chance.random() >= share:
                continue
            with tempfile.TemporaryDirectory() as root:
                ran, changed = attacked_at(attack, number, Path(root))
            if changed:
                tally.fail(f"{attack}, before call {number}: changed {changed}")
            tally.count("attacks at a call", int(ran))
    for attack in ("clean, staging", "clean, partition", "copy of a log directory, marker"):
        _race(attack, round(TURNS * share / 3), tally)
    return tally


def _race(attack: str, runs: int, tally: Tally) -> None:
    act, target = ATTACKS[attack]
    for number in range(runs):
        with tempfile.TemporaryDirectory() as root:
            scene = make_scene(Path(root))
            before = state_of(scene.elsewhere)
            with (
                swapping(partial(target, scene), scene.elsewhere) as turns,
                contextlib.suppress(KcompactError, OSError),
            ):
                act(scene, lambda: None)
            tally.count("runs under a thread that swaps")
            tally.count("swaps of that thread", turns[0])
            if state_of(scene.elsewhere) != before:
                tally.fail(f"{attack}, run {number} of the race: something was changed elsewhere")
