"""`clean` and `recover`: what they change and say, how they fail, and that a failure leaves everything alone."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import checkout
from kcompact import cleaner
from kcompact.clean import prepare
from kcompact.clean.job import CleanerStats
from kcompact.cleaner import CleanResult, Status
from kcompact.cli import planning
from kcompact.cli.commands import engines
from kcompact.cli.output import outcome, text
from kcompact.cli.output.json import CLEAN_FIELDS, IDENTITY_FIELDS, OUTCOME_FIELDS, PLAN_FIELDS
from kcompact.cli.signals import StopRequest
from kcompact.engine.in_process import InProcess
from kcompact.errors import CleaningAbortedError, LogChangedError, NotEnoughSpaceError
from kcompact.plan.partition import plan_partition
from tests import notation
from tests.command_line import (
    COMPACT,
    DIRTY,
    Ran,
    clean,
    command,
    digest,
    environment,
    flip,
    kcompact,
    partition,
    process,
)

LOG0, LOG3, LOG6 = (f"{base:020d}.log" for base in (0, 3, 6))


def settings(words: str, lines: str = DIRTY) -> str:
    return lines.replace("now=10:00", f"now=10:00 {words}")


def values(directory: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return what a reader of the partition sees: key and value by offset."""
    from kcompact.format.batch import read_records
    from kcompact.log.segment_reader import batches

    return {
        record.offset: (record.key, record.value)
        for log in sorted(directory.glob("*.log"))
        for batch in batches(log)
        for record in read_records(batch, file=log.name)
    }


COMPACTED = {3: (b"b", b"4"), 2: (b"a", b"3"), 4: (b"c", b"5"), 5: (b"d", None), 6: (b"a", b"6")}


# What it does


def test_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = clean(directory)
    assert ran.code == 0
    assert (ran.json["version"], ran.json["command"]) == (1, "clean")
    entry = ran.partition
    assert entry.keys() == {
        *IDENTITY_FIELDS,
        *PLAN_FIELDS,
        *OUTCOME_FIELDS,
        *CLEAN_FIELDS,
    }
    assert (entry["status"], entry["engine"], entry["end_offset"]) == ("cleaned", "in-process", 6)
    assert (entry["messages_read"], entry["messages_written"], entry["map_keys"]) == (6, 4, 4)
    assert values(directory) == COMPACTED
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
    assert sorted(path.name for path in directory.glob("*.log")) == [LOG0, LOG6]


