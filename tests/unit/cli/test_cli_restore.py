"""`clean --keep-replaced` and `restore`: everything is as before, or nothing is changed."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcompact.errors import CleaningAbortedError
from kcompact.swap.replace import replace_segments
from tests.support import log_dsl, log_writer
from tests.support.command_line import (
    COMPACTED,
    DIRTY,
    LOG0,
    LOG3,
    LOG6,
    clean,
    digest,
    flip,
    kcompact,
    partition,
    rewrite,
    values,
)
from tests.support.sealed import edited

CHECKPOINT = "cleaner-offset-checkpoint"
OTHER = "log name=users-0 now=10:00\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6\n"


def identities(log_dir: Path) -> dict[str, tuple[object, ...]]:
    """Return content, inode, time, mode and owner of each file; the checkpoint is always another file."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(log_dir.rglob("*")):
        if path.is_file() and path.name != ".lock":
            status = path.stat()
            found[str(path.relative_to(log_dir))] = (
                path.read_bytes(),
                *(() if path.name == CHECKPOINT else (status.st_ino, status.st_mtime_ns)),
                *(status.st_mode, status.st_uid, status.st_gid),
            )
    return found


def kept(tmp_path: Path) -> tuple[Path, Path]:
    """Write and clean a partition and keep what is replaced; return its directory and the links to it."""
    partition(tmp_path / "logs")
    return cleaned_and_kept(tmp_path)


def cleaned_and_kept(tmp_path: Path) -> tuple[Path, Path]:
    """Clean the partition and keep what is replaced; return its directory and the links to it."""
    directory = tmp_path / "logs" / "orders-0"
    assert clean("--keep-replaced", tmp_path / "kept", directory).code == 0
    assert values(directory) == COMPACTED
    return directory, tmp_path / "kept" / directory.name


def with_checkpoint(log_dir: Path) -> None:
    (log_dir / CHECKPOINT).write_text("0\n2\nusers 7 3\nother 0 7\n")


@pytest.mark.parametrize("prepare", [lambda log_dir: None, with_checkpoint])
def test_everything_is_as_before(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    partition(tmp_path / "logs")
    log_writer.write(log_dsl.parse(OTHER), tmp_path / "logs")
    prepare(tmp_path / "logs")
    before = identities(tmp_path / "logs")
    ran = clean("--keep-replaced", tmp_path / "kept", tmp_path / "logs")
    assert ran.code == 0
    assert "no space is freed" in ran.err
    after = identities(tmp_path / "logs")
    assert after != before
    checked = kcompact("restore", "--check", "--json", tmp_path / "kept")
    assert (checked.code, {each["status"] for each in checked.json["partitions"]}) == (0, {"restorable"})
    assert identities(tmp_path / "logs") == after
    links = digest(tmp_path / "kept")
    ran = kcompact("restore", tmp_path / "kept")
    assert (ran.code, ran.out.count("restored")) == (0, 2)
    assert identities(tmp_path / "logs") == before
    assert digest(tmp_path / "kept") == links
    again = kcompact("restore", "--json", tmp_path / "kept")
    assert {each["status"] for each in again.json["partitions"]} == {"nothing-to-do"}
    assert identities(tmp_path / "logs") == before


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def put_link(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))


def edit(path: Path, field: str, value: object) -> None:
    path.write_bytes(edited(path.read_bytes(), [field], value))


def without_a_log(path: Path) -> None:
    groups = json.loads(path.read_text())["groups"]
    groups[0]["old"] = [file for file in groups[0]["old"] if file["name"] != LOG3]
    edit(path, "groups", groups)


def without_a_segment(path: Path) -> None:
    groups = json.loads(path.read_text())["groups"]
    groups[0]["old"] = [file for file in groups[0]["old"] if not file["name"].startswith(LOG3[:20])]
    edit(path, "groups", groups)


def with_another_id(path: Path) -> None:
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


def cleaned_again(path: Path) -> None:
    """Put a new file in the place of a segment, as a cleaning does, with the same content."""
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.rename(path)


