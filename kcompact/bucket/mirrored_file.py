"""A mirrored object: a file with holes in the scratch directory, which are filled when they are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from kcompact.bucket.remote import Bucket, RemoteObject, request_pool
from kcompact.bucket.scratch import scratch_errors
from kcompact.errors import CorruptCheckpointError
from kcompact.format.checksum import crc32c
from kcompact.host.descriptors import closed_after
from kcompact.values import dataclass

WHOLE_BYTES = 8 << 20
"""An object up to this size is fetched at once."""
PIECE_BYTES = 16 << 20
"""What one request fetches of a larger object that is read through."""
BLOCK_BYTES = 256 << 10
"""What one request fetches of it for a small reading, such as that of a batch's header."""
WRITTEN_BYTES = 128 << 10
"""What is written at once. Larger writes into a hole take up to seven times the processor time."""
AHEAD = 3
"""So many pieces at most are requested ahead of the one that is read."""


class ListedFile(NamedTuple):
    """A file of a mirrored directory. `crc` is the CRC-32C of its content, None without a manifest."""

    remote: RemoteObject
    mtime_ns: int
    crc: int | None


Listing = dict[str, ListedFile]
"""The files of a directory, by name, as one process has found them in the bucket."""


@dataclass(slots=True)
class _Flight:
    """A request that has begun, or waits for its turn."""

    start: int
    end: int
    done: Future[None] = field(default_factory=Future)


class MirroredFile:
    """An object and its file with holes. Safe for several threads.

    Requests of an object of `n` bytes that is read through once: at most n / 8 MiB, rounded up. Pieces are larger, and
    what that saves is the number of small readings (`_small_left`).

    Who reads piece after piece does not wait for each: the following ones are in flight already, one more each time, up
    to AHEAD. Several readings of one file, such as the splits of a segment, have a run of pieces each.
    """

    def __init__(self, bucket: Bucket, path: Path, listed: ListedFile) -> None:
        self.listed, self.remote, self.path = listed, listed.remote, path
        self.lock = threading.RLock()
        """Held while bytes are written: they change the file's time for a moment."""
        self.users = 0
        self.present_bytes = 0
        self._in_flight: list[_Flight] = []
        self._runs: dict[int, int] = {}
        """How many pieces before a piece were read one after the other, by the piece that a reading has come to."""
        self._bucket, size_bytes = bucket, listed.remote.size_bytes
        self._blocks = bytearray(-(-size_bytes // BLOCK_BYTES))
        self._small_left = -(-size_bytes // WHOLE_BYTES) - -(-size_bytes // PIECE_BYTES)

    def fetch(self, position: int, end: int) -> None:
        """Have the bytes between two positions in the file.

        Raises LogChangedError if the object has changed, RefusedError, StorageError, NotEnoughSpaceError.
        """
        while flights := self.begin(position, end, ahead=True):
            for flight in flights:
                with suppress(CancelledError):  # By a caller of `begin` that has stopped; it is begun again.
                    flight.result()

    def begin(
        self, position: int, end: int, take: Callable[[int], None] = lambda size_bytes: None, *, ahead: bool = False
    ) -> list[Future[None]]:
        """Begin to fetch the bytes between two positions, and return what to wait for. It raises as `fetch`.

        `take` is called before each request with the number of its bytes. With `ahead` what follows is fetched too.
        """
        end = min(end, self.remote.size_bytes)
        with self.lock:
            needed, start = [], position
            while (missing := self._missing(start, end)) is not None:
                flight = self._flight_with(missing) or self._fly(*self._request(missing, position, end), take)
                needed.append(flight.done)
                start = flight.end
            if ahead and position < end:
                self._read_ahead((end - 1) // PIECE_BYTES, take)
        return needed

    def _read_ahead(self, piece: int, take: Callable[[int], None]) -> None:
        if piece in self._runs:
            return
        run = self._runs[piece] = self._runs.pop(piece - 1, -1) + 1
        for start in range((piece + 1) * PIECE_BYTES, self.remote.size_bytes, PIECE_BYTES)[: min(run, AHEAD)]:
            end = min(start + PIECE_BYTES, self.remote.size_bytes)
            if self._missing(start, end) is not None and self._flight_with(start) is None:
                self._fly(start, end, take)

    def _flight_with(self, position: int) -> _Flight | None:
        return next((each for each in self._in_flight if each.start <= position < each.end), None)

    def _fly(self, start: int, end: int, take: Callable[[int], None]) -> _Flight:
        flight = _Flight(start, end)

        def run() -> None:
            try:
                take(end - start)
                self._store(start, end, memoryview(self._bucket.read(self.remote, start, end)))
            finally:
                with self.lock:
                    self._in_flight.remove(flight)

        self._in_flight.append(flight)
        flight.done = request_pool().submit(run)
        flight.done.add_done_callback(self._drop_cancelled)
        return flight

    def _drop_cancelled(self, done: Future[None]) -> None:
        if done.cancelled():
            with self.lock:
                self._in_flight = [each for each in self._in_flight if each.done is not done]

    def settle(self) -> None:
        """Wait until nothing is in flight."""
        with self.lock:
            flights = [each.done for each in self._in_flight]
        wait(flights)

    def _missing(self, position: int, end: int) -> int | None:
        """Return the first position that is not there, None if all are."""
        first, after = position // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        block = self._blocks.find(0, first, after) if position < end else -1
        return None if block < 0 else block * BLOCK_BYTES

    def _request(self, start: int, position: int, end: int) -> tuple[int, int]:
        """Return the part that the next request fetches, for a reading of [position, end) that lacks `start`."""
        size_bytes = self.remote.size_bytes
        if size_bytes <= WHOLE_BYTES:
            return 0, size_bytes
        if end - position <= BLOCK_BYTES and self._small_left:
            self._small_left -= 1
            return start, min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, size_bytes)
        start -= start % PIECE_BYTES
        return start, min(start + PIECE_BYTES, size_bytes)

    def _store(self, start: int, end: int, data: memoryview) -> None:
        with self.lock:
            self._write(end, data)
            for number in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
                if not self._blocks[number]:
                    self._blocks[number] = 1
                    self.present_bytes += min(BLOCK_BYTES, self.remote.size_bytes - number * BLOCK_BYTES)

    def _write(self, end: int, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with scratch_errors(), closed_after(os.open(self.path, flags)) as descriptor:
            while data:
                done = os.pwrite(descriptor, data[:WRITTEN_BYTES], end - len(data))
                data = data[done:]
            os.utime(descriptor, ns=(self.listed.mtime_ns, self.listed.mtime_ns))

    def verify(self) -> None:
        """Raise CorruptCheckpointError if the content, all of it fetched, is not the one in the manifest."""
        if self.listed.crc is None:
            return
        crc, position = 0, 0
        with closed_after(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
            while data := os.pread(descriptor, PIECE_BYTES, position):
                crc, position = crc32c(data, crc), position + len(data)
        if crc != self.listed.crc:
            raise CorruptCheckpointError(
                file=str(self.path),
                problem="its content is not the one in the manifest",
                hint="The object was damaged or replaced. Copy the partition again.",
            )

    def drop(self) -> None:
        """Make the file a hole again."""
        with self.lock:
            if self.present_bytes and not self.users:
                os.truncate(self.path, 0)
                os.truncate(self.path, self.remote.size_bytes)
                os.utime(self.path, ns=(self.listed.mtime_ns, self.listed.mtime_ns))
                self._blocks = bytearray(len(self._blocks))
                self._runs.clear()
                self.present_bytes = 0
