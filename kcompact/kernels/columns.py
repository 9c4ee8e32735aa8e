"""The columns of the tables that kernels and callers share, and the codes that kernels return.

A table of batches has a row of 64-bit integers for each batch. The name of a column is a constant with its number, so
`table[:, BASE_OFFSET]` means the same in a kernel and in its caller.
"""

from __future__ import annotations

# Codes: why a kernel stopped. After any code except DONE, the caller uses the readable definition, which does the work
# or raises the detailed error.

DONE = 0
DAMAGED = 1
"""A length, an offset, a checksum or a count is wrong."""
LEGACY = 2
"""A batch of magic 0 or 1."""
FULL = 3
"""An output array is full."""
IO_ERROR = 4
UNDECIDED = 5
"""A batch that only the definition can inflate, or refuse; a line that only the definition can write."""

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
    SECTION_START,  # The uncompressed records: of a compressed batch in the inflated bytes, else in the buffer.
    SECTION_END,
    FLAGS,
    MAGIC,
    CRC,  # The checksum that the header says.
) = range(18)
COLUMNS = 18

EXCLUDED_FROM_MAP = 1
"""Flag: the records do not enter the offset map."""
DISCARDABLE = 2
"""Flag: the batch belongs to an aborted transaction, or is a marker whose transaction has no batch left."""
DECIDED = 4
"""Flag: what becomes of the batch is known without its records."""

# The bits of a batch's attributes, and its sizes in bytes.

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_BITS = 0x7F
"""The bits of a batch's attributes that have a meaning. A batch with another one is left to the definition, which
refuses it."""

HEADER_BYTES = 61
MAX_OFFSET = (1 << 63) - 1
"""The largest number that the field of an offset holds. No record has it, because the offset after it must exist."""
SMALL_BATCH_BYTES = 4096
"""Headers of smaller batches are read together with what lies between them."""
MIN_RECORD_BYTES = 7
"""A record without key, value and headers: one byte for each of its seven fields."""
RECORD_GROWTH_BYTES = 16
"""The most bytes by which a record grows when it is encoded again: nine for the timestamp, a few for the length."""

# What `filter_batches` decides for a batch.

COPIED, ENCODED, EMPTIED, UNKNOWN, SEALED = range(5)
"""The batch is unchanged; a new batch is in `out`, of a compressed batch only its records; no record is left;
`clean.filter.apply_fate` must decide; a new batch is in the output of `seal_batches`."""

(
    ACTION,
    OUT_START,
    OUT_END,
    MESSAGES_WRITTEN,
    INVALID_MESSAGES,
    SUPERSEDED,
    EXPIRED,
    KEPT_LATEST,  # Of the records that are written, those with a survivor bit.
    HELD_TOMBSTONES,  # Of the records that are written, those that have expired and are held back.
    NEW_BASE_TIMESTAMP,
    NEW_MAX_TIMESTAMP,
    NEW_ATTRIBUTES,
) = range(12)
OUTCOMES = 12

# The rows of an array of records: one for each field, a column for each record.

(
    RECORD_BATCH,  # The row of its batch in the table of batches.
    RECORD_OFFSET,
    RECORD_TIMESTAMP,
    KEY_START,  # Positions of bytes, as those of the section.
    KEY_SIZE,  # -1 for null.
    VALUE_START,
    VALUE_SIZE,
    HEADERS_START,  # After the number of record headers.
    HEADERS_COUNT,
) = range(9)
RECORD_FIELDS = 9

# What `write_lines` writes: the operations of a line.

LITERAL, NUMBER, PLAIN, QUOTED, BASE64, HEX = range(6)
"""A piece of the literals; an integer; printable ASCII, as it is or as in a JSON string; any bytes, encoded."""
LINE_COLUMNS = 3
"""A row of operations: the operation, and two numbers: start and end in the literals, or columns of values."""

# The kinds of a key or a value, from `field_kinds`.

FIELD_TEXT, FIELD_BINARY, FIELD_NULL, FIELD_UNDECIDED = range(4)
"""Printable ASCII; bytes that are no printable text; null; bytes that only the definition can judge."""

# The columns of a table of transactional and control batches, `log.transactions`.

