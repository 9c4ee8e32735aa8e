"""A directory's owner puts a link in the place of a directory while root works in it.

`elsewhere` is where the link leads: a directory with files of the same names. Nothing in it may be created, changed,
given away or deleted, whatever moment the owner chooses.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.partition import clean_partition, perform
from kcompact.cleaner.retention import apply_retention
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.swap.copy import Output
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.recovery.interrupted_round import recover
from kcompact.swap.steps import Step
from tests.support import log_dsl, log_writer
from tests.support.command_line import DIRTY

STAGING = ".kcompact-" + "[0-9a-f]" * 16
Touch = Callable[[Path], object]
OWNER = 1234
CALLS = (
    "open",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "replace",
    "fchown",
    "chown",
    "fchmod",
    "chmod",
    "listdir",
    "stat",
)
"""The owner acts before a call of one of these."""


class Scene(NamedTuple):
    """A log directory of OWNER, the directory for a copy, and the directory that the links lead to."""

    log_dir: Path
    partition: Path
    output: Path
    elsewhere: Path


def make_scene(root: Path) -> Scene:
    """Write a dirty partition, and a directory elsewhere with files of the same names at every level."""
    spec = replace(log_dsl.parse(DIRTY), name="orders-0")
    partition = log_writer.write(spec, root / "data")
    (root / "data" / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nother 0 7\n")
    elsewhere = root / "elsewhere"
    shutil.copytree(root / "data", elsewhere)
    shutil.copytree(partition, elsewhere, dirs_exist_ok=True)
    (elsewhere / partition.name / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n1 4\n")
    for path in (root / "data", *(root / "data").rglob("*")):
        os.chown(path, OWNER, OWNER)
    (root / "out").mkdir()
    os.chown(root / "out", OWNER, OWNER)
    return Scene(root / "data", partition, root / "out", elsewhere)


def state_of(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Return name, kind, mode, owner, links and content of everything in a directory."""
    found = {}
    for path in (directory, *sorted(directory.rglob("*"))):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        name = str(path.relative_to(directory))
        found[name] = (status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_mtime_ns, content)
    return found


# --- What is done, and what is swapped ----------------------------------------------------------------------


Begin = Callable[[], None]
"""Called when what a path leads to is decided: the log directory is locked, the path of the output is resolved."""


def plan_of(scene: Scene, settings: str = "") -> CleanPlan:
    spec = log_dsl.parse(DIRTY.replace("now=10:00", f"now=10:00 {settings}"))
    return plan_partition(scene.partition, spec.config, now_ms=spec.now_ms, force=True)


def clean(scene: Scene, begin: Begin) -> None:
    with log_dir_lock(scene.log_dir) as lock:
        begin()
        clean_partition(plan_of(scene), InProcess(parallelism=1), lock=lock)


def delete_expired(scene: Scene, begin: Begin) -> None:
    plan = plan_of(scene, "cleanup.policy=compact,delete retention.bytes=1 min.compaction.lag.ms=99999999")
    with log_dir_lock(scene.log_dir) as lock:
        begin()
        apply_retention(plan, plan.log, lock, CleanOptions(apply_retention=True))


def copy_partition(scene: Scene, begin: Begin) -> None:
    output = Output(scene.output, [scene.partition])
    begin()
    with output:
        options = CleanOptions(output=scene.output)
        executor = InProcess(parallelism=1)
        perform(Cleaning(plan=plan_of(scene), executor=executor, lock=None, options=options, output=output))
        output.finish()


def copy_log_dir(scene: Scene, begin: Begin) -> None:
    path = scene.output / "copy"
    output = Output(path, log_dir=scene.log_dir)
    begin()
    with output:
        options = CleanOptions(output=path)
        executor = InProcess(parallelism=1)
        perform(Cleaning(plan=plan_of(scene), executor=executor, lock=None, options=options, output=output))
        output.finish()


class Stopped(BaseException):
    """The process ends here."""


