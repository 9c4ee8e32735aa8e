"""Whole commands on a small log directory, in forked children of this process, with calls that fail."""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import kcompact
from kcompact import kernels
from kcompact.clean import prepare
from kcompact.cleaner import cleaning
from kcompact.cli.app import main
from kcompact.engine import in_process
from kcompact.log.lock import LOCK_NAME
from tests.support import log_dsl, log_writer
from tests.support.crash import clone
from tests.support.patience import PATIENCE_S
from tests.torture.children import in_child
from tests.torture.faults import Call, Fault, Faults, _OpenFile, process_ends_at
from tests.torture.plain_reader import View, contents, read_view

ORDERS = """\
log name=orders-0 now=10:00 hw=27 start=0 checkpoint=0
0: a=1 a=2(pid=7 txn) abort(pid=7) b=*400
4: c=1 a=3(pid=8 txn) commit(pid=8) x=*400
8: b=2 d=1 d=2 y=*400
12: a=4(pid=7 txn seq=1) abort(pid=7) c=2 z=*400
16: e=1 f=1 a=5 b=*420
20: f=~ e=2 c=3 d=*400
24: a=6 g=1 b=9
txnindex 0: pid=7 first=1 last=2 stable=3
txnindex 12: pid=7 first=12 last=13 stable=14
snapshot 16: pid=9 last=3
snapshot 24: pid=9 last=3
"""
USERS = "log name=users-0 now=10:00 hw=7 checkpoint=0\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6"
EVENTS = "log name=events-0 now=10:00 hw=3 checkpoint=2\n0: a=1 b=1\n2: c=1"
GROUPS = {"orders-0": ((0, 4), (8, 12), (16, 20)), "users-0": ((0, 3),), "events-0": ()}
"""The segments that a cleaning makes one of. `events-0` has nothing to clean."""
CHECKPOINT = "cleaner-offset-checkpoint"

_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1400",
    "min.cleanable.dirty.ratio": "0",
    "index.interval.bytes": "100",
}
_RETENTION = {"cleanup.policy": "compact,delete", "orders:retention.bytes": "1500", "retention.ms": "-1"}


def _clean(*options: str, **settings: str) -> list[str]:
    """Return a command; HOME in an argument stands for the directory of the run."""
    config = [word for name, value in (_SETTINGS | settings).items() for word in ("--config", f"{name}={value}")]
    now = ("--now", "2024-01-01T10:00:00Z")
    return ["clean", "--engine", "in-process", "--json", *config, *now, *options, "HOME/logs"]