WENT_ON: dict[str, Callable[[Path], object]] = {
    "a broker appended": lambda directory: append(directory / LOG6),
    "a broker rolled": lambda directory: (directory / f"{9:020d}.log").touch(),
    "the checkpoint is another": lambda directory: rewrite(directory.parent / CHECKPOINT, b"0\n1\norders 0 7\n"),
}
MOVED_ON: dict[str, Callable[[Path, Path], object]] = {
    "the active segment is gone": lambda directory, links: (directory / LOG6).unlink(),
    "the active segment is another": lambda directory, links: cleaned_again(directory / LOG6),
    "the active segment begins otherwise": lambda directory, links: rewrite(directory / LOG6, b"x" * 1000),
    "the active segment is shorter": lambda directory, links: os.truncate(directory / LOG6, 10),
    "the new segment is another": lambda directory, links: flip(directory / LOG0, 100),
    "an old segment is there again": lambda directory, links: shutil.copy2(links / LOG3, directory / LOG3),
    "a segment is between": lambda directory, links: (directory / f"{2:020d}.log").touch(),
    "the topic is another": lambda directory, links: with_another_id(directory / "partition.metadata"),
    "the partition is gone": lambda directory, links: directory.rename(directory.parent.parent / "away"),
    "the manifest is of another partition": lambda directory, links: links.rename(links.parent / "users-0"),
}
DAMAGED: dict[str, Callable[[Path, Path], object]] = {
    "a kept file is damaged": lambda directory, links: flip(links / LOG3, 100),
    "a kept file is missing": lambda directory, links: (links / LOG3).unlink(),
    "a kept file is a link": lambda directory, links: put_link(links / LOG3),
    "a kept file has another mode": lambda directory, links: (links / LOG3).chmod(0o600),
    "the manifest is cut off": lambda directory, links: os.truncate(links / "kept.json", 100),
    "a bit of the manifest is another": lambda directory, links: flip(links / "kept.json", 100, 1),
    "the manifest has another field": lambda directory, links: edit(links / "kept.json", "more", 1),
    "the manifest leads elsewhere": lambda directory, links: edit(links / "kept.json", "directory", "/etc/passwd"),
    "the manifest is of another version": lambda directory, links: edit(links / "kept.json", "version", 1),
    "the manifest lacks a log": lambda directory, links: without_a_log(links / "kept.json"),
    "the manifest lacks a segment": lambda directory, links: without_a_segment(links / "kept.json"),
}


@pytest.mark.parametrize("change", WENT_ON)
def test_after_a_broker_has_appended_a_restore_puts_back_what_it_has_not_touched(tmp_path: Path, change: str) -> None:
    partition(tmp_path / "logs")
    before = identities(tmp_path / "logs")
    directory, _ = cleaned_and_kept(tmp_path)
    WENT_ON[change](directory)
    since = identities(tmp_path / "logs")
    assert kcompact("restore", "--check", tmp_path / "kept").code == 0
    assert identities(tmp_path / "logs") == since
    ran = kcompact("restore", tmp_path / "kept")
    assert (ran.code, "all is back" in ran.err) == (0, True)
    added = {name: since[name] for name in since if name not in before or name.endswith(LOG6)}
    added.pop(CHECKPOINT, None)
    assert identities(tmp_path / "logs") == before | added


