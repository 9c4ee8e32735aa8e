"""Partitions that are recovered together: one write of the checkpoint for all, as at the end of a cleaning."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcompact.cleaner import round_end as ending
from kcompact.cleaner.recovery import Recovered, recover_each
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import KcompactError
from kcompact.log.lock import log_dir_lock
from kcompact.plan.options import PlanOptions
from kcompact.swap import checkpoint
from kcompact.swap import round_end as swap_ending
from kcompact.swap.recovery.end import RecoveryReport
from kcompact.swap.recovery.interrupted_round import begin_recovery, recover
from tests.support import log_dsl
from tests.support.command_line import COMPACTED, kcompact, partition, settings, values
from tests.support.copies import read_files
from tests.support.grouped_ends import CHECKPOINT, NAMES, counted_writes, stagings
from tests.torture.system_calls import Call, observed

COMPACT = {"cleanup.policy": "compact"}
PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))
UNFINISHED = f"{CHECKPOINT}.tmp"


@contextmanager
def failing_at(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> Iterator[None]:
    """Let a call of the write of the checkpoint fail with this error."""
    really = getattr(os, call)

    def failing(fd: int, *arguments: object) -> object:
        if Path(f"/proc/self/fd/{fd}").readlink().name == UNFINISHED:
            raise OSError(number, os.strerror(number))
        return really(fd, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        yield


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory of partitions that were cleaned, but their checkpoint could not be written."""
    data = tmp_path / "left"
    for name in NAMES:
        partition(data, settings(f"hw=7 name={name}"))
    (data / CHECKPOINT).write_text("0\n3\nz 0 9\nb 0 0\nother 7 1\n")
    with failing_at(monkeypatch, "write", errno.ENOSPC):
        result = clean_log_dir(data, COMPACT, plan_options=PLAN)
    assert [each.status for each in result.partitions] == ["checkpoint-not-written"] * 5
    assert stagings(data) == [*NAMES]
    return data


def offsets(log_dir: Path) -> dict[str, int]:
    lines = (log_dir / CHECKPOINT).read_text().splitlines()[2:]
    every = {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, lines)}
    return {name: offset for name, offset in every.items() if name in NAMES and offset}


def recovered(data: Path) -> Recovered:
    with log_dir_lock(data) as lock:
        return recover_each([data / name for name in NAMES], lambda each: begin_recovery(each, log_dir=data, lock=lock))


def assert_complete(data: Path) -> None:
    assert (offsets(data), stagings(data)) == (dict.fromkeys(NAMES, 6), [])
    assert all(values(data / name) == COMPACTED for name in NAMES)


