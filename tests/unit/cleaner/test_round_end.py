"""Partitions that end together: one write of the checkpoint for all, which lags and never leads."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kcompact.cleaner import engines
from kcompact.cleaner import round_end as ending
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.journal import read_journal
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import CleaningAbortedError
from kcompact.plan.options import PlanOptions
from kcompact.remarks import RemarkCode
from kcompact.stages.executor import Progress, RoundProgress
from kcompact.swap import round_end as swap_ending
from kcompact.swap.recovery.interrupted_round import recover
from tests.support import log_dsl
from tests.support.command_line import COMPACTED, digest, kcompact, partition, settings, values
from tests.support.copies import read_files
from tests.support.grouped_ends import CHECKPOINT, NAMES, counted_writes, stagings
from tests.torture.system_calls import Call, observed

COMPACT = {"cleanup.policy": "compact"}
PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))


def write(log_dir: Path, names: Sequence[str] = NAMES) -> Path:
    for name in names:
        partition(log_dir, settings(f"hw=7 name={name}"))
    return log_dir


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "available_cores", lambda: 1)
    monkeypatch.setattr(ending, "MOST_WAIT_S", 3600.0)


def run(*log_dirs: Path, progress: RoundProgress | None = None, **options: object) -> RoundResult:
    (log_dir,) = log_dirs
    return clean_log_dir(log_dir, COMPACT, plan_options=PLAN, options=CleanOptions(**options), progress=progress)  # type: ignore[arg-type]


def offsets(log_dir: Path) -> dict[str, int]:
    """Return the offsets of the cleaner's checkpoint by partition, none without the file."""
    path = log_dir / CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, lines)}


