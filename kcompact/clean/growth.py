"""The most bytes that a batch can have after a cleaning. Kafka's cleaner writes the same batches, so its logs grow too.

A batch that loses a record, or gets a delete horizon, is encoded and compressed again. It can become larger:

- Timestamps are stored as differences from the base timestamp, in 1 to 10 bytes. The base timestamp of a batch with a
  delete horizon is the horizon, usually a day or more after the records: 4 bytes instead of 1 for each record.
- The codec has Kafka's default level. The producer may have compressed better, or the records that are left compress
  worse.
- Kafka writes three bytes for each byte of a record header's name that is not UTF-8.
- A message of magic 0 or 1 becomes a batch of version 2, whose header alone has 61 bytes.

The bounds hold for every log, however unlikely, and do not depend on the survivors. `docs/pipeline.md` has measured
worst cases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kcompact.format.batch import Batch, Record
from kcompact.format.codec import most_compressed_bytes
from kcompact.kernels import Table
from kcompact.kernels import columns as c

_REENCODED_BYTES = 10
"""How much a record grows at most: 9 bytes for the timestamp, 1 for the length of the record."""
_FIXED_BYTES = 36
"""The fields of a record besides key, value and headers, at most: the timestamp 10, the attributes 1, all others 5."""
_HEADER_LENGTHS_BYTES = 10
"""The two lengths of a record header, at most."""
_NAME_FACTOR = 3
"""How much longer the name of a record header becomes at most. U+FFFD has three bytes."""


def most_bytes(batch: Batch, records: Sequence[Record]) -> int:
    """Return the most bytes that a batch with these records, all that it has, takes after a cleaning."""
    section_bytes = sum(
        _FIXED_BYTES
        + len(record.key or b"")
        + len(record.value or b"")
        + sum(
            _HEADER_LENGTHS_BYTES + _NAME_FACTOR * len(name) + len(content or b"") for name, content in record.headers
        )
        for record in records
    )
    if batch.header.codec_id:
        section_bytes = most_compressed_bytes(section_bytes)
    return max(batch.header.size_bytes, c.HEADER_BYTES + section_bytes)


def most_bytes_of_table(table: Table, header_bytes: int) -> int:
    """Return the sum of `most_bytes` of batches of version 2 whose sections are inflated, or a little more.

    `header_bytes` is the size of all their record headers.
    """
    sections = table[:, c.SECTION_END] - table[:, c.SECTION_START] + _REENCODED_BYTES * table[:, c.RECORDS_COUNT]
    is_compressed = table[:, c.ATTRIBUTES] & c.CODEC_MASK != 0
    rebuilt = c.HEADER_BYTES + np.where(is_compressed, most_compressed_bytes(sections), sections)
    # A longer name may have to be compressed, too: less than three times its bytes in all.
    return int(np.maximum(table[:, c.SIZE], rebuilt).sum()) + _NAME_FACTOR * header_bytes
