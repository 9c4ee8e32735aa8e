"""Surviving records to staged segment files.

A *part* is a run of source bytes of one group, cut at batch boundaries. Each part is written by itself, anywhere,
into a file of its own name; `join` puts the parts of a group end to end and makes the indexes, which depend on every
batch before them. Parts are decided batch by batch, so that where they are cut has no influence on the bytes.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact.clean.filter import Filtered, clean_batch
from kcompact.clean.job import OUTPUT_DTYPE, CleanerStats, CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.offset_map import bits
from kcompact.clean.read_back import verify_staged_log
from kcompact.clean.staged_files import MAX_PIECES, create, sync, write_error, write_pieces
from kcompact.format.batch import read_header, read_records
from kcompact.format.block import Bytes
from kcompact.host.throttle import Pace
from kcompact.log.segment_reader import verified_batches

FLUSH_BYTES = 64 << 20


# One part


def write_part(job: CleanJob, task: WriteTask, staging: str | None, pace: Pace) -> WrittenPart:
    """Clean one part into a new file of the staging directory, or only count it when there is none.

    The file of a group's only part is complete: it is synced and read back here. The name carries a random token: two
    attempts at the same part never share a file. Raises CorruptDataError, NotEnoughSpaceError, RefusedError,
    StorageError.
    """
    # Of a group's other parts the bytes are soon copied behind the first one, and gone.
    sink = _Counter() if staging is None else _PartFile(Path(staging), task.group, task.part, stays=task.part == 0)
    stats = CleanerStats()
    outputs: list[npt.NDArray[np.void]] = []
    clean = _cleaner(job)
    try:
        for split, survivors, unkeyed_or_tombstones in zip(
            task.splits, task.survivors, task.unkeyed_or_tombstones, strict=True
        ):
            pace.take(split.size_bytes)
            for run in clean(split, np.frombuffer(bytearray(survivors), np.uint8), unkeyed_or_tombstones):
                if staging is not None:
                    pace.take(run.stats.bytes_written)
                sink.append(run.pieces)
                rows = np.empty(len(run.sizes), OUTPUT_DTYPE)
                rows["last_offset"], rows["max_timestamp"] = run.last_offsets, run.max_timestamps
                rows["size_bytes"] = run.sizes
                outputs.append(rows)
                stats += run.stats
            pace.done(split.size_bytes)
        sink.wait_for_flush()
        part = WrittenPart(
            group=task.group,
            part=task.part,
            name=sink.name,
            size_bytes=stats.bytes_written,
            crc32c=sink.crc32c,
            outputs=b"".join(rows.tobytes() for rows in outputs),
            stats=stats,
        )
        if staging is None or not task.is_only:
            return part
        sync_s = sink.sync()
        _, verify_s = verify_staged_log(Path(staging) / sink.name, [part], pace, compiled=job.compiled)
        return replace(part, is_verified=True, sync_s=sync_s, verify_s=verify_s)
    finally:
        sink.close()


def _cleaner(job: CleanJob) -> Callable[[Split, Bytes, int], Iterator[Filtered]]:
    """Return what cleans a split: the kernels where they can, or else the readable definition."""
    if not job.compiled:
        return lambda split, survivors, unkeyed_or_tombstones: _clean_split(job, split, survivors)
    from kcompact.clean import split_kernels
    from kcompact.log import inflate

    buffers = inflate.Buffers()

    def clean(split: Split, survivors: Bytes, unkeyed_or_tombstones: int) -> Iterator[Filtered]:
        filtered = split_kernels.filter_split(job, split, survivors, unkeyed_or_tombstones, buffers)
        return _clean_split(job, split, survivors) if filtered is None else filtered

    return clean


def _clean_split(job: CleanJob, split: Split, survivors: Bytes) -> Iterator[Filtered]:
    path = Path(job.directory) / split.log_name
    row = 0
    for source in verified_batches(
        path,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
    ):
        # How many records a compressed batch of magic 0 or 1 holds stands nowhere but inside.
        count = source.header.records_count
        count = len(read_records(source, file=str(path))) if count < 0 else count
        cleaned = clean_batch(
            source,
            job,
            bits(survivors, row, count),
            is_discardable=source.header.base_offset in split.discardable,
            keeps_legacy_tombstones=split.keeps_legacy_tombstones,
            file=str(path),
        )
        row += count
        pieces, rows = [], np.empty((0, 3), np.int64)
        if cleaned.data is not None:
            written = read_header(cleaned.data, file=str(path), position=source.position)
            pieces = [cleaned.data]
            rows = np.array([(written.last_offset, written.max_timestamp, written.size_bytes)])
        stats = CleanerStats(
            bytes_read=source.header.size_bytes,
            messages_read=cleaned.messages_read,
            messages_written=cleaned.messages_written,
            invalid_messages=cleaned.invalid_messages,
            bytes_written=len(cleaned.data or b""),
        )
        yield Filtered(pieces, rows[:, 0], rows[:, 1], rows[:, 2], stats)


class _Counter:
    """Where a dry run writes: nowhere."""

    name = ""
    crc32c = 0

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        pass

    def wait_for_flush(self) -> None:
        pass

    def sync(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


class _PartFile:
    """A new file of the staging directory, with a running checksum of what went into it.

    What `stays` is brought to the disk in the background from time to time, so that not all of it waits for the end.
    """

    def __init__(self, staging: Path, group: int, part: int, *, stays: bool) -> None:
        self.name = f"group-{group}-part-{part}-{secrets.token_hex(4)}.log"
        self.crc32c = 0
        self._path = staging / self.name
        self._descriptor = create(self._path)
        self._stays = stays
        self._unsynced_bytes = 0
        self._flushing: threading.Thread | None = None
        self._problem: OSError | None = None

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        import crc32c

        for piece in pieces:
            self.crc32c = crc32c.crc32c(piece, self.crc32c)
            self._unsynced_bytes += len(piece)
        for start in range(0, len(pieces), MAX_PIECES):
            write_pieces(self._descriptor, pieces[start : start + MAX_PIECES], path=self._path)
        is_flushing = self._flushing is not None and self._flushing.is_alive()
        if self._stays and self._unsynced_bytes >= FLUSH_BYTES and not is_flushing:
            self._unsynced_bytes = 0
            self._flushing = threading.Thread(target=self._flush, daemon=True)
            self._flushing.start()

    def _flush(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as problem:
            self._problem = self._problem or problem

    def wait_for_flush(self) -> None:
        """Wait for what happens in the background. Raises StorageError, NotEnoughSpaceError if it went wrong.

        A failure to sync is told once and must not be lost: the next sync would succeed, without the data.
        """
        if self._flushing is not None:
            self._flushing.join()
        if self._problem is not None:
            raise write_error(self._path, self._problem, 0)

    def sync(self) -> float:
        """Flush to the disk and return the seconds it took."""
        started = time.monotonic()
        self.wait_for_flush()
        sync(self._descriptor, path=self._path)
        return time.monotonic() - started

    def close(self) -> None:
        # What is not complete stays: the staging directory goes as a whole.
        if self._flushing is not None:
            self._flushing.join()
        os.close(self._descriptor)
