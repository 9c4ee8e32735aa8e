"""What the kernels are called, what they take and return, and the constants that they share with their callers.

Batches travel as a table, a row of 64-bit integers for each, the columns of which are the constants below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Column = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]
"""A row per batch, a column per constant below."""

# Codes: why a kernel stopped. Anything but DONE is for the readable definition to explain.

DONE = 0
DAMAGED = 1
"""Something does not add up."""
LEGACY = 2
"""A batch of magic 0 or 1."""
FULL = 3
"""An output array has no more room."""
IO_ERROR = 4

# The columns of a table of batches.

(
    POSITION,  # In the buffer, or in the file for `hop`.
    SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    EPOCH,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    RECORDS_COUNT,
    ROW,  # The number of records in the batches before it.
    SECTION_START,  # Where its records are, inflated: in the arena if it is compressed, else in the buffer.
    SECTION_END,
    FLAGS,
) = range(16)
COLUMNS = 16

LEFT_OUT = 1
"""Flag: the records do not enter the map of keys."""
DISCARDABLE = 2
"""Flag: of an aborted transaction, or a marker with nothing left to mark."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER_BYTES = 61
MIN_RECORD_BYTES = 7
"""A record without key, value and headers: one byte for each of its seven fields."""
RECORD_GROWTH_BYTES = 16
"""What a record may grow by when it is encoded anew: its timestamp by nine bytes, its length by a few."""


COPIED, ENCODED, EMPTIED, UNKNOWN = 0, 1, 2, 3
"""What `filter_batches` did with a batch: it stays as it is, a new one is in `out`, no record is left, or it is for
`filter.clean_batch` to say."""

(
    ACTION,
    OUT_START,
    OUT_END,
    MESSAGES_WRITTEN,
    INVALID_MESSAGES,
    NEW_BASE_TIMESTAMP,
    NEW_MAX_TIMESTAMP,
    NEW_ATTRIBUTES,
) = range(8)
OUTCOMES = 8


class Declared(NamedTuple):
    """How a kernel is called: the kinds of its arguments, and how many numbers it returns."""

    takes: tuple[str, ...]
    returns: int


KEYS = ("u64[]", "u64[]", "i64[]")

KERNELS = {
    "crc32c": Declared(("u8[]", "i64", "i64"), 1),
    "walk": Declared(("u8[]", "i64", "i64", "i64", "i64", "i64[,]"), 3),
    "hop": Declared(("i64", "i64", "i64", "u8[]", "i64[,]"), 3),
    "siphash128": Declared(("u8[]", "i64", "i64", "u64", "u64", "i64", "i64"), 2),
    "scan_records": Declared(("u8[]", "u8[]", "i64[,]", "i64", "i64", "i64", "i64", "u64", "u64", *KEYS), 3),
    "verify_records": Declared(("u8[]", "u8[]", "i64[,]", "i64", "i64", "i64[,]"), 3),
    "mark_living": Declared((*KEYS, "u8[]", "i64[]", "u64[,]", "i64[]", "i32[]"), 0),
    "keep_living": Declared(("u8[]", *KEYS), 1),
    "deal": Declared((*KEYS, "i64", *KEYS, "i64[]"), 0),
    "set_bits": Declared(("i64[]", "i64", "u8[]"), 0),
    "clear_bits": Declared(("i64[]", "i64", "u8[]"), 0),
    "filter_batches": Declared(
        (
            *("u8[]", "u8[]", "i64[,]", "i64", "i64", "u8[]", "i64", "i64", "i64"),
            *("i64[,]", "u8[]", "i64", "i64[,]"),
        ),
        1,
    ),
    "index_entries": Declared(("i64[]", "i64[]", "i64[]", "i64", "i64", "i64", "i64", "i64[,]", "i64[,]"), 3),
}
"""Arrays are contiguous, `[]` of one dimension, `[,]` of two; each goes as a pointer and its extents."""
