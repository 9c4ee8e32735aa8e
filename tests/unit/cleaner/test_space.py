"""The free space: staging never fills the disk, what fits is not refused, and the dry run says what the run says."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.clean.groups import GroupSize, replaced_files
from kcompact.cleaner import space
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import clean_log_dir
from kcompact.cleaner.space import freed_by_deleting, shortage
from kcompact.errors import CleaningAbortedError, NotEnoughSpaceError
from kcompact.host.disk import Disk
from kcompact.plan.options import PlanOptions
from kcompact.stages.executor import Progress
from kcompact.swap.copy.files import UnfinishedCopy
from tests.support import log_dsl, log_writer
from tests.support.command_line import digest
from tests.support.log_writer import LogSpec
from tests.support.patience import PATIENCE_S
from tests.support.small_disk import SmallDisk
from tests.support.stages import plan_of

ROUND = "log now=5d00:00 min.cleanable.dirty.ratio=0 segment.bytes=20000 name=orders-0"


def growing() -> str:
    """Three groups of tombstones: each becomes larger than it is."""
    lines = [ROUND]
    for base in (0, 500, 1000):
        lines.append(f"{base}: [{' '.join(f'key{number}=~' for number in range(base, base + 500))}]")
    return "\n".join([*lines, "1500: z=1"])


def shrinking() -> str:
    """Three groups of which only the last keeps anything."""
    lines = [ROUND.replace("20000", "2000")]
    lines += [f"{base}: {' '.join('a=*200' for _ in range(6))}" for base in range(0, 48, 6)]
    return "\n".join([*lines, "48: z=1"])


def shrinking_first() -> str:
    """The second group fits only after the first one has freed its space."""
    lines = [ROUND, f"0: {' '.join('a=*500' for _ in range(30))}"]
    lines.append(f"30: {' '.join(f'k{number}=*500' for number in range(30))}")
    return "\n".join([*lines, "60: a=1", "61: z=1"])


def compressed() -> str:
    """The bound is far above the truth: the records inflate to much more than they need."""
    lines = [ROUND, f"0: [{' '.join(f'k{number}=*900' for number in range(200))}](zstd)", "200: k1=~(lz4)"]
    return "\n".join([*lines, "201: z=1"])


LOGS = [growing, shrinking, shrinking_first, compressed]


def size(*parts: int) -> GroupSize:
    return GroupSize(parts=parts, indexes=(0, 12))


def clean(spec: LogSpec, log_dir: Path, options: CleanOptions) -> PartitionOutcome:
    config = {"cleanup.policy": "compact", **spec.settings}
    result = clean_log_dir(log_dir, config, plan_options=PlanOptions(now_ms=spec.now_ms), options=options)
    (outcome,) = result.partitions
    return outcome


EACH = [3, pytest.param(1, marks=pytest.mark.slow)]
"""Which of the sizes of a disk are tried: `make slow` tries each."""


@pytest.mark.long
@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("text", LOGS, ids=[log.__name__ for log in LOGS])
def test_a_disk_of_any_size(text: Callable[[], str], each: int, on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = log_dsl.parse(text())
    original = log_writer.write(spec, on_disk / "original").parent
    disk = SmallDisk(on_disk / "disk", monkeypatch)
    codes = []
    for free_bytes in (0, *range(2000, 20_000, 2000 * each), *range(20_000, 90_000, 10_000 * each)):
        disk.leave(1 << 30)
        shutil.rmtree(disk.root, ignore_errors=True)
        shutil.copytree(original, disk.root / "data")
        before = digest(disk.root)
        disk.leave(free_bytes)
        dry = clean(spec, disk.root / "data", CleanOptions(dry_run=True))
        assert digest(disk.root) == before
        assert dry.result is not None
        assert dry.status == "dry-run"
        run = clean(spec, disk.root / "data", CleanOptions())
        assert (free_bytes, dry.exit_code) == (free_bytes, run.exit_code), (dry.error, run.error)
        assert disk.refused == 0, f"the disk was filled: {free_bytes}"
        if run.exit_code:
            assert digest(disk.root) == before
            assert str(dry.error) == str(run.error)
        else:
            assert run.result is not None
            assert dry.result.stats == run.result.stats
        codes.append(run.exit_code)
    # Once it fits, it fits in all that is larger; and the smallest and the largest disk leave no doubt.
    assert codes == sorted(codes, reverse=True)
    assert (codes[0], codes[-1]) == (NotEnoughSpaceError.exit_code, 0)


@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("text", LOGS, ids=[log.__name__ for log in LOGS])
def test_a_copy_to_a_disk_of_any_size(
    text: Callable[[], str], each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse(text())
    log_dir = log_writer.write(spec, tmp_path / "data").parent
    disk = SmallDisk(tmp_path / "disk", monkeypatch)
    codes: list[list[int]] = []
    for free_bytes in (0, *range(4000, 90_000, 6000 * each)):
        disk.leave(1 << 30)
        shutil.rmtree(disk.root, ignore_errors=True)
        disk.root.mkdir()
        disk.leave(free_bytes)
        both = []
        for is_dry in (True, False):
            try:
                both.append(clean(spec, log_dir, CleanOptions(dry_run=is_dry, output=disk.root / "copy")).exit_code)
            except NotEnoughSpaceError as problem:  # Even the present sizes do not fit.
                both.append(problem.exit_code)
        # The dry run allows for small files that the output of the run has already when the space is checked.
        assert both in ([7, 7], [7, 0], [0, 0])
        assert disk.refused == 0, f"the disk was filled: {free_bytes}"
        assert (disk.root / "copy" / "orders-0").exists() == (both[1] == 0)
        codes.append(both)
    assert codes == sorted(codes, reverse=True)
    assert (codes[0], codes[-1], codes.count([7, 0]) <= 2) == ([7, 7], [0, 0], True)


def test_what_surely_fits_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of the group's size is free, and next to nothing remains of it.
    spec = log_dsl.parse("\n".join([ROUND, f"0: {' '.join('a=*900' for _ in range(20))}", "20: z=1"]))
    directory = log_writer.write(spec, tmp_path / "disk")
    disk = SmallDisk(tmp_path / "disk", monkeypatch)
    disk.leave(10_000)
    assert max(log.stat().st_size for log in directory.glob("*.log")) > 19_000
    assert clean(spec, tmp_path / "disk", CleanOptions()).error is None
    assert disk.refused == 0


@pytest.mark.parametrize(
    ("sizes", "free_bytes", "needed_bytes"),
    [
        # A group, its manifest of some 700 bytes, and the names: 4 blocks.
        ([size(1000)], 10_000, None),
        ([size(10_000)], 10_000, 10_000),
        # Written in one part, nothing is on the disk twice.
        ([size(1000, 5000)], 7500, None),
        ([size(1000, 5000)], 6000, 6000),
        # The second group must fit after the first one has freed a few old bytes.
        ([size(1000), size(9000)], 22_000, None),
        ([size(8000), size(9000)], 18_000, 17_000),
    ],
)
def test_what_a_group_needs(
    sizes: list[GroupSize], free_bytes: int, needed_bytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(log_dsl.parse("log now=10:00 segment.bytes=100\n0: a=1 b=1\n2: c=1\n3: d=1"), tmp_path)
    assert len(plan.groups) == 2
    monkeypatch.setattr(space, "freed_by_deleting", lambda directory, files, block_bytes: 100)
    problem = shortage(plan, sizes, Disk(free_bytes=free_bytes, block_bytes=1))
    assert (problem is None) == (needed_bytes is None), problem
    if problem is not None and needed_bytes is not None:
        assert needed_bytes < problem.needed_bytes < needed_bytes + 2500


def test_a_file_with_another_name_frees_no_space(tmp_path: Path) -> None:
    plan = plan_of(log_dsl.parse("log now=10:00\n0: a=*9000 b=1\n2: c=1"), tmp_path / "logs")
    files = replaced_files(plan, 0)
    freed = freed_by_deleting(plan.log.directory, files, Disk(free_bytes=0, block_bytes=4096))
    log = plan.log.directory / plan.segments[0].log_name
    os.link(log, tmp_path / "backup")
    assert freed_by_deleting(plan.log.directory, files, Disk(free_bytes=0, block_bytes=4096)) == freed - 12_288


class Stopped(Progress):
    def check(self) -> None:
        raise CleaningAbortedError(path="here")


def test_cleanings_of_one_process_share_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "of", lambda path: Disk(free_bytes=100, block_bytes=1))
    reservations = space._Reservations()

    def choose(disk: Disk) -> tuple[str, int] | NotEnoughSpaceError:
        if disk.free_bytes >= 70:
            return "yes", 70
        return NotEnoughSpaceError(path=tmp_path, needed_bytes=70, free_bytes=disk.free_bytes)

    first, release = reservations.take(tmp_path, choose, Progress())
    assert first == "yes"
    with pytest.raises(CleaningAbortedError):
        reservations.take(tmp_path, choose, Stopped())  # It waits, and a request to stop ends that.

    found: list[str] = []

    def second() -> None:
        result, release_second = reservations.take(tmp_path, choose, Progress())
        found.append(result)
        release_second()

    thread = threading.Thread(target=second)
    thread.start()
    thread.join(0.05)
    assert found == []
    release()
    thread.join(PATIENCE_S)
    assert found == ["yes"]
    # Alone, it waits for no one.
    monkeypatch.setattr(Disk, "of", lambda path: Disk(free_bytes=69, block_bytes=1))
    with pytest.raises(NotEnoughSpaceError):
        reservations.take(tmp_path, choose, Progress())


def test_a_partition_that_is_copied_as_it_is_shares_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []

    def looked_at(unfinished: UnfinishedCopy, *_: object, **__: object) -> None:
        reserved.extend(sum(each) for each in space._RESERVATIONS._reserved_bytes.values() if each)

    monkeypatch.setattr(UnfinishedCopy, "fill", looked_at)
    spec = log_dsl.parse("log now=10:00 name=orders-0\n0: a=*5000")
    directory = log_writer.write(spec, tmp_path / "source")
    copied = clean(spec, directory.parent, CleanOptions(output=tmp_path / "out"))
    assert copied.status == "copied"
    sizes = [path.stat().st_size for path in directory.iterdir()]
    assert len(reserved) == 1
    assert reserved[0] > sum(sizes) + len(sizes) * os.statvfs(tmp_path).f_frsize
    assert not any(space._RESERVATIONS._reserved_bytes.values())
