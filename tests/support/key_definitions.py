"""What kernels of `keys` must return, in a few operations of numpy."""

from __future__ import annotations

import numpy as np

from kcompact.kernels import Table
from kcompact.kernels import columns as c


def merged(keys: Table) -> Table:
    """Return one row for each key, in the order of their hashes: what `kernels.merge_keys` moves to the front.

    A row has the newest record of its key, and the sums of versions and bytes.
    """
    if not len(keys):
        return keys
    low, high = keys[:, c.KEY_LOW].view(np.uint64), keys[:, c.KEY_HIGH].view(np.uint64)
    rows = keys[np.lexsort((keys[:, c.KEY_REF], high, low))]
    is_first = np.ones(len(rows), np.bool_)
    np.any(rows[1:, [c.KEY_HIGH, c.KEY_LOW]] != rows[:-1, [c.KEY_HIGH, c.KEY_LOW]], axis=1, out=is_first[1:])
    starts = np.flatnonzero(is_first)
    found: Table = rows[np.append(starts[1:], len(rows)) - 1]
    for column in (c.KEY_VERSIONS, c.KEY_BYTES):
        found[:, column] = np.add.reduceat(rows[:, column], starts)
    return found
