"""Disks that really fill up, and the limits of a process: on the size of files, and on the number of open ones.

The disks are small ones in memory, for the log directory, for the output of copies, and for TMPDIR. A ballast leaves
some KiB free, fewer and fewer. Each run ends with exit code 7 or is done, and an unfinished one gives back its space.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.crash import clone
from tests.support.disk_in_memory import disk_in_memory
from tests.torture.children import one_core, scratch, side_by_side
from tests.torture.faulty_runs import (
    Ran,
    Scene,
    load_everything,
    prepare_scene,
    scenes,
    state_problems,
    view_problems,
)
from tests.torture.faulty_runs import (
    run as run_command,
)
from tests.torture.plain_reader import contents
from tests.torture.tally import Tally

BLOCK_BYTES = 4096
DISK_BYTES = 2 << 20
MOST_FREE_BLOCKS = 72
"""With so much free, every run gets done."""
PLACES = (
    ("logs", "clean"),
    ("logs", "clean in pieces"),
    ("logs", "retention"),
    ("out", "output"),
    ("tmp", "clean in pieces"),
)
"""What is on a small disk, and the scene."""
FILE_BYTES = range(0, 2400, 60)
OPEN_FILES = range(4, 60, 2)
"""Limits; at the greatest ones every run gets done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run on a disk with so much free, or with a limit of `setrlimit`."""

    scene: Scene
    place: str = ""
    free_bytes: int = 0
    limit: tuple[int, int] | None = None

    def __str__(self) -> str:
        how = f"{self.free_bytes} bytes free in {self.place}" if self.limit is None else f"limit {self.limit}"
        return f"{self.scene.name}, {how}"


def run(*, share: float, seed: int) -> Tally:
    """Run on disks and with limits of many sizes; at a smaller share, on some of them."""
    assert os.geteuid() == 0, "small disks are mounted by root only"
    load_everything()
    with scratch() as directory, one_core():
        prepared = {scene.name: scene for scene in scenes() if scene.interrupted is None}
        for number, scene in enumerate(prepared.values()):
            prepare_scene(scene, directory / f"disk-{number}")
        trials = [
            Trial(scene=prepared[name], place=place, free_bytes=blocks * BLOCK_BYTES)
            for place, name in PLACES
            for blocks in range(MOST_FREE_BLOCKS)
        ]
        for name in ("clean", "clean in pieces", "output"):
            trials += [Trial(scene=prepared[name], limit=(resource.RLIMIT_FSIZE, size)) for size in FILE_BYTES]
            trials += [Trial(scene=prepared[name], limit=(resource.RLIMIT_NOFILE, most)) for most in OPEN_FILES]
        step = max(1, round(1 / share))
        return side_by_side(_tried, trials[seed % step :: step])


def _tried(trials: Sequence[Trial]) -> Tally:
    tally = Tally()
    for trial in trials:
        home = trial.scene.home.with_name(f"{os.getpid()}-small")
        problems, code = _problems(trial, home)
        if problems:
            tally.fail(f"{trial}: {'; '.join(problems)}")
        else:
            tally.count(
                "done on a small disk or with a limit"
                if code == 0
                else f"stopped with {code} by a small disk or a limit"
            )
    return tally


def _problems(trial: Trial, home: Path) -> tuple[list[str], int]:
    scene = trial.scene
    clone(scene.home, home)
    try:
        if trial.limit is not None:
            ran = run_command(scene, home, limit=trial.limit)
            problems = _of_answer(trial, ran)
        else:
            with _small_disk(home / trial.place, trial.free_bytes) as free_before:
                ran = run_command(scene, home)
                problems = _of_answer(trial, ran)
                free_after = _free_bytes(home / trial.place)
                if ran.code and free_after < free_before - BLOCK_BYTES:  # The lock file has no content.
                    problems.append(f"{free_before - free_after} bytes are taken for good: {sorted(contents(home))}")
                shutil.copytree(home / trial.place, home / "kept", copy_function=shutil.copy2, dirs_exist_ok=True)
            shutil.rmtree(home / trial.place)
            (home / "kept").rename(home / trial.place)
        (home / trial.place / "ballast").unlink(missing_ok=True)
        problems += _afterwards(scene, home, ran)
    finally:
        shutil.rmtree(home)
    return problems, ran.code


def _of_answer(trial: Trial, ran: Ran) -> list[str]:
    if ran.code < 0 or "Traceback" in ran.errors or "bug of kcompact" in ran.errors:
        return [f"it broke: {ran.errors}"]
    expected = {0, 7}
    if trial.limit is not None and trial.limit[0] == resource.RLIMIT_NOFILE:
        expected = {0, 1}
    if trial.limit is not None and "standard output: File too large" in ran.errors:
        expected |= {1}  # The report is a file too.
    if trial.limit == (resource.RLIMIT_FSIZE, 0) and "No usable temporary directory" in ran.errors:
        expected |= {4}  # Python tries a directory by writing a file there.
    return [f"the exit code is {ran.code}: {ran.errors}"] if ran.code not in expected else []


def _afterwards(scene: Scene, home: Path, ran: Ran) -> list[str]:
    problems = [f"at once: {problem}" for problem in state_problems(scene, home, is_over=True)]
    problems += [f"left in TMPDIR: {path.name}" for path in (home / "tmp").iterdir()]
    if not scene.is_copy or contents(home / "out") != scene.after:
        again = run_command(Scene(name="again", command=scene.command, in_pieces=scene.in_pieces), home)
        problems += [f"it does not run again: {again.errors}"] if again.code else []
        after = state_problems(scene, home, is_over=True, is_regrouped=ran.code != 0)
        problems += [f"afterwards: {problem}" for problem in after]
    if scene.is_copy and contents(home / "out") != scene.after:
        problems.append("afterwards: the copy is another one")
    return problems + view_problems(scene, home)


@contextmanager
def _small_disk(place: Path, free_bytes: int) -> Iterator[int]:
    """Move a directory to a disk in memory with so much free while the block runs; yield what is free."""
    aside = place.with_name(f"{place.name}-aside")
    place.rename(aside)
    with disk_in_memory(place, str(DISK_BYTES)):
        shutil.copytree(aside, place, dirs_exist_ok=True)
        shutil.rmtree(aside)
        with (place / "ballast").open("wb") as ballast:
            ballast.write(bytes(_free_bytes(place) - free_bytes))
        yield _free_bytes(place)


def _free_bytes(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize
