"""The columns of the tables that kernels and callers share, and the codes that kernels return.

Batches travel as a table: a row of 64-bit integers for each batch. A column's name is its number, so that
`table[:, BASE_OFFSET]` reads the same in a kernel and in its caller.
"""

from __future__ import annotations

# Codes: why a kernel stopped. After any code but DONE the readable definition does the work, or words the error.

DONE = 0
DAMAGED = 1
"""A length, an offset, a checksum or a count contradicts the others."""
LEGACY = 2
"""A batch of magic 0 or 1."""
FULL = 3
"""An output array has no more room."""
IO_ERROR = 4

# The columns of a table of batches.

(
    POSITION,  # In the buffer; in the file for `scan_headers`.
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
    ROW,  # The number of records in the batches before this one.
    SECTION_START,  # Where the uncompressed records start: in the inflated bytes if the batch is compressed, else in
    SECTION_END,  # the buffer.
    FLAGS,
) = range(16)
COLUMNS = 16

EXCLUDED_FROM_MAP = 1
"""Flag: the records do not enter the map of keys."""
DISCARDABLE = 2
"""Flag: the batch is of an aborted transaction, or a marker with nothing left to mark."""

# The bits of a batch's attributes, and its sizes in bytes.

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER_BYTES = 61
MIN_RECORD_BYTES = 7
"""A record without key, value and headers: one byte for each of its seven fields."""
RECORD_GROWTH_BYTES = 16
"""How much a record may grow when it is encoded again: its timestamp by nine bytes, its length by a few."""

# What `filter_batches` decides for a batch.

COPIED, ENCODED, EMPTIED, UNKNOWN = 0, 1, 2, 3
"""The batch stays as it is; a new batch is in `out`; no record is left; `filter.clean_batch` must decide."""

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
