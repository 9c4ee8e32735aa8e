"""Real mounts in and over a log directory: nothing is lost, and what cannot be replaced is found before a swap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import (
    COMPACTED,
    DIRTY,
    LOG0,
    LOG3,
    LOG6,
    clean,
    digest,
    kcompact,
    partition,
    settings,
    values,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")

CHECKPOINT = "cleaner-offset-checkpoint"
SNAPSHOT3 = f"{3:020d}.snapshot"
WITH_SNAPSHOTS = settings("checkpoint=0", DIRTY) + "snapshot 3:\nsnapshot 6:\n"

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Calls `mount`, which must succeed; the last argument is where. Everything is unmounted after the test."""
    with ExitStack() as stack:

        def mounted(*words: str | Path) -> None:
            subprocess.run(["mount", *words], check=True)
            stack.callback(subprocess.run, ["umount", words[-1]], check=True)

        yield mounted


@contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def other_file(kind: str, directory: Path, mount: Mount) -> Path:
    """Return the name of a file to be, on the same file system or on another one."""
    directory.mkdir()
    if kind == "another":
        mount("-t", "tmpfs", "tmpfs", directory)
    return directory / "a file"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"orders-0/{LOG0}", "the same"),
        (f"orders-0/{LOG3}", "another"),
        (f"orders-0/{LOG3.replace('.log', '.timeindex')}", "the same"),
        (f"orders-0/{SNAPSHOT3}", "the same"),
        (CHECKPOINT, "another"),
    ],
)
def test_a_file_with_a_mount_over_it_is_found_before_the_swap(
    name: str, kind: str, tmp_path: Path, mount: Mount
) -> None:
    log_dir = tmp_path / "data with a space"
    directory = partition(log_dir, WITH_SNAPSHOTS)
    other = other_file(kind, tmp_path / "other", mount)
    shutil.copy2(log_dir / name, other)
    with bound(other, log_dir / name):
        before = digest(log_dir)
        for option in ("--dry-run", "--quiet"):
            ran = clean(option, directory)
            assert ran.code == 4, ran
            assert f"{log_dir / name}: another file is mounted over it" in ran.err
            assert "umount '" in ran.err
        assert digest(log_dir) == before
        assert clean("--output", tmp_path / "out", directory).code == 0
        assert values(tmp_path / "out" / "orders-0") == COMPACTED
        assert digest(log_dir) == before
    assert clean(directory).code == 0
    assert values(directory) == COMPACTED


def test_retention_finds_a_mount_over_a_file(tmp_path: Path) -> None:
    words = "cleanup.policy=compact,delete retention.bytes=1 retention.ms=-1 min.compaction.lag.ms=99999999"
    directory = partition(tmp_path / "data", settings(words))
    other = tmp_path / "other"
    shutil.copy2(directory / LOG3, other)
    with bound(other, directory / LOG3):
        before = digest(directory)
        ran = clean(*(word for each in words.split() for word in ("--config", each)), "--apply-retention", directory)
        assert ran.code == 4, ran
        assert f"{LOG3}: another file is mounted over it" in ran.err
        assert digest(directory) == before


def test_a_mount_that_appears_after_the_checks_stops_a_swap_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path / "data")
    other = tmp_path / "other"
    shutil.copy2(directory / LOG3, other)
    with bound(other, directory / LOG3):
        with monkeypatch.context() as patched:
            patched.setattr("kcompact.swap.protection.covered_names", lambda fd, names: frozenset())
            ran = clean(directory)
        assert ran.code == 8, ran
        assert "Device or resource busy" in ran.err
        assert kcompact("recover", directory).code == 8
    assert kcompact("recover", directory).code == 0
    assert values(directory) == COMPACTED


def a_partition_of_its_own(log_dir: Path, mount: Mount) -> Path:
    """The partition directory is a file system."""
    directory, aside = partition(log_dir), log_dir.with_name("aside")
    shutil.move(directory, aside)
    directory.mkdir()
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
    shutil.copytree(aside, directory, dirs_exist_ok=True)
    return directory


def from_another_disk(log_dir: Path, mount: Mount) -> Path:
    """The partition directory comes from another file system than the log directory."""
    disk = log_dir.with_name("disk")
    disk.mkdir()
    mount("-t", "tmpfs", "tmpfs", disk)
    directory = partition(disk)
    (log_dir / "orders-0").mkdir(parents=True)
    mount("--bind", directory, log_dir / "orders-0")
    return log_dir / "orders-0"


def with_a_disk_inside(log_dir: Path, mount: Mount) -> Path:
    """Another file system lies in the partition directory, which Kafka ignores."""
    directory = partition(log_dir)
    (directory / "lost+found").mkdir()
    mount("-t", "tmpfs", "tmpfs", directory / "lost+found")
    (directory / "lost+found" / LOG0).write_bytes(b"not of this log")
    return directory


def with_a_mount_over_the_active_segment(log_dir: Path, mount: Mount) -> Path:
    """No cleaning replaces it."""
    directory = partition(log_dir)
    other = log_dir.with_name("other")
    shutil.copy2(directory / LOG6, other)
    mount("--bind", other, directory / LOG6)
    return directory


@pytest.mark.parametrize(
    "prepare",
    [a_partition_of_its_own, from_another_disk, with_a_disk_inside, with_a_mount_over_the_active_segment],
)
def test_mounts_that_do_no_harm(prepare: Callable[[Path, Mount], Path], tmp_path: Path, mount: Mount) -> None:
    directory = prepare(tmp_path / "data", mount)
    assert clean("--dry-run", directory).code == 0
    ran = clean(directory)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran
    assert values(directory) == COMPACTED
    assert (tmp_path / "data" / CHECKPOINT).is_file()
    assert not list(directory.glob(".kcompact-*"))


@pytest.mark.parametrize("kind", ["an empty disk", "a disk of its own for the partition"])
def test_an_output_on_another_file_system(kind: str, tmp_path: Path, mount: Mount) -> None:
    directory, out = partition(tmp_path / "data"), tmp_path / "out"
    before = digest(directory)
    place = out if kind == "an empty disk" else out / "orders-0"
    place.mkdir(parents=True)
    mount("-t", "tmpfs", "tmpfs", place)
    ran = clean("--output", out, directory)
    assert digest(directory) == before
    if place == out:
        assert ran.code == 0, ran
        assert values(out / "orders-0") == COMPACTED
    else:
        assert ran.code == 4, ran
        assert not list(place.iterdir())
