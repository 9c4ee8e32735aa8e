"""The journal of `clean`: a line before and after each partition; without the first one nothing is cleaned."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kcompact import (
    Cleaner,
    CleanOptions,
    InProcess,
    TopicConfig,
    TopicPartition,
    __version__,
    clean_partition,
    log_dir_lock,
    plan_partition,
    read_journal,
)
from tests.support import log_dsl
from tests.support.command_line import COMPACT, COMPACTED, LOG0, LOG3, clean, digest, kcompact, partition, values


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_cleaning_has_two_lines(tmp_path: Path) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    old = {name: (directory / name).read_bytes() for name in (LOG0, LOG3)}
    assert clean("--journal", journal, "--keep-replaced", tmp_path / "kept", directory).code == 0
    begin, end = lines(journal)
    assert (begin["event"], end["event"], end["status"], end["error"]) == ("begin", "end", "cleaned", None)
    for line in (begin, end):
        assert (line["kcompact"], line["topic"], line["partition"]) == (__version__, "orders", 0)
        assert line["directory"] == str(directory)
    assert begin["now_ms"] < begin["clock_ms"] <= end["clock_ms"]
    assert begin["config"]["cleanup.policy"] == {"value": "compact", "source": "option", "origin": None}
    assert begin["config"]["segment.bytes"]["source"] == "default"
    assert begin["options"]["keep_replaced"] == str(tmp_path / "kept")
    assert (begin["checkpoint_offset"], begin["first_uncleanable_offset"], end["end_offset"]) == (None, 6, 6)
    assert {file["name"] for file in begin["to_replace"]} == {file["name"] for file in end["replaced"]}
    digests = {file["name"]: file["crc32c"] for file in end["replaced"]}
    assert {name: digests[name] for name in old} == {name: crc32c(content) for name, content in old.items()}
    (log,) = [file for file in end["written"] if file["name"] == LOG0]
    assert log["crc32c"] == crc32c((directory / LOG0).read_bytes())
    assert (end["counts"]["messages_read"], end["counts"]["messages_written"]) == (6, 4)


def test_it_has_what_is_held_back_and_for_whom(tmp_path: Path) -> None:
    directory, other = partition(tmp_path / "logs"), partition(tmp_path / "other", "log now=10:00 hw=2\n0: a=1 b=2")
    assert clean("--journal", tmp_path / "journal", "--replica", tmp_path / "other", directory).code == 0
    begin, _ = lines(tmp_path / "journal")
    assert begin["held_back_from_offset"] == 2
    assert begin["replicas"] == [{"path": str(other), "end_offset": 2, "fetches_from_offset": 2}]


def test_it_grows_and_mends_half_a_line(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text('{"half')
    assert clean("--journal", journal, partition(tmp_path / "logs")).code == 0
    first, *rest = journal.read_text().splitlines()
    assert first == '{"half'
    assert [json.loads(line)["event"] for line in rest] == ["begin", "end"]


def test_a_line_of_which_a_bit_has_changed_does_not_count(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text('{"half')
    assert clean("--journal", journal, partition(tmp_path / "logs")).code == 0
    assert [line and line["event"] for line in read_journal(journal)] == [None, "begin", "end"]
    content = journal.read_bytes()
    end_at = content.rindex(b"\n", 0, -1) + 1
    for bit in range(8 * end_at, 8 * len(content), 7):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        journal.write_bytes(changed)
        first, second, *rest = read_journal(journal)
        assert (first, second and second["event"], set(map(str, rest))) == (None, "begin", {"None"}), bit


def test_nothing_to_clean_makes_no_journal(tmp_path: Path) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    assert clean("--dry-run", "--journal", journal, directory).code == 0
    assert clean("--output", tmp_path / "out", "--journal", journal, directory).code == 0
    assert not journal.exists()
    for place in ("in no directory", "in the log directory"):
        make, _ = NO_JOURNAL[place]
        assert kcompact("recover", "--journal", make(tmp_path), directory).code == 0


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def link(path: Path) -> Path:
    path.symlink_to(path.parent / "target")
    return path


NO_JOURNAL: dict[str, tuple[Callable[[Path], Path], int]] = {
    "a pipe": (lambda tmp_path: pipe(tmp_path / "pipe"), 4),
    "a link": (lambda tmp_path: link(tmp_path / "link"), 4),
    "in the log directory": (lambda tmp_path: tmp_path / "logs" / "journal", 4),
    "in the partition": (lambda tmp_path: tmp_path / "logs" / "orders-0" / "0.log", 4),
    "in no directory": (lambda tmp_path: tmp_path / "none" / "journal", 4),
    "a directory": (lambda tmp_path: tmp_path, 2),
    "a full disk": (lambda tmp_path: Path("/dev/full"), 4),
}


@pytest.mark.parametrize("place", NO_JOURNAL)
def test_without_a_journal_the_clean_does_not_begin(tmp_path: Path, place: str) -> None:
    directory = partition(tmp_path / "logs")
    make, code = NO_JOURNAL[place]
    path = make(tmp_path)
    before = digest(tmp_path / "logs")
    assert clean("--journal", path, directory).code == code
    assert digest(tmp_path / "logs") == before


@pytest.mark.parametrize(("call", "number", "code"), [("write", errno.ENOSPC, 7), ("fsync", errno.EIO, 1)])
def test_if_the_first_line_cannot_be_written_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, code: int
) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    before = digest(tmp_path / "logs")
    real = getattr(os, call)

    def fail(fd: int, *arguments: Any) -> Any:
        if Path(f"/proc/self/fd/{fd}").readlink() == journal:
            raise OSError(number, os.strerror(number))
        return real(fd, *arguments)

    monkeypatch.setattr(os, call, fail)
    ran = clean("--journal", journal, directory)
    assert ran.code == code
    assert "write the journal (--journal FILE is another)" in ran.err
    assert digest(tmp_path / "logs") == before


def test_if_the_last_line_cannot_be_written_a_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    real = os.fsync

    def fail(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink() == journal and b'"end"' in journal.read_bytes():
            raise OSError(errno.EIO, "gone")
        real(fd)

    monkeypatch.setattr(os, "fsync", fail)
    ran = clean("--journal", journal, directory)
    assert ran.code == 0
    assert "lacks its last line" in ran.err


def test_without_the_option_it_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.cleaner.journal.default_journal", lambda: tmp_path / "journal.jsonl")
    directory = partition(tmp_path / "logs")
    ran = kcompact("clean", "--engine", "in-process", "--config", "cleanup.policy=compact", directory)
    assert ran.code == 0
    assert [line["event"] for line in lines(tmp_path / "journal.jsonl")] == ["begin", "end"]


def test_a_deletion_has_no_counts(tmp_path: Path) -> None:
    """What was not measured is null in a line of the journal, not 0."""
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    settings = ("cleanup.policy=delete", "retention.ms=1", "retention.bytes=-1")
    policy = [word for setting in settings for word in ("--config", setting)]
    ran = clean("--apply-retention", "--journal", journal, *policy, directory)
    assert ran.partition["status"] == "deleted", ran
    _, end = read_journal(journal)
    assert end is not None
    assert (end["status"], end["end_offset"], end["counts"]) == ("deleted", None, None)
    assert end["deleted"]


@pytest.mark.parametrize("command", ["recover", "clean"])
def test_recovery_writes_the_end_of_what_was_interrupted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kcompact.swap.round_end.write_checkpoints", killed)
        assert clean("--journal", journal, directory).code == 130
    assert [line["event"] for line in lines(journal)] == ["begin"]
    options = (*COMPACT, "--now", "2024-01-01T10:00Z") if command == "clean" else ()
    assert kcompact(command, "--journal", journal, *options, directory).code == 0
    _, end = lines(journal)
    assert (end["event"], end["status"], end["end_offset"], end["replaced"]) == ("end", "tidied", 6, None)
    assert kcompact("recover", "--journal", journal, directory).code == 0
    assert len(lines(journal)) == 2


@pytest.mark.parametrize("place", ["in no directory", "in the log directory"])
def test_recovery_goes_on_without_a_journal(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "logs")
    make, _ = NO_JOURNAL[place]
    with monkeypatch.context() as patched:
        patched.setattr("kcompact.swap.round_end.write_checkpoints", lambda *_: [][0])
        assert clean(directory).code != 0
    ran = kcompact("recover", "--journal", make(tmp_path), directory)
    assert ran.code == 0
    assert "the journal lacks its last line" in ran.err
    assert values(directory) == COMPACTED


def test_a_partition_alone_and_the_service_write_it_too(tmp_path: Path) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "1"}
    directory = partition(tmp_path / "logs")
    options = CleanOptions(journal=tmp_path / "alone")
    plan = plan_partition(
        directory, TopicConfig(cleanup_policy=frozenset({"compact"})), now_ms=log_dsl.time_of("10:00")
    )
    with log_dir_lock(directory.parent) as lock:
        clean_partition(plan, InProcess(), lock=lock, options=options)
    assert [line["event"] for line in lines(tmp_path / "alone")] == ["begin", "end"]
    directory = partition(tmp_path / "others")
    options = CleanOptions(journal=tmp_path / "service", apply_retention=True)
    with Cleaner(directory.parent, config, options=options, clock=lambda: log_dsl.time_of("10:00")) as cleaner:
        assert cleaner.await_cleaned(TopicPartition("orders", 0), 6, timeout_s=60)
        deadline_s = time.monotonic() + 60
        while len(lines(tmp_path / "service")) < 4 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    events = [(line["event"], line.get("status"), bool(line.get("deleted"))) for line in lines(tmp_path / "service")]
    assert events == [
        ("begin", None, False),
        ("end", "cleaned", False),
        ("begin", None, False),
        ("end", "deleted", True),
    ]
