"""Tests with Spark: their marks, their logs, and programs that run in a process of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from py4j import java_gateway, protocol
from pyspark.errors.exceptions.captured import capture_sql_exception

from kcompact.clean.groups import count_groups, write_groups
from kcompact.clean.job import CleanerStats, CleanJob
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.config.settings import TopicConfig
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, spark_context
from kcompact.errors import RefusedError
from kcompact.format.batch import Record, build
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split
from tests.support import log_writer
from tests.support.command_line import digest
from tests.support.log_writer import LogSpec, SegmentSpec
from tests.support.patience import PATIENCE_S
from tests.support.staging import staging_at

SPARK = [
    pytest.mark.spark,
    # PySpark leaves the closing of some sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""The marks of a test module that starts Spark."""


def pretend_session(monkeypatch: pytest.MonkeyPatch, *, had_session: bool) -> None:
    """Have Py4J raise as in a process that has, or has not, had a SparkSession: that changes Py4J for good."""
    raises = protocol.get_return_value
    monkeypatch.setattr(java_gateway, "get_return_value", capture_sql_exception(raises) if had_session else raises)


ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_700_000_000_000
T0 = 1_600_000_000_000
CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100_000, index_interval_bytes=1_000)


# Logs


def batch_of_ten(base_offset: int) -> bytes:
    """Return a batch of ten records; keys and tombstones recur."""
    return build(
        [
            Record(
                number,
                NOW_MS - 100_000_000 + number,
                None if number % 97 == 0 else b"key-%d" % (number * 7919 % 401),
                None if number % 13 == 0 else b"value of offset %d" % number,
                (),
            )
            for number in range(base_offset, base_offset + 10)
        ]
    )


def write_log(log_dir: Path, *, segments: int = 5, batches: int = 100) -> Path:
    """Write a log directory with `orders-0`: a clean section of one segment, a dirty one, an active segment."""
    starts = [number * batches * 10 for number in range(segments + 1)]
    specs = [
        SegmentSpec(
            base_offset=start,
            batches=tuple(batch_of_ten(start + 10 * number) for number in range(batches if start < starts[-1] else 1)),
        )
        for start in starts
    ]
    spec = LogSpec(
        segments=tuple(specs),
        checkpoint=batches * 10,
        settings={"index.interval.bytes": str(CONFIG.index_interval_bytes)},
    )
    return log_writer.write(spec, log_dir)


def write_partition(directory: Path, *, total_bytes: int, segments: int, value_bytes: int) -> None:
    """Write a partition of about `total_bytes` in segments of the same size, and an empty active one.

    Each key comes about twice, so that half of it stays.
    """
    source = random.Random(directory.name)
    noise = source.randbytes(value_bytes * 64)
    records_per_batch = max(1, 100_000 // value_bytes)
    batches = -(-total_bytes // (segments * records_per_batch * value_bytes))
    keys = max(1, segments * batches * records_per_batch // 2)

    def batch(base_offset: int) -> bytes:
        records = []
        for number in range(base_offset, base_offset + records_per_batch):
            start = source.randrange(value_bytes * 63)
            key = b"%09d" % source.randrange(keys)
            records.append(Record(number, T0 + number, key, noise[start : start + value_bytes], ()))
        return build(records)

    log_writer.write(LogSpec(name=directory.name, segments=()), directory.parent)
    per_segment = batches * records_per_batch
    for base_offset in range(0, segments * per_segment, per_segment):
        offsets = range(base_offset, base_offset + per_segment, records_per_batch)
        log_writer.write_segment(directory, base_offset, map(batch, offsets))
    log_writer.write_segment(directory, segments * per_segment, [])


def left_behind(directory: Path) -> list[str]:
    """Return what is no file of a log directory: staging directories, suffixes of a swap."""
    lawful = (".log", ".index", ".timeindex", ".lock", "-checkpoint", META_PROPERTIES, CLEAN_SHUTDOWN_FILE)
    return [str(path) for path in directory.rglob("*") if path.is_file() and not path.name.endswith(lawful)] + [
        str(path) for path in directory.rglob(".kcompact*")
    ]


def content(directory: Path) -> dict[str, str]:
    """Return names and contents, without the times, which differ from run to run where a file is new."""
    return {name: said.partition(" ")[0] for name, said in digest(directory).items()}


# Plans and what comes of them


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
    assert count_groups(cleaning).stats.messages_written > 0
    done = write_groups(cleaning, range(len(plan.groups)), staging_at(staging))
    staged = {file.name: (staging / file.staged_as).read_bytes() for one in done.segments for file in one.files}
    return cleaning.map_keys, done.stats, staged


def scan_arguments(plan: CleanPlan) -> tuple[CleanJob, list[list[Split]]]:
    """Return what an executor of one worker is asked to scan."""

    @dataclasses.dataclass(frozen=True)
    class Recorder(InProcess):
        asked: list[Any] = dataclasses.field(default_factory=list)

        def scan_and_reduce(self, job: Any, tasks: Sequence[Sequence[Split]], stages: Any) -> Any:
            self.asked.extend((job, [list(splits) for splits in tasks]))
            return InProcess().scan_and_reduce(job, tasks, stages)

    recorder = Recorder(parallelism=1)
    prepare_clean(plan, recorder)
    job, tasks = recorder.asked
    return job, tasks


def endless(plan: CleanPlan) -> tuple[CleanJob, list[list[Split]]]:
    """Return a scan that would take minutes: the same splits over and over."""
    job, (splits,) = scan_arguments(plan)
    return job, [splits * 500] * 4


@dataclasses.dataclass
class Started:
    """The Spark of the tests, as the engine of a round sees it."""

    context_: Any
    is_first: bool = False

    @contextlib.contextmanager
    def context(self) -> Iterator[Any]:
        yield self.context_


# Programs in a process of their own

PRELUDE = f"""
import os, sys, time, signal
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from kcompact.clean.scan import CLEANING
from kcompact.stages.executor import Progress
from kcompact.clean.prepare import prepare_clean
from kcompact.errors import CleaningAbortedError, EngineError
from kcompact.engine.spark import OnSpark, jvm, spark_context, spark_start
from tests.support.command_line import COMPACT
from tests.support.spark_runs import endless, plan_of, process_tree
"""


def script(body: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", PRELUDE + body, *arguments]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary), **more}


def finished(
    body: str, directory: Path, tmp_path: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        script(body, str(directory), *arguments),
        env=environment(tmp_path, **more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def processes_of(tmp_path: Path) -> list[int]:
    """Return the processes that were told to use the temporary directory of a test."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if f"TMPDIR={tmp_path}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


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
    # PySpark imports these two if they are installed. Nothing here needs them.
    cast("dict[str, Any]", sys.modules).update(pandas=None, pyarrow=None)
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
        with pytest.raises(RefusedError, match="already has a SparkContext"), spark_context():
            pass
    assert ours == outcome(plan, InProcess(), None, directory.parent / "in-process")
    assert dict(os.environ) == before
    assert sys.path == path
    assert process_tree() == [os.getpid()]


def parents_of_workers(sc: Any) -> set[str]:
    def parent(_: Any) -> Iterator[str]:
        yield Path(f"/proc/{os.getppid()}/cmdline").read_text()

    return set(sc.parallelize(range(2), 2).mapPartitions(parent).collect())
