"""File systems on which deleting a file may free nothing: overlays, and those with reflinks and snapshots."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import NotEnoughSpaceError, RefusedError
from kcompact.host.disk import Disk
from kcompact.log.files import open_regular
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl
from tests.support.command_line import digest, partition

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")

NOW_MS = log_dsl.time_of("10:00")
COMPACT = {"cleanup.policy": "compact"}


def five_segments() -> str:
    """Five segments of 200 KB with the same keys: one fifth stays."""
    rows = [" ".join(f"[k{key}=*20000]" for key in range(10)) for _ in range(5)]
    return "log now=10:00\n" + "".join(f"{10 * number}: {row}\n" for number, row in enumerate(rows)) + "50: z=1\n"


@contextmanager
def mounted(kind: str, source: str | Path, target: Path, options: str) -> Iterator[Path]:
    target.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, source, target], check=True)
    try:
        yield target
    finally:
        subprocess.run(["umount", target], check=True)


@contextmanager
def overlay(root: Path, *, free_kib: int, has_one_file_system: bool = True) -> Iterator[Path]:
    """Yield an overlay with the partition in its lower layer and so much free space."""
    with mounted("tmpfs", "none", root / "disk", "size=20m") as disk:
        lower = disk / "lower" if has_one_file_system else root / "lower"
        for directory in (lower, disk / "upper", disk / "work"):
            directory.mkdir()
        partition(lower, five_segments())
        layers = f"lowerdir={lower},upperdir={disk / 'upper'},workdir={disk / 'work'}"
        with mounted("overlay", "none", root / "merged", layers) as merged:
            with open(disk / "filler", "wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, Disk.of(disk).free_bytes - (free_kib << 10))
            yield merged


def clean(log_dir: Path, config: Mapping[str, str] = COMPACT, **options: Any) -> PartitionOutcome:
    plan_options, clean_options = PlanOptions(now_ms=NOW_MS), CleanOptions(**options)
    result = clean_log_dir(log_dir, config, plan_options=plan_options, options=clean_options, engine="in-process")
    return result.partitions[0]


@pytest.mark.parametrize("free_kib", [100, 1400, 1900, 2250, 2600, 5000])
def test_an_overlay_needs_space_for_the_old_files_too(free_kib: int, tmp_path: Path) -> None:
    """A rename copies a file of the lower layer as a whole; deleting it frees nothing there."""
    with overlay(tmp_path, free_kib=free_kib) as log_dir:
        before = digest(log_dir)
        dry = clean(log_dir, dry_run=True)
        assert digest(log_dir) == before
        run = clean(log_dir)
        assert type(run.error) is type(dry.error)
        assert run.error is None or isinstance(run.error, NotEnoughSpaceError)
        assert (run.error is None) == (free_kib >= 2600)
        assert (digest(log_dir) == before) == (run.error is not None)


def test_an_overlay_of_two_file_systems_is_refused(tmp_path: Path) -> None:
    with overlay(tmp_path, free_kib=4000, has_one_file_system=False) as log_dir:
        before = digest(log_dir)
        for dry_run in (True, False):
            error = clean(log_dir, dry_run=dry_run).error
            assert isinstance(error, RefusedError)
            assert "overlay of several file systems" in str(error)
        assert digest(log_dir) == before


def test_retention_on_an_overlay_needs_space_for_what_it_deletes(tmp_path: Path) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "1", "retention.bytes": "-1"}
    with overlay(tmp_path, free_kib=1400) as log_dir:
        before = digest(log_dir)
        for dry_run in (True, False):
            error = clean(log_dir, config, apply_retention=True, dry_run=dry_run).error
            assert isinstance(error, NotEnoughSpaceError)
        assert digest(log_dir) == before
    with overlay(tmp_path, free_kib=2600) as log_dir:
        run = clean(log_dir, config, apply_retention=True)
        assert run.result is not None
        assert len(run.result.expired) == 5


def test_the_dry_run_of_a_cleaning_before_retention_lacks_the_same_space(tmp_path: Path) -> None:
    """The cleaning lacks space, and so does the retention that would make some."""
    config = {"cleanup.policy": "compact,delete", "retention.ms": "1", "retention.bytes": "-1"}
    with overlay(tmp_path, free_kib=1400) as log_dir:
        before = digest(log_dir)
        dry, run = (clean(log_dir, config, apply_retention=True, dry_run=dry_run).error for dry_run in (True, False))
        assert isinstance(run, NotEnoughSpaceError)
        assert str(dry) == str(run)
        assert digest(log_dir) == before


@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")
def test_what_a_snapshot_holds_is_not_freed(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 120 << 20)
    subprocess.run(["mkfs.btrfs", "--quiet", image], check=True)
    with mounted("btrfs", image, tmp_path / "btrfs", "loop") as root:
        subprocess.run(["btrfs", "subvolume", "create", root / "data"], check=True)
        for name in ("a", "b"):
            (root / "data" / name).write_bytes(os.urandom(1 << 20))
        os.sync()
        assert freed(root / "data" / "a") == 1 << 20
        subprocess.run(["cp", "--reflink=always", root / "data" / "a", root / "data" / "c"], check=True)
        assert [freed(root / "data" / name) for name in ("a", "b")] == [0, 1 << 20]
        subprocess.run(["btrfs", "subvolume", "snapshot", root / "data", root / "snapshot"], check=True)
        assert [freed(root / "data" / name) for name in ("a", "b")] == [0, 0]
        subprocess.run(["btrfs", "property", "set", root / "data", "compression", "zstd"], check=True)
        (root / "data" / "d").write_bytes(bytes(1 << 20))
        os.sync()
        assert freed(root / "data" / "d") == 0, "a compressed file takes less than its size"


def freed(path: Path) -> int:
    with open_regular(path) as file:
        return Disk.of(path.parent).storage.freed_bytes(file.descriptor)
