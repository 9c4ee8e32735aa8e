"""The stages in tests: the plan of a log, what a scan prepares, and what writing stages."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from kcompact.clean.groups import count_groups, most_sizes, write_groups
from kcompact.clean.job import CleanerStats
from kcompact.clean.prepare import PreparedClean, Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Executor
from tests.support import log_dsl, log_writer
from tests.support.log_writer import LogSpec
from tests.support.staging import staging_at


def plan_of(spec: LogSpec, log_dir: Path) -> CleanPlan:
    directory = log_writer.write(spec, log_dir)
    return plan_partition(directory, spec.config, now_ms=spec.now_ms)


def staged(
    plan: CleanPlan,
    executor: Executor,
    *,
    sizes: Tuning | None = None,
    keep_tombstones: bool = False,
    rebuild_indexes: bool = False,
) -> tuple[dict[str, bytes], CleanerStats]:
    """Return every file that a cleaning stages, and what it counted."""
    if rebuild_indexes:
        plan = replace(plan, log=replace(plan.log, ignores_indexes=True))
    cleaning = prepare_clean(plan, executor, tuning=sizes, keep_tombstones=keep_tombstones)
    with tempfile.TemporaryDirectory() as staging:
        written = write_groups(cleaning, range(len(plan.groups)), staging_at(staging))
        segments, stats = written.segments, written.stats
        files = {}
        counted = count_groups(cleaning)
        for segment, size, most in zip(segments, counted.sizes, most_sizes(cleaning), strict=True):
            log, *others = (file.size_bytes for file in segment.files)
            assert (size.log_bytes, size.indexes) == (log, tuple(others)), "the dry run counted other sizes"
            bounds, exact = (*most.parts, *most.indexes), (*size.parts, *size.indexes)
            assert all(bound >= found for bound, found in zip(bounds, exact, strict=True)), (most, size)
        for segment in segments:
            for file in segment.files:
                data = (Path(staging) / file.staged_as).read_bytes()
                assert len(data) == file.size_bytes
                files[file.name] = data
    assert counted.stats == stats, "the dry run counted something else"
    assert stats.bytes_written == sum(len(data) for name, data in files.items() if name.endswith(".log"))
    return files, stats + CleanerStats(map_keys=cleaning.map_keys)


ROUND = "log now=10:00 index.interval.bytes=100 min.cleanable.dirty.ratio=0\n"


THREE = ROUND + "0: a=1 b=2 c=3 d=4^09:30 e=5\n5: a=2\n6: f=1"


def prepared(text: str, log_dir: Path, damage: dict[str, tuple[int, bytes]] | None = None) -> PreparedClean:
    spec = log_dsl.parse(text)
    plan = plan_of(spec, log_dir)
    for name, (position, data) in (damage or {}).items():
        path = plan.log.directory / name
        status = path.stat()
        content = bytearray(path.read_bytes())
        content[position : position + len(data)] = data
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # As a disk that loses bits.
    return prepare_clean(plan, InProcess())
