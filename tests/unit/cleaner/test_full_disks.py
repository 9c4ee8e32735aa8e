"""Real disks in memory that are nearly full: a log is cleaned or refused, never half, and nothing is left over."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.groups import GroupSize, count_sizes
from kcompact.clean.prepare import PreparedClean
from kcompact.cleaner import partition, space
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import NotEnoughSpaceError
from kcompact.plan.options import PlanOptions
from kcompact.swap.replace import replace_segments
from tests.support import log_dsl, log_writer
from tests.support.command_line import digest, values
from tests.support.log_writer import LogSpec

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk in memory")

DISK_BYTES = 16 << 20
NONE, LITTLE, SOME = 0, 64 << 10, 1 << 20
HEAD = "log now=5d00:00 min.cleanable.dirty.ratio=0 name=orders-0 segment.bytes="


def shrinking(base: int, count: int = 50) -> str:
    """A segment with so many values of 4 KB, of which one survives."""
    return f"{base}: {' '.join(f'k{base}=*4000' for _ in range(count))}"


def lasting(base: int, count: int = 50) -> str:
    """A segment with so many values of 4 KB that all survive."""
    return f"{base}: {' '.join(f'k{base + number}=*4000' for number in range(count))}"


def tiny_result() -> str:
    """One group of 1.47 MB, of which 46 KiB are left."""
    segments = [f"{base}: {' '.join(f'k{number % 11}=*4200' for number in range(50))}" for base in range(0, 350, 50)]
    return "\n".join([f"{HEAD}3000000", *segments, "350: z=1"])


def as_large_as_before() -> str:
    return "\n".join([f"{HEAD}3000000", *(lasting(base) for base in range(0, 350, 50)), "350: z=1"])


def large_group_first() -> str:
    """Six groups of 200 KB each. The first one keeps everything, each other one next to nothing."""
    return "\n".join([f"{HEAD}210000", lasting(0), *(shrinking(base) for base in range(50, 300, 50)), "300: z=1"])


def large_groups_between() -> str:
    segments = [shrinking(0, 10), lasting(10, 40), lasting(50), shrinking(100), lasting(150, 40), shrinking(190)]
    return "\n".join([f"{HEAD}150000", *segments, "240: z=1"])


def tombstones_later() -> str:
    """As `large_group_first`, but each later group has tombstones of keys of the first: they must wait for it."""
    segments = [f"{shrinking(base)} k{base // 50}=~" for base in range(51, 306, 51)]
    return "\n".join([f"{HEAD}210000", lasting(0, 51), *segments, "306: z=1"])


def growing() -> str:
    """Three groups of tombstones: each becomes larger than it is."""
    segments = [f"{at}: [{' '.join(f'key{number}=~' for number in range(at, at + 500))}]" for at in (0, 500, 1000)]
    return "\n".join([f"{HEAD}20000", *segments, "1500: z=1"])


CASES = [
    (tiny_result, {NONE: 7, LITTLE: 0, SOME: 0}),
    (as_large_as_before, {NONE: 7, LITTLE: 7, SOME: 7}),
    (large_group_first, {NONE: 7, LITTLE: 0, SOME: 0}),
    (large_groups_between, {NONE: 7, LITTLE: 0, SOME: 0}),
    (tombstones_later, {NONE: 7, LITTLE: 7, SOME: 0}),
    (growing, {NONE: 7, LITTLE: 0, SOME: 0}),
]


class Disk:
    """A file system in memory, with a ballast that leaves so much space free."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def leave(self, free_bytes: int) -> None:
        ballast = self.root / "ballast"
        ballast.unlink(missing_ok=True)
        with ballast.open("wb") as file:
            if size_bytes := (self.free_bytes - free_bytes) // 4096 * 4096:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
        assert self.free_bytes == free_bytes

    def holds(self, original: Path) -> Path:
        """Replace the log directory by a copy of the original, and return it."""
        (self.root / "ballast").unlink(missing_ok=True)
        shutil.rmtree(self.root / "data", ignore_errors=True)
        return Path(shutil.copytree(original, self.root / "data"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", root], check=False).returncode:
        pytest.skip("this container may not mount a disk in memory")
    yield Disk(root)
    subprocess.run(["umount", root], check=True)


def clean(spec: LogSpec, log_dir: Path, *, dry_run: bool = False) -> PartitionOutcome:
    config = {"cleanup.policy": "compact", **spec.settings}
    options = CleanOptions(dry_run=dry_run)
    (outcome,) = clean_log_dir(
        log_dir, config, plan_options=PlanOptions(now_ms=spec.now_ms), options=options
    ).partitions
    return outcome


def cleaned(spec: LogSpec, original: Path, scratch: Path) -> dict[str, str]:
    """Return the files of the log directory after a cleaning with plenty of space, as below."""
    log_dir = Path(shutil.copytree(original, scratch))
    assert clean(spec, log_dir).exit_code == 0
    files = digest(log_dir)
    return files | {"cleaner-offset-checkpoint": files["cleaner-offset-checkpoint"].split()[0]}


@pytest.mark.parametrize(("text", "codes"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_log_is_cleaned_as_with_plenty_of_space_or_not_at_all(
    text: Callable[[], str], codes: dict[int, int], tmp_path: Path, disk: Disk
) -> None:
    spec = log_dsl.parse(text())
    original = log_writer.write(spec, tmp_path / "original").parent
    wanted = cleaned(spec, original, tmp_path / "wanted")
    for free_bytes, code in codes.items():
        log_dir = disk.holds(original)
        before = digest(log_dir)
        disk.leave(free_bytes)
        dry = clean(spec, log_dir, dry_run=True)
        assert (digest(log_dir), disk.free_bytes) == (before, free_bytes)
        run = clean(spec, log_dir)
        after = digest(log_dir)
        assert (free_bytes, run.exit_code, dry.exit_code) == (free_bytes, code, code), (run.error, dry.error)
        if code:
            assert isinstance(run.error, NotEnoughSpaceError)
            assert not run.error.why, "a write has failed"
            assert str(run.error) == str(dry.error)
            assert (after, disk.free_bytes) == (before, free_bytes)
        else:
            after["cleaner-offset-checkpoint"] = after["cleaner-offset-checkpoint"].split()[0]  # Without the time.
            assert after == wanted
            assert disk.free_bytes > 0


@pytest.mark.parametrize("text", [tiny_result, large_groups_between, tombstones_later])
def test_the_need_in_the_message_is_enough_and_a_block_less_is_not(
    text: Callable[[], str], tmp_path: Path, disk: Disk
) -> None:
    spec = log_dsl.parse(text())
    original = log_writer.write(spec, tmp_path / "original").parent
    log_dir = disk.holds(original)
    disk.leave(0)
    error = clean(spec, log_dir).error
    assert isinstance(error, NotEnoughSpaceError)
    assert f"{error.needed_bytes:,} are missing" in str(error)
    assert "`output`" in str(error)
    for free_bytes, code in ((error.needed_bytes - 4096, 7), (-(-error.needed_bytes // 4096) * 4096, 0)):
        log_dir = disk.holds(original)
        disk.leave(free_bytes // 4096 * 4096)
        assert clean(spec, log_dir).exit_code == code


@pytest.mark.parametrize("free_bytes", [NONE, LITTLE])
def test_a_partition_that_fits_after_others_have_freed_space(free_bytes: int, tmp_path: Path, disk: Disk) -> None:
    for text in (as_large_as_before(), tiny_result().replace("orders-0", "users-0")):
        log_writer.write(log_dsl.parse(text), tmp_path / "original")
    log_dir = disk.holds(tmp_path / "original")
    before = digest(log_dir)
    disk.leave(free_bytes)
    config = {"cleanup.policy": "compact", "segment.bytes": "3000000"}
    spec = log_dsl.parse(tiny_result())
    result = clean_log_dir(log_dir, config, plan_options=PlanOptions(now_ms=spec.now_ms, force=True))
    assert [outcome.exit_code for outcome in result.partitions] == ([7, 7] if free_bytes == NONE else [0, 0])
    assert (digest(log_dir) == before) == (free_bytes == NONE)
    # The one that frees nothing comes first: both are equally dirty.
    assert [outcome.directory.name for outcome in result.partitions] == ["orders-0", "users-0"]


def test_a_disk_that_another_process_fills_between_two_swaps(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse(large_group_first())
    original = log_writer.write(spec, tmp_path / "original").parent
    log_dir = disk.holds(original)
    before = dict(values(log_dir / "orders-0").values())
    disk.leave(LITTLE)

    def filled_after(*arguments: Any, **options: Any) -> None:
        replace_segments(*arguments, **options)
        disk.leave(LITTLE // 4)

    with monkeypatch.context() as patched:
        patched.setattr(partition, "replace_segments", filled_after)
        outcome = clean(spec, log_dir)
    assert isinstance(outcome.error, NotEnoughSpaceError)
    assert not outcome.error.why, "a write has failed"
    assert disk.free_bytes == LITTLE // 4 + 4096  # That of the manifest.
    names = [path.name for path in (log_dir / "orders-0").iterdir()]
    assert not [name for name in names if name.startswith(".kcompact") or not name.startswith(("0", "leader", "part"))]
    assert not (log_dir / "cleaner-offset-checkpoint").exists()
    assert dict(values(log_dir / "orders-0").values()) == before

    disk.leave(SOME)
    assert clean(spec, log_dir).exit_code == 0
    assert dict(values(log_dir / "orders-0").values()) == before


def test_groups_are_counted_when_the_disk_gets_fuller_during_the_cleaning(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse("\n".join([f"{HEAD}210000", *(shrinking(base) for base in range(0, 250, 50)), "250: z=1"]))
    original = log_writer.write(spec, tmp_path / "original").parent
    wanted = cleaned(spec, original, tmp_path / "wanted")
    log_dir = disk.holds(original)
    disk.leave(8 * LITTLE)  # By its upper bound each group fits.
    counted: list[Sequence[int]] = []

    def filled_after(*arguments: Any, **options: Any) -> None:
        replace_segments(*arguments, **options)
        disk.leave(LITTLE)

    def count(prepared: PreparedClean, groups: Sequence[int]) -> list[GroupSize]:
        counted.append(groups)
        return count_sizes(prepared, groups)

    monkeypatch.setattr(partition, "replace_segments", filled_after)
    monkeypatch.setattr(space, "count_sizes", count)
    assert clean(spec, log_dir).error is None
    assert len(counted) == 1
    assert 0 < len(counted[0]) < 5
    after = digest(log_dir)
    assert after | {"cleaner-offset-checkpoint": after["cleaner-offset-checkpoint"].split()[0]} == wanted