RECOVER = ["recover", "--json", "HOME/logs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command answered. `codes` are the exit codes of the partitions that failed.

    `hits` are the calls that failed, the first of each path. Its number can be that of another call in another run:
    keys are dealt to buckets by a hash with a random key.
    """

    code: int
    errors: str
    codes: tuple[int, ...] = ()
    hits: tuple[Call, ...] = ()


@dataclass(slots=True, kw_only=True)
class Scene:
    """A command on a prepared directory: `logs`, `tmp`, and `out` of a copy.

    `interrupted` is the call, and how many of it are done, at which a cleaning died before. With `in_pieces` the
    kernels work on small parts and spill keys, as for a large log.
    """

    name: str
    command: list[str]
    interrupted: tuple[str, int] | None = None
    in_pieces: bool = False
    home: Path = field(default_factory=Path)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    result: dict[str, str] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    escaped: tuple[str, ...] = ()

    @property
    def is_copy(self) -> bool:
        return any(word.startswith("HOME/out") for word in self.command)

    @property
    def expires(self) -> bool:
        return "--apply-retention" in self.command


def scenes() -> list[Scene]:
    """Return all scenes, not yet prepared."""
    return [
        Scene(name="clean", command=_clean()),
        Scene(name="clean in pieces", command=_clean("--memory", "64m"), in_pieces=True),
        Scene(name="output", command=_clean("--output", "HOME/out/copy")),
        Scene(name="retention", command=_clean("--apply-retention", **_RETENTION)),
        Scene(name="recover back", command=RECOVER, interrupted=("rename", 6)),
        Scene(name="recover forward", command=RECOVER, interrupted=("rename", 14)),
        Scene(name="recover the end", command=RECOVER, interrupted=("unlink", 3)),
    ]


def load_everything() -> None:
    """Import what a command would import, and load the kernels."""
    for module in pkgutil.walk_packages(kcompact.__path__, "kcompact."):
        if ".spark" not in module.name and not module.name.endswith(("__main__", "pytest_plugin")):
            importlib.import_module(module.name)
    kernels.library()


def prepare_scene(scene: Scene, home: Path) -> None:
    """Write the directory of a scene, and find out the calls of its command and what it leaves."""
    scene.home = home
    for text in (ORDERS, USERS, EVENTS):
        log_writer.write(log_dsl.parse(text), home / "logs")
    (home / "tmp").mkdir()
    (home / "out").mkdir()
    scene.before = contents(home / "logs")
    done = home.with_name(f"{home.name}-done")
    if scene.interrupted is not None:
        cleaned = done.with_name(f"{done.name}-cleaned")
        clone(home, cleaned)
        run(Scene(name="", command=_clean()), cleaned)
        scene.after = contents(cleaned / "logs")
        assert in_child(partial(_interrupted, home, *scene.interrupted)) == "", "the cleaning was not interrupted"
        (home / "logs" / LOCK_NAME).unlink()  # Clones of it would be the same file.
    clone(home, done)
    ran = run(scene, done, watches=True)
    assert ran.code == 0, ran
    seen = json.loads(_seen(done).read_text())
    scene.calls, scene.escaped = tuple(Call(*each) for each in seen["calls"]), tuple(seen["escaped"])
    scene.result = contents(done / "logs") | contents(done / "out")
    if scene.interrupted is None:
        scene.after = contents(done / ("out" if scene.is_copy else "logs"))


def _interrupted(home: Path, name: str, occurrence: int) -> str:
    with process_ends_at(name, occurrence):
        _command(home, _clean())
    return "it ended by itself"


def run(
    scene: Scene,
    home: Path,
    fault: Fault | None = None,
    *,
    watches: bool = False,
    limit: tuple[int, int] | None = None,
) -> Ran:
    """Run the command of a scene in a child. With `watches`, calls that escape the numbering are noted.

    `limit` is a resource of `setrlimit` and its limit while the command runs.
    """
    answer = in_child(partial(_in_child, scene, home, fault, watches, limit))
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        return Ran(code=-1, errors=answer)
    return Ran(
        code=found["code"],
        errors=found["errors"],
        codes=tuple(found["codes"]),
        hits=tuple(Call(*hit) for hit in found["hits"]),
    )


def _seen(home: Path) -> Path:
    return home.with_name(f"{home.name}.json")


def _in_child(scene: Scene, home: Path, fault: Fault | None, watches: bool, limit: tuple[int, int] | None) -> str:
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)  # A command that takes longer hangs, and is killed.
    if scene.in_pieces:
        _work_in_pieces()
    roots = [home / name for name in ("logs", "out", "tmp", "report")]
    # Runs at the same time are clones by hard links: each needs a report of its own.
    (home / "report").unlink(missing_ok=True)
    report = os.open(home / "report", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    errors = sys.stderr = io.StringIO()
    with Faults(roots, fault) as faults:
        if watches:
            faults.watch_for_escapes()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_OpenFile(report, "w", None, is_owner=False)))
        with _limited(limit):
            code = _command(home, scene.command)
    if watches:
        calls = [astuple(call) for call in faults.calls]
        _seen(home).write_text(json.dumps({"calls": calls, "escaped": faults.escaped}))
    return json.dumps(
        {
            "code": code,
            "errors": errors.getvalue(),
            "codes": _codes((home / "report").read_bytes()),
            "hits": [astuple(call) for call in faults.hits],
        }
    )


@contextmanager
def _limited(limit: tuple[int, int] | None) -> Iterator[None]:
    if limit is None:
        yield
        return
    number, value = limit
    before = resource.getrlimit(number)
    resource.setrlimit(number, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(number, before)


def _command(home: Path, command: Sequence[str]) -> int:
    os.environ["TMPDIR"] = str(home / "tmp")
    tempfile.tempdir = None
    try:
        main([word.replace("HOME", str(home)) for word in command], prog_name="kcompact")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _codes(report: bytes) -> list[int]:
    """Return the exit codes of the partitions that failed."""
    try:
        document = json.loads(report)
    except ValueError:
        return []
    return [each["exit_code"] for each in document["partitions"] if each["exit_code"]]


def _work_in_pieces() -> None:
    """Let a small log be worked on as a large one: by kernels, in many splits, with keys that do not fit."""
    blocks: Callable[..., Any] = in_process._Blocks
    pieces = partial(prepare.Tuning, split_bytes=300, task_bytes=600, bucket_count=2)
    mock.patch.object(cleaning, "Tuning", pieces).start()
    mock.patch.object(in_process, "_Blocks", lambda buckets, limit, *others: blocks(buckets, 0, *others)).start()


# --- What must hold


def views(logs: Path) -> dict[str, View]:
    """Return what a reader finds in each partition."""
    return {name: read_view(logs / name) for name in GROUPS}


def state_problems(scene: Scene, home: Path, *, is_over: bool, is_regrouped: bool = False) -> list[str]:
    """Return what is wrong with the log directory: each group is entirely old or new, and nothing else changed.

    With `is_over` nothing may be left of the work either. With `is_regrouped` a second cleaning has changed the groups.
    """
    now = contents(home / "logs")
    left = {name for name in now.keys() - scene.before.keys() - scene.after.keys() if ".kcompact" in name}
    left |= {name for name in now if name.endswith((".swap", ".cleaned", ".tmp"))}
    if not scene.expires:
        left |= {name for name in now if name.endswith(".deleted")}
    problems = [f"left over: {sorted(left)}"] if left and is_over else []
    if is_regrouped:
        return problems
    offsets = dict(_offsets(home / "logs" / CHECKPOINT))
    for name, groups in GROUPS.items():
        states = [_state_of_group(scene, now, name, group) for group in groups]
        problems += [
            f"{name}: group {group} is neither old nor new"
            for group, state in zip(groups, states, strict=True)
            if state == "mixed"
        ]
        ends = {"orders-0": 24, "users-0": 6, "events-0": 2}
        is_new = all(state != "old" for state in states)
        if offsets.get(name) != (2 if name == "events-0" else 0) and not (offsets.get(name) == ends[name] and is_new):
            problems.append(f"{name}: the checkpoint is {offsets.get(name)}, the groups are {states}")
    known = scene.before.keys() | scene.after.keys() | left
    problems += [f"{name} appeared" for name in now.keys() - known if not (scene.expires and ".deleted" in name)]
    grouped = {
        each for name, groups in GROUPS.items() for group in groups for each in _files(scene.before, name, group)
    }
    for name in scene.before.keys() - grouped - {CHECKPOINT}:
        if now.get(name) not in (scene.before[name], scene.after.get(name)):
            problems.append(f"{name} was changed")
    return problems


def _files(names: dict[str, str], partition_name: str, group: Sequence[int]) -> set[str]:
    bases = {f"{base:020d}" for base in group}
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    snapshots = {f"{partition_name}/{base:020d}.snapshot" for base in group[1:]}
    return {
        name
        for name in names
        if name in snapshots
        or (
            Path(name).parent.name == name.split("/")[0] == partition_name
            and name.endswith(suffixes)
            and Path(name).stem in bases
        )
    }


def _state_of_group(scene: Scene, now: dict[str, str], name: str, group: Sequence[int]) -> str:
    found = {each: now[each] for each in _files(now, name, group)}
    states = {
        "old": {each: scene.before[each] for each in _files(scene.before, name, group)},
        "new": {each: scene.after[each] for each in _files(scene.after, name, group)},
    }
    for state, files in states.items():
        if found == files:
            return state
    if not _is_deleted(scene, name, group):
        return "mixed"
    return "new" if any(each.endswith(".log") for each in found) else "expired"


def _is_deleted(scene: Scene, name: str, group: Sequence[int]) -> bool:
    """Return whether retention deletes a group, which it does file by file."""
    is_left = any(each.endswith(".log") for each in _files(scene.after, name, group))
    return scene.expires and name == "orders-0" and not is_left


def _offsets(path: Path) -> list[tuple[str, int]]:
    lines = path.read_text().splitlines()[2:]
    return [(f"{topic}-{number}", int(offset)) for topic, number, offset in (line.split() for line in lines)]


def view_problems(scene: Scene, home: Path) -> list[str]:
    """Return how what a reader finds differs from what it found before."""
    problems = []
    for name, before in views(scene.home / "logs").items() if scene.interrupted is None else _original_views().items():
        now = read_view(home / "logs" / name)
        if not now.rises:
            problems.append(f"{name}: offsets do not rise")
        if now.end != before.end:
            problems.append(f"{name}: the log ended at {before.end}, now at {now.end}")
        if now.start != before.start and not (scene.expires and name == "orders-0"):
            problems.append(f"{name}: the log started at {before.start}, now at {now.start}")
        expected = {key: found for key, found in before.latest.items() if found[0] >= now.start}
        if {key: now.latest.get(key) for key in expected} != expected or now.latest.keys() - before.latest.keys():
            problems.append(f"{name}: a reader finds other records")
    return problems


_ORIGINAL: dict[str, View] = {}


def _original_views() -> dict[str, View]:
    if not _ORIGINAL:
        with tempfile.TemporaryDirectory() as directory:
            for text in (ORDERS, USERS, EVENTS):
                log_writer.write(log_dsl.parse(text), Path(directory))
            _ORIGINAL.update(views(Path(directory)))
    return _ORIGINAL


def remove(home: Path) -> None:
    """Remove the directory of a run."""
    shutil.rmtree(home)
