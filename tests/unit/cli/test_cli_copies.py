"""`clean --output` of log directories: complete, or unfinished and said to be; continued by the same command."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import checkout
from kcompact.clean.groups import write_groups
from kcompact.cleaner import writing
from kcompact.errors import CleaningAbortedError
from kcompact.swap.copy.files import UnfinishedCopy
from tests.support.command_line import Ran, digest, kcompact

NOW = ("--now", "2023-11-15T22:00:00Z")
LOG = "00000000000000000000.log"


def copy(output: Path, *arguments: str | Path, as_json: bool = True) -> Ran:
    """Run `clean --output` in this process, without Spark."""
    form = ("--json",) if as_json else ()
    return kcompact("clean", "--engine", "in-process", *form, *NOW, "--output", output, *arguments)


def statuses(ran: Ran) -> dict[str, str]:
    return {f"{entry['topic']}-{entry['partition']}": entry["status"] for entry in ran.json["partitions"]}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The log directory of a broker that is also a controller, with a topic to clean and one to leave as it is."""
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "data")
    shutil.copytree(log_dir / "inventory-0", log_dir / "__consumer_offsets-0", copy_function=shutil.copy2)
    marks = (log_dir / "replication-offset-checkpoint").read_text()
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(marks.replace("\n1\n", "\n2\n") + "__consumer_offsets 0 4000\n")
    return log_dir


def test_a_log_directory_is_copied_completely(log_dir: Path, tmp_path: Path) -> None:
    before = digest(log_dir)
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, statuses(ran)) == (
        0,
        {"inventory-0": "cleaned", "__cluster_metadata-0": "copied", "__consumer_offsets-0": "copied"},
    )
    found = digest(tmp_path / "out")
    changed = {name.split("/")[0] for name in before.keys() | found.keys() if before.get(name) != found.get(name)}
    shared = {name for name in before if "/" not in name and (log_dir / name).is_file()}
    assert changed - shared == {"inventory-0"}
    for name in shared - {"cleaner-offset-checkpoint"}:
        assert (tmp_path / "out" / name).read_bytes() == (log_dir / name).read_bytes()
    assert (tmp_path / "out" / "cleaner-offset-checkpoint").read_text() == "0\n1\ninventory 0 3713\n"
    of_copy = ran.json["copy"]
    assert (of_copy["is_finished"], of_copy["missing"], of_copy["not_copied"]) == (True, [], [])
    assert digest(log_dir) == before


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("make", [link, pipe])
@pytest.mark.parametrize("chosen", [(), ("--topic", "*")], ids=["a log directory", "chosen topics"])
@pytest.mark.parametrize("name", [".kafka_cleanshutdown", "cleaner-offset-checkpoint", "bootstrap.checkpoint"])
def test_a_shared_file_that_is_none_is_found_before_copying(
    name: str, chosen: tuple[str, ...], make: Callable[[Path], None], log_dir: Path, tmp_path: Path
) -> None:
    (log_dir / name).touch()
    make(log_dir / name)
    for dry_run in (("--dry-run",), ()):
        ran = copy(tmp_path / "out", *dry_run, *chosen, log_dir)
        assert (ran.code, (tmp_path / "out").exists()) == (4, False)
        assert f"{name}: not a regular file" in ran.err


def test_a_pipe_in_a_future_directory_is_found_before_copying(log_dir: Path, tmp_path: Path) -> None:
    future = log_dir / f"inventory-0.{'0' * 32}-future"
    shutil.copytree(log_dir / "inventory-0", future)
    pipe(future / "leader-epoch-checkpoint")
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, (tmp_path / "out").exists()) == (4, False)
    assert "leader-epoch-checkpoint: not a regular file" in ran.err


def test_a_file_that_becomes_a_link_while_it_is_copied(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = UnfinishedCopy.fill

    def fill_and_link(*arguments: Any, **options: Any) -> None:
        fill(*arguments, **options)
        link(log_dir / "inventory-0" / "partition.metadata")

    monkeypatch.setattr("kcompact.swap.copy.files.UnfinishedCopy.fill", fill_and_link)
    ran = copy(tmp_path / "out", "--topic", "inventory", log_dir)
    assert (ran.partition["exit_code"], ran.code) == (6, 6)
    assert "partition.metadata: was changed or replaced while it was copied" in ran.err
    assert not (tmp_path / "out" / "inventory-0").exists()


def test_an_interrupted_copy_is_continued(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []

    def stop_at_the_second(prepared: Any, *arguments: Any) -> Any:
        cleaned.append(prepared.plan.log.directory.name)
        if len(cleaned) == 2:
            raise CleaningAbortedError(path="here")
        return write_groups(prepared, *arguments)

    both = ("--include-internal", "--config", "__consumer_offsets:cleanup.policy=compact", log_dir)
    expected = copy(tmp_path / "at-once", *both)
    monkeypatch.setattr(writing, "write_groups", stop_at_the_second)
    first = copy(tmp_path / "out", *both, as_json=False)
    assert (first.code, len(cleaned)) == (130, 2)
    assert "failed" not in first.out
    assert "not done" in first.out
    assert "this copy is unfinished, do not use it; missing: " in first.err
    assert "Run the same command again: it keeps what is finished." in first.err
    assert "Nothing is half done" not in first.err
    assert "cause" not in first.err
    second = copy(tmp_path / "out", *both)
    assert (second.code, len(cleaned)) == (0, 3)
    assert [entry["resumed"] for entry in second.json["partitions"]].count(True) == 2
    assert digest(tmp_path / "out").keys() == digest(tmp_path / "at-once").keys()
    for entry, other in zip(second.json["partitions"], expected.json["partitions"], strict=True):
        assert {name for name in entry if entry[name] != other[name]} <= {"resumed", "elapsed_s"}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_too_little_space_is_noticed_first(
    dry: tuple[str, ...], log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = sum(path.stat().st_size for path in log_dir.rglob("*") if path.is_file())
    status = SimpleNamespace(f_bavail=size_bytes // 4096 + 1, f_frsize=4096, f_flag=0)
    monkeypatch.setattr(os, "statvfs", lambda path: status)  # The bytes fit, the blocks do not.
    ran = copy(tmp_path / "out", *dry, log_dir)
    assert (ran.code, ran.err.count("not enough free space"), ran.out) == (7, 1, "")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_ends_the_copying(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(unfinished: UnfinishedCopy, *_: Any, **__: Any) -> None:
        tried.append(unfinished.source.path.name)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(unfinished.directory.path))

    monkeypatch.setattr("kcompact.swap.copy.files.UnfinishedCopy.fill", full)
    monkeypatch.setattr("kcompact.cleaner.engines.available_cores", lambda: 1)  # One partition after the other.
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, len(tried)) == (7, 1)
    assert {entry["exit_code"] for entry in ran.json["partitions"]} == {7}
    assert ran.err.count("not enough free space") == 1
    assert "Free some space" in ran.err
    assert "3 partitions: " in ran.err
    assert not (tmp_path / "out").exists()
