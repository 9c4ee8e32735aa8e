"""`recover`: interrupted swaps are finished or undone, and files of a broker are left alone."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    LOG0,
    clean,
    digest,
    kcompact,
    leave_swap,
    partition,
    values,
)


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> Path:
    """Return a partition whose swap stopped after so many renames."""
    directory = partition(tmp_path)
    real, left = os.rename, [after]

    def rename(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, "gone")
        real(*arguments, **options)

    monkeypatch.setattr(os, "rename", rename)
    assert clean(directory).code == 8
    monkeypatch.undo()
    return directory


@pytest.mark.parametrize(("after", "status"), [(1, "undone"), (7, "finished")])
def test_recover(after: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = interrupted(tmp_path, monkeypatch, after)
    before = digest(tmp_path)
    for how in ("--dry-run", "--output"):
        options = [how] if how == "--dry-run" else [how, str(tmp_path.parent / f"{tmp_path.name}-out")]
        assert clean(*options, directory).code == 8
    assert digest(tmp_path) == before
    assert kcompact("plan", "--json", *COMPACT, directory).partition["reason"] in ("leftovers", "not-a-partition")
    ran = kcompact("recover", "--json", directory)
    assert (ran.code, ran.partition["status"]) == (0, status)
    assert ran.partition.keys() >= {
        "topic",
        "partition",
        "directory",
        "finished",
        "undone",
        "checkpoint_offset",
        "error",
    }
    again = kcompact("recover", directory)
    assert (again.code, "nothing-to-do" in again.out) == (0, True)
    clean(directory)
    assert values(directory) == COMPACTED


def test_clean_recovers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = interrupted(tmp_path, monkeypatch, 1)
    entry = clean(directory).partition
    assert (entry["status"], entry["recovered"]) == ("cleaned", "undone")
    assert values(directory) == COMPACTED


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_a_directory_that_is_no_partition_is_refused(kind: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    directory = directory.rename(f"{directory}.{'0' * 32}-{kind}")
    for command in (("plan",), ("recover",), ("clean", "--dry-run", "--engine", "in-process")):
        ran = kcompact(*command, directory)
        assert (ran.code, f"a broker's -{kind} directory" in ran.err) == (4, True), command


def test_recover_leaves_a_brokers_files_to_the_broker(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    leave_swap(directory)
    before = digest(tmp_path)
    ran = kcompact("recover", directory)
    assert (ran.code, digest(tmp_path)) == (8, before)
    assert f"{LOG0}.swap" in ran.err
    (directory / f"{LOG0}.swap").rename(directory / f"{LOG0}.deleted")
    ran = kcompact("recover", directory)
    assert (ran.code, "left for the broker" in ran.out) == (0, True)
    assert clean(directory).code == 0


def test_recover_removes_what_killed_runs_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "data")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (scratch / "kcompact-spark-0123").mkdir(mode=0o700)
    (scratch / "kcompact-spark-mine").mkdir(mode=0o755)
    (directory.parent / "cleaner-offset-checkpoint.tmp").write_text("0\n")
    ran = kcompact("recover", "--json", directory)
    removed = [str(directory.parent / "cleaner-offset-checkpoint.tmp"), str(scratch / "kcompact-spark-0123")]
    assert (ran.code, ran.json["removed"]) == (0, removed)
    assert not any(Path(path).exists() for path in removed)
    assert (scratch / "kcompact-spark-mine").exists()
    assert kcompact("recover", "--json", directory).json["removed"] == []


def test_a_checkpoint_that_was_not_written_is_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    real = os.replace

    def replace(source: Any, target: Any, **options: Any) -> None:
        if target == "cleaner-offset-checkpoint":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", replace)
    ran = clean(directory)
    assert (ran.code, ran.partition["status"], ran.partition["exit_code"]) == (7, "checkpoint-not-written", 7)
    assert "cleaned completely, but the checkpoint was not written" in ran.partition["error"]
    assert f"kcompact recover {directory}" in ran.partition["error"]
    assert values(directory) == COMPACTED
    assert not (tmp_path / "cleaner-offset-checkpoint").exists()
    monkeypatch.undo()
    ran = kcompact("recover", "--json", directory)
    assert (ran.code, ran.partition["checkpoint_offset"]) == (0, 6)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
    assert [path.name for path in directory.glob(".kcompact*")] == []
