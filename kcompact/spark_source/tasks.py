"""What one task of a query reads: the value that travels from the planning to Spark's workers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kcompact.format.names import TopicPartition
from kcompact.questions.record_filter import RecordFilter
from kcompact.spark_source.options import SourceOptions
from kcompact.stages.job import Split
from kcompact.values import dataclass


class LogPart(NamedTuple):
    """A part of a log file. Records below `start_offset` are not seen: they were deleted."""

    split: Split
    partition: TopicPartition
    start_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What one task of Spark reads: parts of logs, or whole partitions in the view `latest`."""

    options: SourceOptions
    bounds: RecordFilter
    now_ms: int
    memory_bytes: int
    parts: tuple[LogPart, ...] = ()
    directories: tuple[Path, ...] = ()