@pytest.mark.parametrize(("together", "writes"), [(1, [1] * 5), (2, [2, 2, 1]), (3, [3, 2]), (64, [5])])
def test_any_grouping_gives_the_same_files(
    together: int, writes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, grouped = write(tmp_path / "alone"), write(tmp_path / "grouped")
    for path in (alone, grouped):
        (path / CHECKPOINT).write_text("0\n3\nz 0 9\nb 0 0\nother 7 1\n")
    for name in NAMES:
        assert clean_log_dir(alone / name, COMPACT, plan_options=PLAN).exit_code == 0
    monkeypatch.setattr(ending, "MOST_TOGETHER", together)
    with counted_writes(monkeypatch) as sizes:
        result = run(grouped)
    assert sizes == writes
    assert [each.status for each in result.partitions] == ["cleaned"] * 5
    assert read_files(grouped) == read_files(alone)


def test_few_descriptors_make_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, together in ((1024, 64), (256, 32), (4, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert ending.EndingGroups[str](lambda _: None)._most_together == together


def test_a_group_ends_when_its_oldest_partition_has_waited_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "MOST_WAIT_S", 0.0)
    with counted_writes(monkeypatch) as sizes:
        run(write(tmp_path / "data"))
    assert sizes == [1] * 5


def test_the_oldest_partition_decides_how_long_a_group_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(ending, "MOST_WAIT_S", 10.0)
    monkeypatch.setattr("kcompact.cleaner.round_end.time.monotonic", lambda: clock[0])
    ended: list[tuple[float, Sequence[str]]] = []
    groups = ending.EndingGroups[str](lambda group: ended.append((clock[0], group)))
    times = {"a": 0.0, "b": 6.0, "c": 9.9, "d": 10.0, "e": 11.0, "f": 20.9, "g": 21.0, "h": 21.0}
    for name, clock[0] in times.items():
        groups.add(name)
    assert ended == [(10.0, ["a", "b", "c", "d"]), (21.0, ["e", "f", "g"])]
    groups.end()
    assert ended[-1] == (21.0, ["h"])


def test_a_request_to_stop_ends_the_partitions_that_wait(tmp_path: Path) -> None:
    data, seen = write(tmp_path / "data"), set[str]()

    class Stopping(Progress):
        def check(self) -> None:
            seen.update(stagings(data))
            if len(seen) == 3:  # The third has begun to write.
                raise CleaningAbortedError(path=data)

    class StopAtThird(RoundProgress):
        def of(self, directory: Path) -> Progress:
            return Stopping()

    result = run(data, progress=StopAtThird())
    assert [each.status for each in result.partitions] == ["cleaned"] * 2 + ["failed"] * 3
    assert offsets(data) == {each.name: 6 for each in result.partitions[:2]}
    assert stagings(data) == []


def test_two_log_directories_end_together(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", NAMES[:3]), write(tmp_path / "second", NAMES[3:])
    ran = kcompact("clean", "--config", "cleanup.policy=compact", "--now", "2024-01-01T10:00Z", "--json", first, second)
    assert [each["status"] for each in json.loads(ran.out)["partitions"]] == ["cleaned"] * 5
    assert (offsets(first), offsets(second)) == (dict.fromkeys(NAMES[:3], 6), dict.fromkeys(NAMES[3:], 6))


# --- Stopped at every call of the end -------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Killing:
    """Lets nothing be changed from the call of this number on, counted from the first call of the end of a group."""

    number: int
    seen: int = 0
    calls: list[str] = field(default_factory=list)

    def before(self, call: Call) -> None:
        if not self.calls and not call.path.endswith(f"{CHECKPOINT}.tmp"):
            return
        self.calls.append(str(call))
        if len(self.calls) > self.number:
            raise Killed


def killed_in_the_end(data: Path, number: int) -> bool:
    """Clean until the call of this number, with the journal beside the data; return whether there was one."""
    killing = Killing(number)
    with observed([data], killing.before, lambda call: None):
        try:
            run(data, journal=data.with_suffix(".journal"))
        except Killed:
            return True
    return False


def test_a_stop_at_any_call_of_the_end_leaves_each_offset_to_recovery(tmp_path: Path) -> None:
    names, number, lagging = NAMES[:3], 0, 0
    original = write(tmp_path / "original", names)
    while True:
        data = tmp_path / f"stop-{number}"
        shutil.copytree(original, data)
        was_killed = killed_in_the_end(data, number)
        known = offsets(data)
        assert set(known.values()) <= {6}
        # The checkpoint has an offset, or the manifest has it: it never leads, and no offset is forgotten.
        assert {*known, *stagings(data)} == {*names}, number
        # Recovery ends what has a manifest; of all others the journal has the end.
        lines = [line for line in read_journal(data.with_suffix(".journal")) if line is not None]
        ended = {f"{line['topic']}-{line['partition']}" for line in lines if line["event"] == "end"}
        assert {*ended, *stagings(data)} == {*names}, number
        lagging += not known
        for name in names:
            recover(data / name, log_dir=data)
        assert (offsets(data), stagings(data)) == (dict.fromkeys(names, 6), []), number
        assert all(values(data / name) == COMPACTED for name in names)
        shutil.rmtree(data)
        if not was_killed:
            break
        number += 1
    assert number > 10
    assert lagging >= 5


def test_the_checkpoint_is_synced_between_the_swaps_and_the_removal_of_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What power cuts may leave follows from this order: see `tests.torture.power_loss`."""
    data = write(tmp_path / "data")
    monkeypatch.setattr(ending, "MOST_TOGETHER", 2)
    calls: list[Call] = []
    with observed([data], lambda call: None, calls.append):
        run(data)
    root = str(data)
    ends = [number for number, call in enumerate(calls) if call.name == "replace" and call.target.endswith(CHECKPOINT)]
    assert len(ends) == 3
    for number, call in enumerate(calls):
        if call.name == "unlink" and call.path.endswith("manifest.json"):
            directory = str(Path(call.path).parents[1])
            renamed = max(
                n for n, each in enumerate(calls) if each.name == "rename" and each.target.startswith(directory)
            )
            written = max(end for end in ends if end < number)
            assert any(each.name == "fsync" and each.path == directory for each in calls[renamed:written])
            assert any(each.name == "fsync" and each.path == root for each in calls[written:number])


# --- What keeps a checkpoint from being written ---------------------------------------------------------


def damage(data: Path) -> None:
    (data / CHECKPOINT).write_bytes(b"0\n1\n\xff\n")


def plant_directory(data: Path) -> None:
    (data / CHECKPOINT).mkdir()


def take_lock_away(data: Path) -> None:
    (data / ".lock").unlink()


@contextmanager
def before_the_end(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` after the last swap, before the first group ends."""
    really = swap_ending._write_checkpoints

    def acting(*arguments: object) -> object:
        monkeypatch.setattr(swap_ending, "_write_checkpoints", really)
        act()
        return really(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(swap_ending, "_write_checkpoints", acting)
    yield


@pytest.mark.parametrize(("act", "code"), [(damage, 3), (plant_directory, 3), (take_lock_away, 6)])
def test_without_its_checkpoint_each_partition_of_the_group_says_so(
    act: Callable[[Path], None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    with before_the_end(monkeypatch, lambda: act(data)):
        result = run(data, journal=tmp_path / "journal")
    assert [each.status for each in result.partitions] == ["checkpoint-not-written"] * 5
    assert result.exit_code == code
    assert stagings(data) == [*NAMES]
    lines = [line for line in read_journal(tmp_path / "journal") if line is not None]
    assert [line["status"] for line in lines if line["event"] == "end"] == ["checkpoint-not-written"] * 5


@pytest.mark.parametrize(("call", "number", "code"), [("fsync", errno.EIO, 1), ("write", errno.ENOSPC, 7)])
@pytest.mark.parametrize("where", [f"{CHECKPOINT}.tmp"])
def test_a_fault_of_the_disk_at_the_write_of_the_group_leaves_the_offsets_to_recovery(
    call: str, number: int, code: int, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    really = getattr(os, call)

    def failing(fd: int, *arguments: object) -> object:
        if Path(f"/proc/self/fd/{fd}").readlink().name == where:
            raise OSError(number, os.strerror(number))
        return really(fd, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        result = run(data)
    assert [each.status for each in result.partitions] == ["checkpoint-not-written"] * 5
    assert result.exit_code == code
    assert stagings(data) == [*NAMES]
    assert offsets(data) == {}
    for name in NAMES:
        recover(data / name, log_dir=data)
    assert (offsets(data), stagings(data)) == (dict.fromkeys(NAMES, 6), [])


def test_a_staging_directory_that_stays_is_named_and_nothing_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    really = os.rmdir

    def failing(name: str, *, dir_fd: int) -> None:
        if Path(f"/proc/self/fd/{dir_fd}").readlink().name == "b-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really(name, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", failing)
        result = run(data, journal=tmp_path / "journal")
    (staging,) = (data / "b-0").glob(".kcompact-*")
    assert result.exit_code == 0
    assert [(each.name, each.status) for each in result.partitions] == [(name, "cleaned") for name in NAMES]
    notes = {each.name: {note.code: dict(note.facts) for note in each.notes} for each in result.partitions}
    assert [name for name in NAMES if RemarkCode.STAGING_STAYS in notes[name]] == ["b-0"]
    facts = notes["b-0"][RemarkCode.STAGING_STAYS]
    assert facts["path"] == staging
    assert os.strerror(errno.EIO) in str(facts["why"])
    assert offsets(data) == dict.fromkeys(NAMES, 6)


def test_a_partition_that_was_changed_does_not_keep_the_others_from_their_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    with before_the_end(monkeypatch, lambda: os.utime(data / "b-0" / f"{6:020d}.log", ns=(1, 1))):
        result = run(data)
    assert {each.name: each.status for each in result.partitions} == {
        name: "checkpoint-not-written" if name == "b-0" else "cleaned" for name in NAMES
    }
    assert offsets(data) == {name: 6 for name in NAMES if name != "b-0"}
    assert stagings(data) == ["b-0"]


def replace_it_by_what_was(data: Path, before: Path) -> None:
    (data / "b-0").rename(data / "aside")
    shutil.copytree(before / "b-0", data / "b-0")


def move_it_away(data: Path, before: Path) -> None:
    (data / "b-0").rename(data.parent / "b-0")


def delete_a_new_log(data: Path, before: Path) -> None:
    (data / "b-0" / f"{0:020d}.log").unlink()


def replace_a_new_log(data: Path, before: Path) -> None:
    log = data / "b-0" / f"{0:020d}.log"
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)


@pytest.mark.parametrize("harm", [replace_it_by_what_was, move_it_away, delete_a_new_log, replace_a_new_log])
def test_a_checkpoint_is_written_only_for_the_segments_that_the_cleaning_has_written(
    harm: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    before = shutil.copytree(data, tmp_path / "before")
    with before_the_end(monkeypatch, lambda: harm(data, before)):
        result = run(data)
    assert {each.name: each.status for each in result.partitions} == {
        name: "checkpoint-not-written" if name == "b-0" else "cleaned" for name in NAMES
    }
    assert offsets(data) == {name: 6 for name in NAMES if name != "b-0"}


def test_links_in_place_of_checkpoint_and_staging_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, elsewhere = write(tmp_path / "data"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "manifest.json").write_text("kept")
    (elsewhere / "file").write_text("kept")
    before = digest(elsewhere)

    def plant() -> None:
        (data / f"{CHECKPOINT}.tmp").symlink_to(elsewhere / "file")
        (staging,) = (data / "b-0").glob(".kcompact-*")
        staging.rename(data / "b-0" / "aside")
        staging.symlink_to(elsewhere)

    with before_the_end(monkeypatch, plant):
        result = run(data)
    assert digest(elsewhere) == before
    assert {each.name: each.exit_code for each in result.partitions} == {
        name: 6 if name == "b-0" else 0 for name in NAMES
    }
    assert offsets(data) == dict.fromkeys(NAMES, 6)


@pytest.mark.parametrize("option", ["output", "keep_replaced"])
def test_the_name_of_each_new_directory_is_synced(option: str, tmp_path: Path) -> None:
    data, calls = write(tmp_path / "data", ["a-0"]), list[Call]()
    with observed([tmp_path], lambda call: None, calls.append):
        result = run(data, progress=None, **{option: tmp_path / "x" / "y" / "z"})
    assert result.exit_code == 0
    made = {call.path: number for number, call in enumerate(calls) if call.name == "mkdir"}
    assert {str(tmp_path / name) for name in ("x", "x/y", "x/y/z")} <= made.keys()
    for path, number in made.items():
        above = str(Path(path).parent)
        assert any(call.name == "fsync" and call.path == above for call in calls[number:]), path