@pytest.mark.parametrize(("together", "writes"), [(1, [1] * 5), (2, [2, 2, 1]), (64, [5])])
@pytest.mark.parametrize("command", ["recover", "clean"])
def test_any_grouping_gives_the_same_files(
    command: str, together: int, writes: list[int], left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = shutil.copytree(left, tmp_path / "alone")
    for name in NAMES:
        assert recover(alone / name, log_dir=alone).checkpoint == 6
    monkeypatch.setattr(ending, "MOST_TOGETHER", together)
    settings = ("--config", "cleanup.policy=compact", "--now", "2024-01-01T10:00Z") if command == "clean" else ()
    with counted_writes(monkeypatch) as sizes:
        ran = kcompact(command, "--json", *settings, left)
    assert (ran.code, sizes) == (0, writes)
    assert {
        each["topic"]: each["recovered" if command == "clean" else "status"] for each in ran.json["partitions"]
    } == {name[0]: "tidied" for name in NAMES}
    assert_complete(left)
    assert read_files(left) == read_files(alone)


class Killed(BaseException):
    """The process ends here."""


def test_a_stop_at_any_call_forgets_no_offset(left: Path, tmp_path: Path) -> None:
    number, seen, lagging = 0, [0], 0
    while True:
        data = shutil.copytree(left, tmp_path / f"stop-{number}")

        def before(call: Call, number: int = number) -> None:
            seen[0] += 1
            if seen[0] > number:
                raise Killed

        seen[0] = 0
        with observed([data], before, lambda call: None):
            try:
                recovered(data)
                was_killed = False
            except Killed:
                was_killed = True
        known = offsets(data)
        assert set(known.values()) <= {6}
        assert {*known, *stagings(data)} == {*NAMES}, number
        lagging += not known
        recovered(data)
        assert_complete(data)
        shutil.rmtree(data)
        if not was_killed:
            break
        number += 1
    assert number > 20
    assert lagging >= 10


def test_the_checkpoint_is_synced_before_the_first_manifest_is_removed(left: Path) -> None:
    calls: list[Call] = []
    with observed([left], lambda call: None, calls.append):
        recovered(left)
    (written,) = (n for n, call in enumerate(calls) if call.name == "replace" and call.target.endswith(CHECKPOINT))
    removed = [n for n, call in enumerate(calls) if call.name == "unlink" and call.path.endswith("manifest.json")]
    synced = [n for n, call in enumerate(calls) if call.name == "fsync" and call.path == str(left)]
    assert len(removed) == 5
    assert any(written < number < min(removed) for number in synced)
    for name in NAMES:
        assert any(call.name == "fsync" and call.path == str(left / name) for call in calls[:written])


@pytest.mark.parametrize(("call", "number", "code"), [("fsync", errno.EIO, 1), ("write", errno.ENOSPC, 7)])
def test_a_fault_at_the_write_leaves_all_to_the_next_recovery(
    call: str, number: int, code: int, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing_at(monkeypatch, call, number):
        results = recovered(left)
    assert {each.exit_code for each in results.values() if isinstance(each, KcompactError)} == {code}
    assert (len(results), offsets(left), stagings(left)) == (5, {}, [*NAMES])
    assert all(isinstance(each, RecoveryReport) and each.checkpoint == 6 for each in recovered(left).values())
    assert_complete(left)


def test_who_has_its_checkpoint_already_needs_no_write(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (left / CHECKPOINT).write_text("0\n2\nb 0 6\nc 3 7\n")
    with failing_at(monkeypatch, "write", errno.ENOSPC):
        results = recovered(left)
    assert {path.name for path, each in results.items() if isinstance(each, RecoveryReport)} == {"b-0", "c-3"}
    assert stagings(left) == ["a-0", "d-1", "e-0"]
    assert (left / CHECKPOINT).read_text() == "0\n2\nb 0 6\nc 3 7\n"


def take_a_new_file_away(directory: Path) -> None:
    (directory / f"{0:020d}.timeindex").unlink()


def make_it_another_partitions(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")


def damage_the_manifest(directory: Path) -> None:
    (manifest,) = directory.glob(".kcompact-*/manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"end_offset":6', b'"end_offset":7'))


@pytest.mark.parametrize(
    ("harm", "keeps_staging", "fails"),
    [
        (take_a_new_file_away, False, False),
        (make_it_another_partitions, True, True),
        (damage_the_manifest, True, True),
        (shutil.rmtree, False, True),
    ],
)
def test_one_that_cannot_get_its_checkpoint_does_not_keep_the_others_from_theirs(
    harm: Callable[[Path], None], keeps_staging: bool, fails: bool, left: Path
) -> None:
    harm(left / "c-3")
    results = recovered(left)
    assert isinstance(results[left / "c-3"], KcompactError) is fails
    assert offsets(left) == {name: 6 for name in NAMES if name != "c-3"}
    assert stagings(left) == (["c-3"] if keeps_staging else [])


def test_a_step_that_fails_is_named_with_its_reason(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: object, **_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", failing)
        results = recovered(left)
    (staging,) = (left / "a-0").glob(".kcompact-*")
    problem = f"recovery stopped: rmdir {staging.name}: {os.strerror(errno.EIO)}"
    assert problem in str(results[left / "a-0"])


def test_a_damaged_checkpoint_stays_and_the_partitions_are_recovered(left: Path) -> None:
    (left / CHECKPOINT).write_bytes(b"0\n1\n\xff\n")
    assert all(isinstance(each, RecoveryReport) and each.checkpoint is None for each in recovered(left).values())
    assert (left / CHECKPOINT).read_bytes() == b"0\n1\n\xff\n"
    assert stagings(left) == []


def test_without_its_lock_nothing_is_written(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (left / CHECKPOINT).read_bytes()
    really = checkpoint.read_checkpoint

    def losing(*arguments: object) -> object:
        (left / ".lock").unlink()
        return really(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(swap_ending, "read_checkpoint", losing)
    results = recovered(left)
    assert {each.exit_code for each in results.values() if isinstance(each, KcompactError)} == {6}
    assert ((left / CHECKPOINT).read_bytes(), stagings(left)) == (before, [*NAMES])
