"""What a broker that recovers a log cuts off: after an unclean shutdown, and of the metadata log at each start."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kcompact.doctor.findings import Finding, Kind
from kcompact.format.batch import Batch
from kcompact.format.names import log_bases
from kcompact.log.directory import PartitionLog
from kcompact.log.past_damage import readable_batches
from kcompact.readable import counted


def recovery_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield what a broker that recovers the log cuts off, if more than a torn batch at the end is lost with it.

    Raises RefusedError, StorageError.
    """
    last = log.active_segment
    if log.recovered_from is None:
        return
    finding = partial(Finding, directory=log.directory, file=log.directory / last.log_name, offset=log.log_end_offset)
    file, cut_at = log.file(last.log_name), last.size_bytes
    later = [base for base in log_bases(log.files.names()) if base > last.base_offset]
    high_watermark = (log.log_dir.high_watermarks or {}).get(log.topic_partition, 0)
    behind = readable_batches(file, start_position=cut_at, after_offset=log.log_end_offset - 1)
    if later or any(isinstance(part, Batch) for part in behind):
        deleted = f", and deletes {counted(len(later), 'later segment')}" if later else ""
        yield finding(
            kind=Kind.TORN_END,
            position=cut_at,
            problem=f"a broker that starts cuts off {file.identity().size_bytes - cut_at:,} bytes, from offset "
            f"{log.log_end_offset} on{deleted}; records that can still be read are among them",
            broker_says=f"Corruption found in segment {last.base_offset}, truncating to offset {log.log_end_offset}",
        )
    elif high_watermark > log.log_end_offset:
        yield finding(
            kind=Kind.LOST_END,
            problem=f"a broker that starts finds the end of the log at offset {log.log_end_offset}, below the high "
            f"watermark {high_watermark}: records that were replicated are lost here. It fetches them from the other "
            "replicas, if there are any",
        )
