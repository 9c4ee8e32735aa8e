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
from kcompact.cleaner import copies
from kcompact.errors import CleaningAbortedError
from kcompact.swap.copy.files import fill
from tests.support.command_line import Ran, digest, flip, kcompact, partition, settings

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


def test_the_text_says_what_the_copy_is_good_for(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "orders-1.00000000000000000000000000000000-delete").mkdir()
    whole = copy(tmp_path / "out", log_dir, as_json=False).out
    assert f"{tmp_path / 'out'} is a complete copy of {log_dir}" in whole
    assert "marked for deletion: a broker deletes it when it starts" in whole
    chosen = copy(tmp_path / "chosen", "--topic", "inventory", log_dir, as_json=False).out
    assert "has only the chosen partitions, so no broker can start on it" in chosen


def test_chosen_topics_are_no_log_directory(log_dir: Path, tmp_path: Path) -> None:
    ran = copy(tmp_path / "out", "--topic", "*", log_dir)
    assert (ran.code, statuses(ran)) == (
        0,
        {"inventory-0": "cleaned", "__cluster_metadata-0": "skipped", "__consumer_offsets-0": "copied"},
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".kafka_cleanshutdown",
        "__consumer_offsets-0",
        "cleaner-offset-checkpoint",
        "inventory-0",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    again = kcompact("plan", "--json", *NOW, "--config", "cleanup.policy=compact", tmp_path / "out" / "inventory-0")
    assert (again.partition["reason"], again.partition["high_watermark"]) == ("active-only", 4000)


@pytest.mark.parametrize("chosen", [(), ("--topic", "*")], ids=["a log directory", "chosen topics"])
@pytest.mark.parametrize(
    ("lag_ms", "dry_status", "status"), [("0", "dry-run", "cleaned"), ("9999999999999", "copied", "copied")]
)
def test_a_dry_run_says_what_the_run_copies(
    lag_ms: str, dry_status: str, status: str, chosen: tuple[str, ...], log_dir: Path, tmp_path: Path
) -> None:
    arguments: tuple[str | Path, ...] = ("--config", f"inventory:min.compaction.lag.ms={lag_ms}", *chosen, log_dir)
    before = digest(tmp_path)
    dry = copy(tmp_path / "out", "--dry-run", *arguments)
    assert digest(tmp_path) == before
    run = copy(tmp_path / "out", *arguments)
    assert (dry.code, run.code) == (0, 0)
    assert (statuses(dry)["inventory-0"], statuses(run)["inventory-0"]) == (dry_status, status)
    assert statuses(dry) | {"inventory-0": status} == statuses(run)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("make", [link, pipe])
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_a_small_file_that_is_none_is_found_first(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    (directory / name).write_bytes(b"0\n0\n")
    make(directory / name)
    before = digest(tmp_path)
    for arguments in (
        ("inspect",),
        ("plan",),
        ("clean", "--dry-run", "--engine", "in-process"),
        ("clean", "--engine", "in-process"),
        ("clean", "--engine", "in-process", "--output", tmp_path / "out"),
    ):
        ran = kcompact(*arguments, "--json", "--config", "cleanup.policy=compact", *NOW, directory)
        assert (ran.code, ran.partition["exit_code"]) == (4, 4)
        assert f"{name}: not a regular file" in ran.partition["error"]
        assert digest(tmp_path) == before


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
    def fill_and_link(*arguments: Any, **options: Any) -> None:
        fill(*arguments, **options)
        link(log_dir / "inventory-0" / "partition.metadata")

    monkeypatch.setattr("kcompact.swap.copy.files.fill", fill_and_link)
    ran = copy(tmp_path / "out", "--topic", "inventory", log_dir)
    assert (ran.partition["exit_code"], ran.code) == (6, 6)
    assert "partition.metadata: was changed or replaced while it was copied" in ran.err
    assert not (tmp_path / "out" / "inventory-0").exists()


def test_a_damaged_partition_leaves_the_copy_unfinished(log_dir: Path, tmp_path: Path) -> None:
    flip(log_dir / "inventory-0" / LOG, 65)
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, statuses(ran)["inventory-0"]) == (3, "failed")
    assert "this copy is unfinished, do not use it; missing: inventory-0\n" in ran.err
    assert "run the same command again" in ran.err
    of_copy = ran.json["copy"]
    assert (of_copy["is_finished"], of_copy["missing"], of_copy["exit_code"]) == (False, ["inventory-0"], 1)
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {".kcompact-copy", "__cluster_metadata-0", "__consumer_offsets-0"}

    flip(log_dir / "inventory-0" / LOG, 65)
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, ran.json["copy"]["is_finished"]) == (0, True)
    assert {entry["topic"]: entry["resumed"] for entry in ran.json["partitions"]} == {
        "inventory": False,
        "__cluster_metadata": True,
        "__consumer_offsets": True,
    }
    assert (tmp_path / "out" / "meta.properties").exists()