TXN_BASE_OFFSET, TXN_LAST_OFFSET, TXN_PRODUCER_ID, TXN_KIND = range(4)
TXN_COLUMNS = 4

ABORT, COMMIT = 0, 1
"""The kind of a marker, a 16-bit number. The other control types of Kafka have other numbers."""
NO_RECORD, UNREAD, EMPTY_DATA, DATA = range(1 << 15, (1 << 15) + 4)
"""Kinds of what is no marker: a control batch without its record; one that the definition must read; a data batch
without records, and one with records."""

MARKER_COLUMNS = 6
(
    MARKER_PRODUCER_ID,
    MARKER_OFFSET,
    MARKER_FIRST_BATCH,
    MARKER_PREVIOUS,
    MARKER_LAST_STABLE_OFFSET,
    MARKER_FIRST_RECORDS,
) = range(6)
"""The columns of a table of ABORT markers: the fields of `log.transaction_index.AbortMarker`, -1 for none."""

ENTRY_PRODUCER_ID, ENTRY_FIRST_OFFSET, ENTRY_LAST_OFFSET, ENTRY_LAST_STABLE_OFFSET = range(4)
"""The columns of a table of `.txnindex` entries."""

OPEN_COLUMNS = 5
OPEN_FIRST, OPEN_NEXT, OPEN_PREVIOUS, ENDED_AT, OPEN_FIRST_RECORDS = range(5)
"""The columns of the state of `follow_transactions`, a row for each producer after row 0.

The open transactions are a ring in the order of their first offsets. Row 0 is its beginning and its end.
"""

ABORTED_ENTRY, OBSERVED, COMMITTED = range(3)
"""The columns of the state of `decide_transactions`, a row for each producer: see `clean.transactions`."""

# The codecs, as in the attributes of a batch.

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

# The words of `libraries.Codecs`: addresses of C functions, 0 if there are none; addresses of contexts; and memory.

(
    LZ4_DECOMPRESS,
    LZ4_COMPRESS,
    ZSTD_FRAME_SIZE,
    ZSTD_CONTENT_SIZE,
    ZSTD_RESET,
    ZSTD_DECOMPRESS,
    ZSTD_COMPRESS,
    ZSTD_READER,
    ZSTD_WRITER,
    ZSTD_WRITER_RESET,
    DEFLATE_DECOMPRESS,
    DEFLATE_CRC,
    DEFLATE_READER,
    ZLIB_DEFLATE,
    ZLIB_DEFLATE_RESET,
    ZLIB_CRC,
) = range(16)
ZSTD_BUFFERS = 16
"""A ZSTD_outBuffer and a ZSTD_inBuffer: address, size and position of each."""
DEFLATE_SIZES = 32
"""Two sizes: the bytes that were read and the bytes that were written."""
DEFLATE_STREAM = 48
"""A z_stream, of Z_STREAM_WORDS words."""
Z_STREAM_WORDS = 14
LZ4_STATE = 64
LZ4_STATE_WORDS = 4096
SNAPPY_TABLE = LZ4_STATE + LZ4_STATE_WORDS
SNAPPY_TABLE_BITS = 14
CODEC_WORDS = SNAPPY_TABLE + (1 << SNAPPY_TABLE_BITS) // 4

# The columns of a table with a row for each key, `questions.keys.rows`, and what a record can be there.

KEY_HIGH, KEY_LOW, KEY_REF, KEY_TIMESTAMP, KEY_LATEST_BYTES, KEY_VERSIONS, KEY_BYTES, KEY_PREFIX = range(8)
KEY_COLUMNS = 7
"""A table without prefixes has no column KEY_PREFIX."""
NO_PREFIX = 0
"""In that column: the key does not contain the separator."""

KEY_REF_SPLIT_SHIFT = 36
KEY_REF_ROW_SHIFT = 2
KEY_KIND_MASK = 3
VALUE, UNSTAMPED, WAITING, DUE = range(4)
"""A record with a value, or a tombstone: without a delete horizon, before it, or after it."""

KEYED, UNKEYED, CONTROL, ABORTED, UNSTABLE, BELOW_START = range(6)
RECORD_CLASSES = 6
"""The rows of a table of counts. Its two columns are records and their bytes."""