def test_second_time_nothing_is_dirty(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    clean(directory)
    before = digest(tmp_path)
    entry = clean(directory).partition
    assert (entry["status"], entry["reason"], entry["exit_code"]) == ("skipped", "active-only", 0)
    assert digest(tmp_path) == before


def test_dry_run_is_the_run_and_writes_nothing(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    dry = clean("--dry-run", directory).partition
    assert digest(tmp_path) == before
    assert not (tmp_path / ".lock").exists()
    wet = clean(directory).partition
    assert dry["status"] == "dry-run"
    differing = {name for name in wet if wet[name] != dry[name]}
    assert differing <= {"status", "elapsed_s"}


def test_output_leaves_the_source_alone(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    before = digest(tmp_path / "data")
    output = tmp_path / "output"
    entry = clean("--output", output, directory).partition
    assert (entry["status"], digest(tmp_path / "data")) == ("cleaned", before)
    assert not (tmp_path / "data" / ".lock").exists()
    assert values(output / "orders-0") == COMPACTED
    again = clean("--output", output, directory)
    assert (again.code, again.partition["error"] is not None) == (4, True)


def test_force_ignores_the_ratio_only(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=3"))
    assert clean("--dry-run", directory).partition["reason"] == "below-ratio"
    assert clean("--dry-run", "--force", directory).partition["reason"] == "forced"
    young = ("--config", "min.compaction.lag.ms=86400000")
    assert clean("--dry-run", "--force", *young, directory).partition["reason"] == "min-compaction-lag"


def test_keep_tombstones(tmp_path: Path) -> None:
    lines = "log now=10:00\n0: d=~(horizon=09:30)\n1: a=1"
    kept = partition(tmp_path / "kept", lines)
    gone = partition(tmp_path / "gone", lines)
    clean("--keep-tombstones", kept)
    clean(gone)
    assert (0 in values(kept), 0 in values(gone)) == (True, False)


def test_rebuild_indexes(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / "00000000000000000000.timeindex", -5)
    assert clean("--dry-run", directory).code == 3
    ran = clean("--rebuild-indexes", directory)
    assert (ran.code, values(directory)) == (0, COMPACTED)


def test_internal_topics(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("name=__consumer_offsets-0"))
    whole = clean("--dry-run", tmp_path)
    assert (whole.code, whole.partition["status"], whole.partition["reason"]) == (0, "skipped", "internal")
    assert clean("--dry-run", directory).code == 4
    assert clean("--dry-run", "--include-internal", directory).partition["status"] == "dry-run"


def test_topic_and_several_log_directories(tmp_path: Path) -> None:
    for log_dir, name in (("one", "orders-0"), ("one", "users-0"), ("two", "orders-1")):
        partition(tmp_path / log_dir, settings(f"name={name}"))
    ran = clean("--topic", "orders", tmp_path / "one", tmp_path / "two")
    assert [(e["topic"], e["partition"], e["status"]) for e in ran.json["partitions"]] == [
        ("orders", 0, "cleaned"),
        ("orders", 1, "cleaned"),
    ]


def test_text_ends_with_kafkas_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = kcompact("clean", "--engine", "in-process", *COMPACT, "orders-0")
    assert ran.code == 0
    assert ran.err.splitlines() == ["orders-0: reading 419 B", "orders-0: writing 419 B"]
    lines = ran.out.splitlines()
    assert "  Log cleaner thread 0 cleaned log orders-0 (dirty section = [0, 6])" in lines
    assert "  Start size: 0.0 MB (6 messages)" in lines
    assert "  End size: 0.0 MB (4 messages)" in lines
    assert lines[-2].split() == ["partition", "status", "before", "after", "checkpoint"]
    assert lines[-1].split()[:2] == ["orders-0", "cleaned"]


def test_summary_in_kafkas_numbers(tmp_path: Path) -> None:
    """The log line of a broker that cleaned 25 GB with a full buffer."""
    plan = plan_partition(partition(tmp_path), notation.parse(DIRTY).config, now_ms=notation.parse(DIRTY).now_ms)
    plan = replace(plan, first_dirty_offset=310715098)
    stats = CleanerStats(
        bytes_read=round(25706.8 * 1048576),
        bytes_written=round(13219.4 * 1048576),
        map_bytes_read=round(12405.3 * 1048576),
        messages_read=49042590,
        messages_written=33931680,
        map_keys=134217728 // 24 * 9 // 10,
        invalid_messages=3,
    )
    result = CleanResult(
        directory=tmp_path,
        status=Status.CLEANED,
        plan=plan,
        stats=stats,
        end_offset=325968881,
        map_s=484.9,
        elapsed_s=1554.6,
    )
    assert outcome.summary(result) == [
        "Log cleaner thread 0 cleaned log orders-0 (dirty section = [310715098, 325968881])",
        "25,706.8 MB of log processed in 1,554.6 seconds (16.5 MB/sec).",
        "Indexed 12,405.3 MB in 484.9 seconds (25.6 Mb/sec, 31.2% of total time)",
        "Buffer utilization: 90.0%",
        "Cleaned 25,706.8 MB in 1069.7 seconds (24.0 Mb/sec, 68.8% of total time)",
        "Start size: 25,706.8 MB (49,042,590 messages)",
        "End size: 13,219.4 MB (33,931,680 messages)",
        "48.6% size reduction (30.8% fewer messages)",
        "Found 3 invalid messages during compaction.",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.05, "0.1"),
        (0.25, "0.3"),
        (1234.5678, "1,234.6"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-0.04, "-0.0"),
    ],
)
def test_numbers_are_rounded_as_in_java(value: float, shown: str) -> None:
    assert text.java_number(value) == shown


@pytest.mark.parametrize("name", ["fruit-prices", "editions", "none"])
def test_real_directories(name: str, tmp_path: Path) -> None:
    round_ = checkout.read_manifest(name)["rounds"][0]
    log_dir = checkout.copy_directory(name, "before", tmp_path / "data")
    pairs = [f"{key}={value}" for key, value in round_["config"].items()]
    pairs += [f"{topic}:{key}={value}" for topic, own in round_["topics"].items() for key, value in own.items()]
    options = [word for pair in pairs for word in ("--config", pair)]
    ran = kcompact("clean", "--engine", "in-process", "--json", "--now", str(round_["now_ms"]), *options, log_dir)
    assert ran.code == 0, ran.err
    target = checkout.copy_directory(name, "after", tmp_path / "after")
    for log in sorted(target.rglob("*.log")):
        assert (log_dir / log.relative_to(target)).read_bytes() == log.read_bytes()


# Bad input: each its own code, a clear message, and nothing changed


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def remove_mark(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").unlink()


def not_a_partition(directory: Path) -> None:
    for log in directory.glob("*.log"):
        log.unlink()


def leave_swap(directory: Path) -> None:
    (directory / f"{LOG0}.swap").write_bytes(b"")


POLICY = ("--config", "cleanup.policy=compact")
BAD: list[tuple[str, Callable[[Path], Any], tuple[str, ...], int, str]] = [
    ("corrupt batch", lambda d: flip(d / LOG0, 65), POLICY, 3, "checksum"),
    ("torn segment", lambda d: cut(d / LOG3), POLICY, 3, LOG3),
    ("torn active segment", lambda d: cut(d / LOG6), POLICY, 3, LOG6),
    ("overlapping segments", lambda d: flip(d / LOG0, 7, 0x40), POLICY, 3, "the next segment starts at 3"),
    ("no log", not_a_partition, POLICY, 4, "not a partition directory"),
    ("unclean shutdown", remove_mark, POLICY, 4, "not shut down cleanly"),
    ("unknown policy value", lambda d: None, ("--config", "cleanup.policy=compactt"), 2, "'compactt' is neither"),
    ("no policy", lambda d: None, (), 4, "--config orders:cleanup.policy=compact"),
    ("tiered", lambda d: None, (*POLICY, "--config", "remote.storage.enable=true"), 4, "tiered"),
    ("a broker's swap", leave_swap, POLICY, 8, "interrupted swap"),
    ("corrupt checkpoint", lambda d: (d.parent / "cleaner-offset-checkpoint").write_text("9\n"), POLICY, 3, "version"),
]


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--output",)], ids=["clean", "dry-run", "output"])
@pytest.mark.parametrize(("harm", "options", "code", "problem"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_changes_nothing(
    harm: Callable[[Path], Any], options: tuple[str, ...], code: int, problem: str, how: tuple[str, ...], tmp_path: Path
) -> None:
    directory = partition(tmp_path / "data")
    harm(directory)
    before = digest(tmp_path)
    how = (*how, str(tmp_path / "data2")) if how == ("--output",) else how
    # The log directory, because a directory without a log is none to start with.
    ran = kcompact("clean", "--engine", "in-process", "--now", COMPACT[-1], *options, *how, directory.parent)
    assert ran.code == code, ran.err
    assert problem in ran.err
    assert "Traceback" not in ran.err
    assert {name: was for name, was in digest(tmp_path).items() if name != "data2"} == before


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    bad, good = partition(tmp_path), partition(tmp_path / "x", settings("name=users-0"))
    worse = partition(tmp_path / "y", settings("name=zebra-0 unclean"))
    flip(bad / LOG0, 65)
    both = clean(bad, good)
    statuses = {entry["topic"]: (entry["status"], entry["exit_code"]) for entry in both.json["partitions"]}
    assert (both.code, statuses) == (3, {"orders": ("failed", 3), "users": ("cleaned", 0)})
    assert clean(bad, worse).code == 1


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "a+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def running_broker(log_dir: Path) -> Iterator[None]:
    """Hold the lock as a broker does: a POSIX record lock of another process."""
    arguments = [sys.executable, "-c", HOLD, str(log_dir / ".lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == "held\n"
        try:
            yield
        finally:
            broker.stdin.close()
            broker.wait()


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--output",)], ids=["clean", "dry-run", "output"])
def test_a_running_broker_locks_us_out(how: tuple[str, ...], tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    free = partition(tmp_path / "free", settings("name=users-0"))
    how = (*how, str(tmp_path / "out")) if how == ("--output",) else how
    before = digest(tmp_path / "data")
    with running_broker(tmp_path / "data"):
        ran = clean(*how, directory, free)
        assert kcompact("plan", *COMPACT, directory).code == 0
        if not how:
            assert kcompact("recover", directory).code == 5
    assert ran.code == 5
    assert "a broker or another kcompact" in ran.err
    assert {entry["topic"]: entry["exit_code"] for entry in ran.json["partitions"]} == {"orders": 5, "users": 0}
    assert digest(tmp_path / "data") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone without permission")
def test_a_directory_of_someone_else(tmp_path: Path) -> None:
    # All modules are loaded: nobody may not read them.
    assert kcompact("clean", "--dry-run", "--engine", "in-process", *COMPACT, partition(tmp_path)).code == 0
    with tempfile.TemporaryDirectory() as root:
        log_dir = Path(root)
        log_dir.chmod(0o755)
        directory = partition(log_dir)
        (log_dir / ".lock").touch()
        (log_dir / ".lock").chmod(0o666)
        before = digest(log_dir)
        code, err = as_nobody(lambda: kcompact("clean", "--engine", "in-process", *COMPACT, directory))
        assert (code, "cannot be written to: Permission denied" in err) == (4, True), err
        (log_dir / ".lock").chmod(0o600)
        code, err = as_nobody(lambda: kcompact("clean", "--engine", "in-process", *COMPACT, directory))
        assert (code, "cannot be opened: Permission denied" in err) == (4, True), err
        assert digest(log_dir) == before


def as_nobody(run: Callable[[], Ran]) -> tuple[int, str]:
    """Return exit code and standard error of a command that a user without any right has run."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            ran = run()
            os.write(write, ran.err.encode())
            os._exit(ran.code)
        finally:
            os._exit(99)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        err = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), err


def test_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=4096))
    ran = clean(directory)
    assert (ran.code, ran.partition["exit_code"]) == (NotEnoughSpaceError.exit_code, 7)
    assert "free" in ran.err
    assert digest(tmp_path) == before


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    ran = clean(directory)
    monkeypatch.undo()
    assert (ran.code, digest(tmp_path)) == (7, before)


def test_a_log_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    prepare_clean = prepare.prepare_clean

    def touched(*arguments: Any, **options: Any) -> Any:
        cleaning_ = prepare_clean(*arguments, **options)
        os.utime(directory / LOG0)
        return cleaning_

    monkeypatch.setattr(cleaner, "prepare_clean", touched)
    ran = clean(directory)
    assert ran.code == LogChangedError.exit_code
    assert (directory / LOG3).exists()


def test_a_fault_of_ours_is_one_partitions_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = [partition(tmp_path / name, settings(f"name={name}-0")) for name in ("a", "b")]
    prepare_clean = prepare.prepare_clean

    def fails_once(plan: Any, *arguments: Any, **options: Any) -> Any:
        if plan.log.topic_partition.topic == "a":
            raise ZeroDivisionError("oops")
        return prepare_clean(plan, *arguments, **options)

    monkeypatch.setattr(cleaner, "prepare_clean", fails_once)
    ran = clean(*directories)
    assert (ran.code, [entry["status"] for entry in ran.json["partitions"]]) == (1, ["failed", "cleaned"])
    assert "Traceback" not in ran.err
    assert "unexpected error" in ran.json["partitions"][0]["error"]


def test_unexpected_errors_show_no_traceback_but_with_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("\x1b[31mred")

    monkeypatch.setattr(planning, "plan_partition", fail)
    ran = clean(directory)
    assert (ran.code, "Traceback" in ran.err, "\x1b" in ran.err) == (1, False, False)
    assert "ZeroDivisionError" in ran.err
    assert "--debug" in ran.err
    assert "Traceback" in clean("--debug", directory).err


# Being stopped


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_between_two_steps(
    number: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path / "a")
    other = partition(tmp_path / "b", settings("name=users-0"))
    before = digest(tmp_path)
    write = InProcess.write

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        return write(*arguments)

    monkeypatch.setattr(InProcess, "write", interrupted)
    handlers = signal.getsignal(number)
    ran = clean(directory, other)
    assert ran.code == code
    assert [(entry["status"], entry["exit_code"]) for entry in ran.json["partitions"]] == [("failed", code)] * 2
    assert digest(tmp_path) == before
    assert signal.getsignal(number) is handlers


def test_a_signal_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    monkeypatch.setattr(planning, "plan_partition", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert kcompact("clean", *COMPACT, directory).code == 143


def test_signals_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        StopRequest().install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_request_is_checked() -> None:
    stop = StopRequest()
    stop.check("orders-0")
    stop.exit_code = 143
    with pytest.raises(CleaningAbortedError) as caught:
        stop.check("orders-0")
    assert caught.value.exit_code == 143


SLOW = """
import sys, time
from kcompact.engine.in_process import InProcess
def write(self, *arguments):
    print("writing", flush=True, file=sys.stderr)
    time.sleep(30)
InProcess.write = write
from kcompact.cli.app import main
main(sys.argv[1:])
"""


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    arguments = command("clean", "--engine", "in-process", "--json", *COMPACT, directory)[3:]
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments], stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert slow.stderr is not None
    assert slow.stderr.readline() == "writing\n"
    slow.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert slow.poll() is None
    slow.send_signal(signal.SIGINT)
    assert slow.wait(10) == 130
    assert "press Ctrl-C again" in slow.stderr.read()
    slow.stderr.close()
    assert kcompact("recover", directory).code == 0
    assert values(directory)[0] == (b"a", b"1")


# recover


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
    assert ran.partition.keys() >= {"topic", "partition", "directory", "finished", "undone", "checkpoint", "error"}
    again = kcompact("recover", directory)
    assert (again.code, "nothing-to-do" in again.out) == (0, True)
    clean(directory)
    assert values(directory) == COMPACTED


def test_clean_recovers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = interrupted(tmp_path, monkeypatch, 1)
    entry = clean(directory).partition
    assert (entry["status"], entry["recovered"]) == ("cleaned", "undone")
    assert values(directory) == COMPACTED


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


def test_each_path_is_handled_by_itself(tmp_path: Path) -> None:
    directory, nowhere = partition(tmp_path / "data"), tmp_path / "nowhere"
    recovered = kcompact("recover", "--json", nowhere, directory)
    assert (recovered.code, [entry["status"] for entry in recovered.json["partitions"]]) == (
        4,
        ["nothing-to-do", "failed"],
    )
    ran = clean(nowhere, directory)
    assert (ran.code, ran.err.splitlines()[-1]) == (4, f"error: {nowhere}: no such directory")
    assert [(entry["status"], entry["exit_code"], entry["reason"]) for entry in ran.json["partitions"]] == [
        ("cleaned", 0, "dirty-ratio"),
        ("failed", 4, None),
    ]
    assert values(directory) == COMPACTED
    ran = kcompact("clean", "--engine", "in-process", *COMPACT, nowhere)
    assert (ran.code, f"error: {nowhere}: no such directory\n" in ran.err) == (4, True)


def test_a_lock_says_nothing_about_the_partition(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    with running_broker(tmp_path):
        entry = clean(directory).partition
    assert (entry["exit_code"], entry["reason"]) == (5, None)


def test_the_metadata_log_is_never_cleaned(tmp_path: Path) -> None:
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "logs")
    directory = log_dir / "__cluster_metadata-0"
    before = digest(directory)
    ran = clean("--include-internal", "--force", directory)
    assert (ran.code, ran.partition["reason"], ran.partition["status"]) == (4, "internal", "failed")
    assert "--include-internal" not in ran.partition["error"]
    assert digest(directory) == before


# Asking


@pytest.mark.parametrize(("answer", "code", "is_cleaned"), [("y\n", 0, True), ("n\n", 130, False), ("", 130, False)])
def test_a_person_is_asked(
    answer: str, code: int, is_cleaned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pty = pytest.importorskip("pty")
    directory = partition(tmp_path)
    before = digest(directory)
    controller, terminal = pty.openpty()
    running = subprocess.Popen(
        command("clean", "--engine", "in-process", *COMPACT, directory),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**environment(), "NO_COLOR": "1", "TERM": "xterm"},
    )
    os.close(terminal)
    os.write(controller, answer.encode() or b"\x04")
    seen = b""
    while True:
        try:
            seen += os.read(controller, 4096)
        except OSError:
            break
    os.close(controller)
    assert running.wait() == code
    assert b"Clean 1 partition?" in seen
    assert (digest(directory) != before) == is_cleaned


# Spark


@pytest.mark.spark
def test_spark_is_the_default_engine(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = process("clean", "--json", "--master", "local[1]", *COMPACT, directory)
    assert ran.returncode == 0, ran.stderr
    assert '"engine": "spark"' in ran.stdout
    assert values(directory) == COMPACTED


def test_spark_that_does_not_start_is_each_partitions_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def broken(*_: Any) -> Iterator[Any]:
        raise NotEnoughSpaceError(path=tmp_path, needed_bytes=2, free_bytes=1)
        yield

    monkeypatch.setattr(engines, "_spark", broken)
    directory = partition(tmp_path)
    ran = kcompact("clean", "--json", *COMPACT, directory)
    assert (ran.code, ran.partition["status"]) == (7, "failed")


def test_spark_conf_needs_name_and_value(tmp_path: Path) -> None:
    ran = kcompact("clean", "--spark-conf", "spark.ui.enabled", partition(tmp_path))
    assert ran.code == 2
    assert "NAME=VALUE" in ran.err
