"""Stage 3: writes the surviving records of one part of a group to a new file.

A *part* is a run of whole batches of one group. Each part is written on its own, by any worker, into a file of its own.
`join` then joins the parts of a group and builds the indexes, which depend on all batches. Each batch is cleaned on its
own, so the boundaries of parts never change the result.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact.clean import split_kernels
from kcompact.clean.batch_fates import decide_batch_fates, table_of
from kcompact.clean.filter import CleanedBatch, FilteredRun, apply_fate
from kcompact.clean.job import OUTPUT_DTYPE, CleanerStats, CleanJob, RecordCounts, WriteTask, WrittenPart
from kcompact.clean.offset_map import bits
from kcompact.clean.staged_files import MAX_PIECES, StagingDirectory, create, sync, verify_staged_log, write_pieces
from kcompact.errors import storage_error, storage_errors
from kcompact.format.batch import Batch, read_header, read_records
from kcompact.format.block import Bytes
from kcompact.format.checksum import crc32c
from kcompact.host.throttle import Pace
from kcompact.log.inflate import Buffers
from kcompact.log.segment_reader import verified_batches
from kcompact.stages.job import Split
from kcompact.stages.splits import ahead

RUN_BATCHES = 256
RUN_BYTES = 8 << 20
"""The readable definition decides about at most this many batches and bytes at a time."""
FLUSH_BYTES = 64 << 20
"""A background flush begins after this many bytes."""


def write_part(staging: StagingDirectory | None, job: CleanJob, task: WriteTask, pace: Pace) -> WrittenPart:
    """Clean one part into a new file of the staging directory. Without `staging`, only count.

    The only part of a group is a whole segment, so it is synced and read back here. Its name has a random token: two
    attempts at the same part never share a file. Raises CorruptDataError, LogChangedError, NotEnoughSpaceError,
    RefusedError, StorageError.
    """
    if staging is None:
        return _write(job, task, NoFile(), pace)
    with staging.opened() as dir_fd:
        # The first part becomes the segment. The other parts are appended to it and then removed, so they need no sync.
        output = PartFile(staging.path, dir_fd, task.group, task.part, stays=task.part == 0)
        part = _write(job, task, output, pace)
        if not task.is_only:
            return part
        path = staging.path / output.name
        _, verify_s = verify_staged_log(path, [part], pace, dir_fd=dir_fd)
        return replace(part, is_verified=True, verify_s=verify_s)


def _write(job: CleanJob, task: WriteTask, output: NoFile | PartFile, pace: Pace) -> WrittenPart:
    """Clean one part into an output and close it. The only part of a group is synced."""
    stats, counts = CleanerStats(), RecordCounts()
    outputs: list[npt.NDArray[np.void]] = []
    clean = _cleaner(job)
    try:
        for split, survivors, unkeyed_or_tombstones in zip(
            ahead(job, task.splits), task.survivors, task.unkeyed_or_tombstones, strict=True
        ):
            pace.take(split.size_bytes)
            for run in clean(split, np.frombuffer(bytearray(survivors), np.uint8), unkeyed_or_tombstones):
                if isinstance(output, PartFile):
                    pace.take(run.stats.bytes_written)
                output.append(run.pieces)
                rows = np.empty(len(run.sizes), OUTPUT_DTYPE)
                rows["last_offset"], rows["max_timestamp"] = run.last_offsets, run.max_timestamps
                rows["size_bytes"] = run.sizes
                outputs.append(rows)
                stats += run.stats
                counts += run.counts
            pace.done(split.size_bytes)
        output.wait_for_flush()
        return WrittenPart(
            group=task.group,
            part=task.part,
            name=output.name,
            size_bytes=stats.bytes_written,
            crc32c=output.crc32c,
            outputs=b"".join(rows.tobytes() for rows in outputs),
            stats=stats,
            counts=counts,
            sync_s=output.sync() if task.is_only else 0.0,
        )
    finally:
        output.close()


def _cleaner(job: CleanJob) -> Callable[[Split, Bytes, int], Iterator[FilteredRun]]:
    """Return a function that cleans a split with the kernels, or by the readable definition if they reject it."""
    buffers = Buffers(job.memory_bytes)

    def clean(split: Split, survivors: Bytes, unkeyed_or_tombstones: int) -> Iterator[FilteredRun]:
        filtered = split_kernels.filter_split(job, split, survivors, unkeyed_or_tombstones, buffers)
        return _clean_split(job, split, survivors) if filtered is None else filtered

    return clean


def _clean_split(job: CleanJob, split: Split, survivors: Bytes) -> Iterator[FilteredRun]:
    """Yield what remains of a split, batch by batch: the readable definition."""
    batches = verified_batches(
        split.log,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
        identity=split.identity,
        memory_bytes=job.memory_bytes,
    )
    file, row = str(split.log), 0
    discardable = set(split.discardable.tolist())
    for run in _runs(batches):
        is_discardable = [batch.header.base_offset in discardable for batch in run]
        fates = decide_batch_fates(table_of([batch.header for batch in run], is_discardable=is_discardable), job)
        for number, batch in enumerate(run):
            # The header of a compressed legacy batch has no number of records; only the inflated section has it.
            count = batch.header.records_count
            count = len(read_records(batch, file=file)) if count < 0 else count
            fate, keeps_header = fates.of(number)
            cleaned = apply_fate(
                batch,
                job,
                bits(survivors, row, count),
                fate,
                keeps_header=keeps_header,
                is_discardable=is_discardable[number],
                keeps_legacy_tombstones=split.keeps_legacy_tombstones,
                file=file,
            )
            row += count
            yield _run_of_one(batch, cleaned, file=file)


def _runs(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    run: list[Batch] = []
    run_bytes = 0
    for batch in batches:
        run.append(batch)
        run_bytes += batch.header.size_bytes
        if len(run) == RUN_BATCHES or run_bytes >= RUN_BYTES:
            yield run
            run, run_bytes = [], 0
    if run:
        yield run


def _run_of_one(batch: Batch, cleaned: CleanedBatch, *, file: str) -> FilteredRun:
    pieces, rows = [], np.empty((0, 3), np.int64)
    if cleaned.data is not None:
        written = read_header(cleaned.data, file=file, position=batch.position)
        pieces = [cleaned.data]
        rows = np.array([(written.last_offset, written.max_timestamp, written.size_bytes)])
    stats = cleaned.stats + CleanerStats(bytes_read=batch.header.size_bytes, bytes_written=len(cleaned.data or b""))
    return FilteredRun(pieces, rows[:, 0], rows[:, 1], rows[:, 2], stats, cleaned.counts)


# --- The file of a part ---------------------------------------------------------------------------------


class NoFile:
    """The output of a dry run. Discards everything."""

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


class PartFile:
    """A new file in the open staging directory, with a running checksum. The path is for messages.

    With `stays` the file is flushed in the background from time to time, so the final sync is short.
    """

    def __init__(self, staging: Path, dir_fd: int, group: int, part: int, *, stays: bool) -> None:
        self.name = f"group-{group}-part-{part}-{secrets.token_hex(4)}.log"
        self.crc32c = 0
        self._path = staging / self.name
        self._descriptor = create(self._path, dir_fd=dir_fd)
        self._stays = stays
        self._unsynced_bytes = 0
        self._flushing: threading.Thread | None = None
        self._problem: OSError | None = None

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        for piece in pieces:
            self.crc32c = crc32c(piece, self.crc32c)
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
        """Wait for the background flush. Raises StorageError, NotEnoughSpaceError if it failed.

        The kernel reports a failed sync once. The next sync would succeed without the data, so the error is kept.
        """
        if self._flushing is not None:
            self._flushing.join()
        if self._problem is not None:
            raise storage_error(self._path, self._problem, operation="sync")

    def sync(self) -> float:
        """Flush to the disk and return the seconds it took."""
        started = time.monotonic()
        self.wait_for_flush()
        sync(self._descriptor, path=self._path)
        return time.monotonic() - started

    def close(self) -> None:
        # An incomplete file stays until the whole staging directory is removed.
        if self._flushing is not None:
            self._flushing.join()
        with storage_errors(self._path, "close"):
            os.close(self._descriptor)
