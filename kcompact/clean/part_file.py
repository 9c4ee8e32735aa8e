"""The output file of one part, and a substitute for dry runs that discards everything."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kcompact.clean.staged_files import MAX_PIECES, create, sync, write_pieces
from kcompact.errors import storage_error, storage_errors
from kcompact.format.checksum import crc32c

FLUSH_BYTES = 64 << 20
"""A background flush begins after this many bytes."""


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
