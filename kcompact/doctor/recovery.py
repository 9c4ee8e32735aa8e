"""What a broker that recovers a log cuts off: after an unclean shutdown, and of the metadata log at each start."""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.doctor.broken_batches import UP_TO_MAGIC_BYTES, torn_closed_end
from kcompact.doctor.findings import Finding, Kind
from kcompact.format.names import log_bases
from kcompact.log.directory import PartitionLog
from kcompact.readable import counted


def recovery_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield what a broker that recovers the log cuts off, if more than a torn batch at the end is lost with it.

    Raises RefusedError, StorageError.
    """
    last = log.active_segment
    if log.recovered_from is None:
        return
    file_bytes, cut_at = log.file(last.log_name).identity().size_bytes, last.size_bytes
    later = [base for base in log_bases(log.files.names()) if base > last.base_offset]
    is_torn = file_bytes - cut_at < UP_TO_MAGIC_BYTES
    is_torn = is_torn or torn_closed_end(log.file(last.log_name), cut_at, log.log_end_offset) is not None
    high_watermark = (log.log_dir.high_watermarks or {}).get(log.topic_partition, 0)
    if later or not is_torn or high_watermark > log.log_end_offset:
        deleted = f", and deletes {counted(len(later), 'later segment')}" if later else ""
        yield Finding(
            kind=Kind.TORN_END,
            directory=log.directory,
            file=log.directory / last.log_name,
            position=cut_at,
            offset=log.log_end_offset,
            problem=f"a broker that starts cuts off {file_bytes - cut_at:,} bytes from offset {log.log_end_offset} on"
            f"{deleted}; records that were replicated, or can still be read, are among them",
            broker_says=f"Corruption found in segment {last.base_offset}, truncating to offset {log.log_end_offset}",
        )