def test_an_interrupted_copy_is_continued(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []

    def stop_at_the_second(prepared: Any, *arguments: Any) -> Any:
        cleaned.append(prepared.plan.log.directory.name)
        if len(cleaned) == 2:
            raise CleaningAbortedError(path="here")
        return write_groups(prepared, *arguments)

    both = ("--include-internal", "--config", "__consumer_offsets:cleanup.policy=compact", log_dir)
    expected = copy(tmp_path / "at-once", *both)
    monkeypatch.setattr(copies, "write_groups", stop_at_the_second)
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


def test_other_options_make_the_partition_anew(log_dir: Path, tmp_path: Path) -> None:
    leftover = log_dir / "__consumer_offsets-0" / f"{LOG}.swap"
    leftover.touch()
    assert copy(tmp_path / "out", log_dir).code == 8
    leftover.unlink()
    ran = copy(tmp_path / "out", "--config", "inventory:delete.retention.ms=1", log_dir)
    resumed = {entry["topic"] for entry in ran.json["partitions"] if entry["resumed"]}
    assert (ran.code, resumed) == (0, {"__cluster_metadata"})


def test_nothing_of_the_source_is_copied_if_all_is_refused(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    ran = copy(tmp_path / "out", directory.parent)
    assert (ran.code, ran.json["copy"]["missing"]) == (4, ["orders-0"])
    assert not (tmp_path / "out").exists()
    assert "unfinished" not in ran.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry-run"])
@pytest.mark.parametrize(("target", "code"), [("data", 4), ("data/out", 4), ("full", 4), ("file", 2), ("file/out", 1)])
def test_the_output_is_checked_first(
    target: str, code: int, dry: tuple[str, ...], log_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    (tmp_path / "file").touch()
    before = digest(tmp_path)
    ran = copy(tmp_path / target, *dry, log_dir)
    assert (ran.code, ran.out, ran.err.lower().count("error:")) == (code, "", 1)
    assert digest(tmp_path) == before


def test_an_output_is_not_inside_itself(log_dir: Path) -> None:
    assert f"error: {log_dir}: is the directory to copy from\n" in copy(log_dir, log_dir).err
    inside = copy(log_dir / "out", log_dir).err
    assert f"error: {log_dir / 'out'}: is inside {log_dir}, the directory to copy from\n" in inside


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

    def full(source: Any, files: Any, target: Any, *_: Any, **__: Any) -> None:
        tried.append(source.path.name)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target.path))

    monkeypatch.setattr("kcompact.swap.copy.files.fill", full)
    monkeypatch.setattr("kcompact.cleaner.engines.available_cores", lambda: 1)  # One partition after the other.
    ran = copy(tmp_path / "out", log_dir)
    assert (ran.code, len(tried)) == (7, 1)
    assert {entry["exit_code"] for entry in ran.json["partitions"]} == {7}
    assert ran.err.count("not enough free space") == 1
    assert "Free some space" in ran.err
    assert "3 partitions: " in ran.err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_writes_nothing(log_dir: Path, tmp_path: Path) -> None:
    ran = copy(tmp_path / "out", "--dry-run", log_dir)
    assert (ran.code, statuses(ran)["inventory-0"], "copy" in ran.json) == (0, "dry-run", False)
    assert not (tmp_path / "out").exists()


def test_two_log_directories_have_no_common_copy(log_dir: Path, tmp_path: Path) -> None:
    other = partition(tmp_path / "other", settings("name=users-0")).parent
    ran = copy(tmp_path / "out", log_dir, other)
    assert (ran.code, "once for each log directory" in ran.err) == (4, True)
    chosen = copy(tmp_path / "out", "--config", "users:cleanup.policy=compact", "--topic", "[iu]*", log_dir, other)
    assert (chosen.code, sorted(statuses(chosen))) == (0, ["inventory-0", "users-0"])
