"""The parts of one group in tests: a log of one segment, the tasks that write it in parts, and joining them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from kcompact.clean.job import CleanJob, WriteTask, WrittenPart
from kcompact.clean.join import join_parts
from kcompact.clean.write import write_part
from kcompact.config.settings import TopicConfig
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.files import LogFile
from kcompact.stages.job import Split
from tests.support import log_dsl
from tests.support.jobs import JOB
from tests.support.log_writer import DEFAULT_TIME
from tests.support.staging import staging_at

LINE = "0: a=1 [b=1 c=1] ~=1 b=2(lz4) d=~^09:30"


IS_LATEST = ([True], [False, True], [False], [True], [True])
"""Of each batch, which records no newer one supersedes."""


PACE = Pace(Throttle(None))


INDEXES = TopicConfig(index_interval_bytes=60, segment_index_bytes=10_000)
"""The settings of the indexes of a joined group."""


DATA = log_dsl.parse(f"log\n{LINE}").segments[0].batches


def job_of(source: Path) -> CleanJob:
    return replace(
        JOB,
        directory=str(source),
        now_ms=DEFAULT_TIME,
        delete_retention_ms=1,
    )


def tasks_at(source: Path, *cuts: int, is_only: bool | None = None) -> list[WriteTask]:
    """Return a source in parts: `cuts` are numbers of batches. `is_only`: the part is read back where it is made."""
    ends = [0, *np.cumsum([len(data) for data in DATA]).tolist()]
    offsets = [0, 1, 3, 4, 5, 6]
    bounds = [0, *cuts, len(DATA)]
    tasks = []
    for part, (start, end) in enumerate(itertools.pairwise(bounds)):
        split = Split(
            log=LogFile.at(source / f"{0:020d}.log"),
            start_position=ends[start],
            end_position=ends[end],
            base_offset=offsets[start],
            end_offset=offsets[end],
        )
        is_latest = [one for batch in IS_LATEST[start:end] for one in batch]
        tasks.append(
            WriteTask(
                group=0,
                part=part,
                run=part,
                splits=(split,),
                survivors=(np.packbits(np.array(is_latest, np.bool_), bitorder="little").tobytes(),),
                unkeyed_or_tombstones=(2,),
                is_only=not cuts if is_only is None else is_only,
                records=len(is_latest),
                most_bytes=0,
            )
        )
    return tasks


def parts_of(source: Path, staging: Path | None, *cuts: int, is_only: bool | None = None) -> list[WrittenPart]:
    where = None if staging is None else staging_at(staging)
    job = job_of(source)
    return [write_part(where, job, task, PACE) for task in tasks_at(source, *cuts, is_only=is_only)]


def joined(staging: Path, parts: list[WrittenPart], **options: Any) -> dict[str, bytes]:
    arguments: dict[str, Any] = {"config": INDEXES, **options}
    files = join_parts(staging_at(staging), 0, parts, **arguments).files
    for file in files:
        assert (staging / file.staged_as).stat().st_size == file.size_bytes
        assert (staging / file.staged_as).stat().st_mode & 0o777 == 0o600
        assert crc32c.crc32c((staging / file.staged_as).read_bytes()) == file.crc32c
    return {file.name: (staging / file.staged_as).read_bytes() for file in files}
