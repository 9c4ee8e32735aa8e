"""Logs and plans as values, without files: the input of the pure functions of `plan`."""

from __future__ import annotations

from pathlib import Path

from kcompact.config.settings import TopicConfig
from kcompact.format.names import TopicPartition
from kcompact.log.directory import LogDir, PartitionLog
from kcompact.log.files import FileIdentity, files_in
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, plan_cleaning

CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}))
NOW = 1_000_000


def segment(
    base_offset: int,
    size_bytes: int = 100,
    *,
    largest: int = 0,
    first: int | None = 0,
    index_bytes: int = 0,
    time_index_bytes: int = 0,
) -> Segment:
    """Return a segment that has only a `.log`; `first` and `largest` are its timestamps."""
    file = FileIdentity(name=f"{base_offset:020d}.log", device=1, inode=1, size_bytes=size_bytes, mtime_ns=0)
    return Segment(
        base_offset=base_offset,
        size_bytes=size_bytes,
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
        largest_timestamp_ms=largest,
        first_batch_max_timestamp_ms=first,
        last_modified_ms=0,
        files=(file,),
    )


def log_of(
    *segments: Segment, end: int = 400, checkpoint: int | None = None, start: int | None = None, name: str = "orders-0"
) -> PartitionLog:
    """Return a log that ends at offset `end`; `start` is its first base offset by default."""
    partition = TopicPartition.parse(name)
    assert partition is not None
    return PartitionLog(
        files=files_in(Path(name)),
        topic_partition=partition,
        log_dir=LogDir(path=Path()),
        segments=segments,
        snapshots={},
        log_start_offset=segments[0].base_offset if start is None else start,
        log_end_offset=end,
        checkpoint_offset=checkpoint,
    )


FOUR = (segment(0, largest=10), segment(100, largest=30), segment(200, largest=20), segment(300, largest=40))
LOG = log_of(*FOUR)
CLEAN = log_of(*FOUR, checkpoint=200)


def planned(log: PartitionLog, config: TopicConfig = CONFIG, **options: object) -> CleanPlan:
    """Return the plan of a log at `NOW`, without producers unless `options` has some."""
    arguments: dict[str, object] = {"now_ms": NOW, "producers": {}, **options}
    return plan_cleaning(log, config, **arguments)  # type: ignore[arg-type]
