"""Partitions that another process has open by another path: brokers are refused, readers noted."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner import in_use
from kcompact.cleaner.in_use import UseCheck, require_unused
from kcompact.host import other_processes
from tests.support.command_line import COMPACT, COMPACTED, LOG0, clean, digest, kcompact, partition, settings, values
from tests.support.holders import held

pytestmark = pytest.mark.usefixtures("among_others")

INDEX0 = LOG0.replace(".log", ".index")
IN_PLACE = ("clean", "--engine", "in-process", *COMPACT)


def by_another_path(directory: Path, other: Path) -> Path:
    """Return a log directory with its own `.lock` in which the same files have the same names."""
    (other / directory.name).mkdir(parents=True)
    for file in directory.glob("0*"):
        os.link(file, other / directory.name / file.name)
    return other / directory.name


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that a test starts count, although they are children of this process, which runs kcompact."""
    monkeypatch.setattr(other_processes, "_descends_from", lambda process, ancestor: False)


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize(
    ("name", "how", "code", "words"),
    [
        (LOG0, "write", 5, "has this file open for writing"),
        (LOG0, "append", 5, "has this file open for writing"),
        (INDEX0, "map", 5, "has this file mapped into memory"),
        (LOG0, "read", 0, "reads files of orders-0"),
        (LOG0, "map", 0, "reads files of orders-0"),
    ],
)
def test_a_broker_by_another_path_is_refused(name: str, how: str, code: int, words: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    (directory / INDEX0).write_bytes((0).to_bytes(4, "big") + (0).to_bytes(4, "big"))
    other = by_another_path(directory, tmp_path / "mount")
    before = digest(directory)
    with held(other / name, how) as pid:
        ran = kcompact(*IN_PLACE, "--rebuild-indexes", directory)
    assert ran.code == code, ran.err
    assert words in ran.err
    assert f"(process {pid})" in ran.err
    if code:
        assert digest(directory) == before
    else:
        assert values(directory) == COMPACTED


@pytest.mark.usefixtures("strangers")
def test_the_other_commands(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    staging = directory / ".kcompact-0123456789abcdef"
    staging.mkdir(mode=0o700)
    before = digest(directory)
    with held(by_another_path(directory, tmp_path / "mount") / LOG0, "write"):
        assert kcompact("recover", directory).code == 5
        assert kcompact(*IN_PLACE, directory).code == 5  # Before its recovery.
        assert digest(directory) == before
        staging.rmdir()
        copying = kcompact(*IN_PLACE, "--output", tmp_path / "out", directory)
        assert copying.code == 5
        trying = kcompact(*IN_PLACE, "--dry-run", directory)
        assert trying.code == 0
        assert "has to wait until it ends" in trying.err
    assert kcompact("recover", directory).code == 0


def test_own_processes_do_not_count(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    with held(directory / LOG0, "write") as pid:
        require_unused(directory)
        file = (directory / LOG0).stat()
        other_processes.forget_look()
        assert other_processes.look({file.st_dev}).of((file.st_dev, file.st_ino)) == []
        assert other_processes.command_of(pid).startswith("python")


@pytest.mark.parametrize(
    ("duration_s", "age_s", "is_recent"),
    [(0.01, 0.5, True), (0.01, 1.5, False), (0.1, 1.5, True), (0.1, 2.5, False), (30.0, 4.0, True), (30.0, 6.0, False)],
)
def test_how_long_a_look_is_used(
    duration_s: float, age_s: float, is_recent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = replace(other_processes.look(()), looked_at=1000.0, duration_s=duration_s)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + age_s)
    assert seen.is_recent == is_recent


def test_a_process_is_asked_for_its_name_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def command_of(process: int) -> str:
        asked.append(process)
        return "java"

    monkeypatch.setattr(other_processes, "command_of", command_of)
    found: dict[other_processes.Inode, other_processes.FileUse] = {}
    monkeypatch.setattr(other_processes, "_SEGMENT_FILE", re.compile(rb".*held-\d", re.DOTALL))
    held = [(tmp_path / f"held-{number}").open("wb") for number in range(3)]
    other_processes._look_at_descriptors(os.getpid(), frozenset({tmp_path.stat().st_dev}), found)
    assert {use.command for use in found.values()} == {"java"}
    assert (len(found), asked) == (len(held), [os.getpid()])
    for file in held:
        file.close()


def test_a_partition_is_listed_once_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    listed: list[Path] = []
    real = in_use._looked_up

    def looked_up(each: Path) -> tuple[other_processes.OpenFiles, list[tuple[str, other_processes.FileUse]]]:
        listed.append(each)
        return real(each)

    monkeypatch.setattr(in_use, "_looked_up", looked_up)
    in_use.UseCheck().look_at(directory)
    assert listed == [directory]


def test_one_look_serves_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[set[int]] = []
    real = other_processes.look

    def look(devices: set[int]) -> other_processes.OpenFiles:
        looks.append(devices)
        return real(devices)

    monkeypatch.setattr(other_processes, "look", look)
    monkeypatch.setattr(other_processes, "RECENT_S", 60.0)
    for number in range(10):
        partition(tmp_path, settings(f"name=orders-{number}"))
    ran = clean(tmp_path)
    assert {entry["status"] for entry in ran.json["partitions"]} == {"cleaned"}
    assert len(looks) == 1


def test_a_broker_that_starts_during_the_cleaning_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before = digest(directory)
    monkeypatch.setattr(other_processes, "RECENT_S", 0.0)
    monkeypatch.setattr(other_processes, "PAUSE_RATIO", 0)
    real = other_processes.look
    looks: list[set[int]] = []

    def look(devices: set[int]) -> other_processes.OpenFiles:
        looks.append(devices)
        seen = real(devices)
        if len(looks) > 1:
            status = (directory / LOG0).stat()
            seen.files[status.st_dev, status.st_ino] = [other_processes.FileUse(77, "java", True, False)]
        return seen

    monkeypatch.setattr(other_processes, "look", look)
    ran = clean(directory)
    assert ran.code == 5
    assert "java (process 77)" in ran.err
    assert digest(directory) == before


def test_a_file_that_is_newer_than_the_look_is_looked_at_again(tmp_path: Path) -> None:
    """It can have the inode number of a file that a process had open when it was deleted."""
    directory = partition(tmp_path)
    other_processes.forget_look()
    status = (directory / LOG0).stat()
    stale = other_processes.recent_look({status.st_dev})
    stale.files[status.st_dev, status.st_ino] = [other_processes.FileUse(77, "java", True, False)]
    os.utime(directory / LOG0)  # It has changed after the look, however long that took.
    require_unused(directory)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"_look_at": lambda *_: False, "_user_of": lambda process: "kafka"}, "processes of other users ("),
        ({"_FIRST_PID_NAMESPACE": "pid:[1]"}, "processes outside this container"),
        ({"PROC": Path("nowhere")}, "/proc is not mounted"),
    ],
)
def test_what_is_not_seen_is_said_once(
    seen: dict[str, object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_processes.is_in_container.cache_clear()
    for name, value in seen.items():
        monkeypatch.setattr(other_processes, name, value)
    check = UseCheck()
    for number in range(3):
        check.look_at(partition(tmp_path, settings(f"name=orders-{number}")))
    (note,) = check.notes
    assert words in note.text
    other_processes.is_in_container.cache_clear()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_processes_of_other_users_are_not_seen(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os._exit(0 if any("of root" in unseen for unseen in other_processes.look({0}).unseen) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
