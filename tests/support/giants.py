"""Logs with one batch that is far too large: as it is, when it inflates, in its records, or only by its header."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kcompact.format.batch import Record, build, parse_batches
from kcompact.format.codec import Codec, compress
from tests.support import log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec

GIANT_BYTES = 4 << 20
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def giant(codec: Codec) -> bytes:
    """Return a batch with one value of GIANT_BYTES zeros."""
    return build([Record(0, DEFAULT_TIME, b"k", bytes(GIANT_BYTES))], codec=codec)


def message(value: bytes, *, codec: Codec, offset: int = 0) -> bytes:
    """Return a message of magic 1."""
    body = struct.pack(">bbqii", 1, codec, DEFAULT_TIME, -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(inner: bytes, codec: Codec = Codec.GZIP, *, offset: int = 0) -> bytes:
    return message(compress(codec, inner, magic=1), codec=codec, offset=offset)


def as_header(batch: bytes, size_bytes: int) -> bytes:
    """Return the header of a batch that says that it has `size_bytes`."""
    (header,) = (each.header for each in parse_batches(batch, file="f"))
    return header._replace(length=size_bytes - 12).pack()


def write(log_dir: Path, batch: bytes, *, last_offset: int = 0, file_bytes: int | None = None) -> Path:
    """Write a partition with the batch and an active segment after it; return its directory.

    With `file_bytes` the log of the batch is a sparse file of this size, and the batch only its beginning.
    """
    active = build([Record(last_offset + 1, DEFAULT_TIME, b"z", b"v")])
    first = SegmentSpec(base_offset=0, batches=(batch,) if file_bytes is None else ())
    spec = LogSpec(segments=(first, SegmentSpec(base_offset=last_offset + 1, batches=(active,))))
    directory = log_writer.write(spec, log_dir)
    if file_bytes is not None:
        with (directory / f"{0:020d}.log").open("r+b") as log:
            log.write(batch)
            log.truncate(file_bytes)
    return directory


def _write_giant(codec: Codec, log_dir: Path) -> Path:
    return write(log_dir, giant(codec))


SMALL = build([Record(0, DEFAULT_TIME, b"k", b"v")])

GIANTS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "uncompressed": (lambda path: write(path, giant(Codec.NONE)), 4, "a batch of 4,194,"),
    **{codec.name.lower(): (partial(_write_giant, codec), 4, "inflates to more than") for codec in COMPRESSING},
    "a wrapper of magic 1": (
        lambda path: write(path, wrapper(message(bytes(GIANT_BYTES), codec=Codec.NONE))),
        4,
        "inflates to more than",
    ),
    "a wrapper in a wrapper": (
        lambda path: write(path, wrapper(wrapper(message(bytes(GIANT_BYTES), codec=Codec.NONE)))),
        3,
        "a compressed message inside a compressed message",
    ),
    "a hole": (
        lambda path: write(path, as_header(SMALL, 24 << 20), file_bytes=24 << 20),
        3,
        "the rest reads as zeros",
    ),
    "longer than its file": (lambda path: write(path, as_header(SMALL, 2**31 - 1), file_bytes=1000), 3, "are left"),
}
"""How a log is written, the exit code of each command on it with 2 MiB of memory, and a part of the message."""