def recover_it(scene: Scene, begin: Begin) -> None:
    def stops(directory: OpenDirectory, steps: Sequence[Step], *_: object, **__: object) -> None:
        apply_steps(directory, steps[:8])
        raise Stopped

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
        patch.setattr("kcompact.swap.replace.apply_steps", stops)
        clean(scene, lambda: None)
    with log_dir_lock(scene.log_dir) as lock:
        begin()
        recover(scene.partition, log_dir=scene.log_dir, lock=lock)


Act = Callable[[Scene, Begin], None]
Target = Callable[[Scene], Path | None]


def matching(parent: Callable[[Scene], Path], pattern: str) -> Target:
    def find(scene: Scene) -> Path | None:
        found = [path for path in parent(scene).glob(pattern) if path.is_dir() and not path.is_symlink()]
        return found[0] if found else None

    return find


ATTACKS: dict[str, tuple[Act, Target]] = {
    "clean, staging": (clean, matching(lambda scene: scene.partition, STAGING)),
    "clean, partition": (clean, lambda scene: scene.partition),
    "clean, log directory": (clean, lambda scene: scene.log_dir),
    "recovery, staging": (recover_it, matching(lambda scene: scene.partition, STAGING)),
    "recovery, partition": (recover_it, lambda scene: scene.partition),
    "recovery, log directory": (recover_it, lambda scene: scene.log_dir),
    "retention, log directory": (delete_expired, lambda scene: scene.log_dir),
    "copy of a partition, marker": (copy_partition, matching(lambda scene: scene.output, ".kcompact-copy")),
    "copy of a partition, output": (copy_partition, lambda scene: scene.output),
    "copy of a log directory, marker": (copy_log_dir, matching(lambda scene: scene.output, "copy/.kcompact-copy")),
    "copy of a log directory, output": (copy_log_dir, matching(lambda scene: scene.output, "copy")),
    "copy of a log directory, above it": (copy_log_dir, lambda scene: scene.output),
    "copy of a log directory, source": (copy_log_dir, lambda scene: scene.partition),
}


# --- At a given call ----------------------------------------------------------------------------------------


def swap_for_link(path: Path, elsewhere: Path) -> None:
    """Do what an owner can: rename the directory, and give its name to a link."""
    path.rename(path.with_name(f"{path.name}.moved"))
    path.symlink_to(elsewhere)


@contextlib.contextmanager
def before_call(number: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """Call `act` before the call of this number among CALLS; yield a list that counts the calls.

    Set its number to 0 to begin.
    """
    counted = [-1_000_000]
    is_acting = False
    really = {name: getattr(os, name) for name in CALLS}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal is_acting
            if not is_acting:
                counted[0] += 1
                if counted[0] == number:
                    is_acting = True
                    act()
                    is_acting = False
            return really[name](*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counting(name))
        yield counted


def attacked_at(attack: str, number: int, root: Path) -> tuple[bool, str]:
    """Run one attack before the call of this number.

    Return whether the run had so many calls, and what was changed elsewhere, empty if nothing.
    """
    scene = make_scene(root)
    act, target = ATTACKS[attack]
    before = state_of(scene.elsewhere)

    def swap() -> None:
        path = target(scene)
        if path is not None:
            swap_for_link(path, scene.elsewhere)

    with before_call(number, swap) as counted, contextlib.suppress(KcompactError, OSError):
        act(scene, lambda: counted.__setitem__(0, 0))
    after = state_of(scene.elsewhere)
    return counted[0] >= number, ", ".join(sorted(name for name, _ in before.items() ^ after.items()))


# --- In a loop, by another thread ---------------------------------------------------------------------------


@contextlib.contextmanager
def swapping(target: Callable[[], Path | None], elsewhere: Path) -> Iterator[list[int]]:
    """Swap a directory for a link and back, as fast as it goes, while the block runs; yield the number of turns."""
    turns, ended = [0], threading.Event()

    def swap() -> None:
        while not ended.is_set():
            path = target()
            if path is None:
                continue
            moved = path.with_name(f"{path.name}.moved")
            with contextlib.suppress(OSError):
                path.rename(moved)
                path.symlink_to(elsewhere)
                turns[0] += 1
                path.unlink()
                moved.rename(path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield turns
    finally:
        ended.set()
        thread.join()