def test_after_retention_a_restore_puts_back_the_groups_that_are_left(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs", WAVES)
    before = identities(tmp_path / "logs")
    assert clean(*ONE_BY_ONE, "--keep-replaced", tmp_path / "kept", directory).code == 0
    for path in directory.glob(f"{0:020d}.*"):  # A broker deletes whole segments from the start of the log.
        path.unlink()
    ran = kcompact("restore", "--json", tmp_path / "kept")
    (found,) = ran.json["partitions"]
    assert (ran.code, found["status"], found["not_restored"]) == (4, "restored-in-part", [0])
    assert f"{LOG0}: is gone: the partition has moved on" in found["error"]
    assert "all is back" not in ran.err
    after = identities(tmp_path / "logs")
    deleted = {f"orders-0/{base:020d}" for base in (0, 3)}
    assert after == {name: was for name, was in before.items() if name.partition(".")[0] not in deleted}
    again = kcompact("restore", tmp_path / "kept")
    assert (again.code, identities(tmp_path / "logs") == after) == (4, True)


def test_the_checkpoint_comes_from_the_file_that_was_kept(tmp_path: Path) -> None:
    partition(tmp_path / "logs")
    with_checkpoint(tmp_path / "logs")
    _, links = cleaned_and_kept(tmp_path)
    before = digest(tmp_path)
    content = (links / CHECKPOINT).read_bytes()
    rewrite(links / CHECKPOINT, content.replace(b"other 0 7", b"other 0 6"))
    assert kcompact("restore", tmp_path / "kept").code == 3
    rewrite(links / CHECKPOINT, content)
    assert digest(tmp_path) == before


@pytest.mark.parametrize(("change", "code"), [*((each, 4) for each in MOVED_ON), *((each, 3) for each in DAMAGED)])
@pytest.mark.parametrize("how", [(), ("--check",)])
def test_a_restore_is_refused_and_changes_nothing(tmp_path: Path, change: str, code: int, how: tuple[str]) -> None:
    directory, links = kept(tmp_path)
    (MOVED_ON | DAMAGED)[change](directory, links)
    before = digest(tmp_path)
    ran = kcompact("restore", *how, tmp_path / "kept")
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    assert digest(tmp_path) == before


def test_after_another_clean_a_restore_is_refused(tmp_path: Path) -> None:
    directory, _ = kept(tmp_path)
    (tmp_path / "logs" / CHECKPOINT).unlink()
    assert clean("--force", directory).code == 0
    assert kcompact("restore", "--check", tmp_path / "kept").code == 0  # It has changed nothing.
    flip(directory / LOG0, 100)
    assert kcompact("restore", tmp_path / "kept").code == 4


@pytest.mark.parametrize(
    ("call", "number", "code"), [("link", errno.EPERM, 4), ("link", errno.EXDEV, 4), ("fsync", errno.EIO, 1)]
)
def test_if_a_file_cannot_be_kept_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, code: int
) -> None:
    directory = partition(tmp_path / "logs")
    before = identities(tmp_path / "logs")
    seen: list[Path] = []
    real = getattr(os, call)

    def fail(*arguments: Any, **options: Any) -> None:
        where = Path(f"/proc/self/fd/{options.get('dst_dir_fd', arguments[0])}").readlink()
        if "kept" in where.parts:
            seen.append(where)
            if len(seen) == 2:
                raise OSError(number, os.strerror(number))
        real(*arguments, **options)

    monkeypatch.setattr(os, call, fail)
    ran = clean("--keep-replaced", tmp_path / "kept", directory)
    assert ran.code == code
    assert identities(tmp_path / "logs") == before
    assert not (tmp_path / "kept").exists()


def test_a_full_disk_while_the_manifest_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "logs")
    before = identities(tmp_path / "logs")
    real = os.write

    def write(fd: int, data: Any) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "kept.json.tmp":
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    assert clean("--keep-replaced", tmp_path / "kept", directory).code == 7
    assert identities(tmp_path / "logs") == before
    assert not (tmp_path / "kept").exists()


def test_a_swap_that_stops_leaves_the_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The links are there before the first rename. A restore recovers first, then finds out what is to be done."""
    directory = partition(tmp_path / "logs")
    before = identities(tmp_path / "logs")
    real, left = os.rename, [9]

    def rename(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, "gone")
        real(*arguments, **options)

    monkeypatch.setattr(os, "rename", rename)
    assert clean("--keep-replaced", tmp_path / "kept", directory).code == 8
    monkeypatch.undo()
    assert kcompact("restore", "--check", tmp_path / "kept").code == 8
    assert kcompact("restore", tmp_path / "kept").code == 0
    assert identities(tmp_path / "logs") == before


WAVES = DIRTY + "8: b=8 c=8\n10: d=9\n12: a=7\n14: e=1\n"
"""Two groups with ONE_BY_ONE, and an active segment."""
ONE_BY_ONE = ("--config", "internal.segment.bytes=420")


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_a_clean_in_waves_that_is_stopped_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """The manifest grows with each wave. What is not swapped yet counts as untouched."""
    directory = partition(tmp_path / "logs", WAVES)
    before = identities(tmp_path / "logs")
    monkeypatch.setattr("kcompact.cleaner.space.MOST_OF_A_WAVE", 1)
    seen: list[int] = []

    def stop(*arguments: Any, **options: Any) -> None:
        if len(seen) == groups:
            raise CleaningAbortedError(path=directory)
        seen.append(1)
        replace_segments(*arguments, **options)

    monkeypatch.setattr("kcompact.cleaner.partition.replace_segments", stop)
    ran = clean(*ONE_BY_ONE, "--keep-replaced", tmp_path / "kept", directory)
    assert (ran.code, len(ran.partition["groups"])) == (0 if groups == 2 else 130, 2)
    assert (identities(tmp_path / "logs") == before) == (groups == 0)
    assert kcompact("restore", tmp_path / "kept").code == 0
    assert identities(tmp_path / "logs") == before
