"""A bit for each record of a split: kernels that set and clear the bits of record references."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.loops.memory import loop

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes


@loop
def set_bits(record_refs: npt.NDArray[np.int64], first_record_ref: int, bitmap: Bytes) -> None:
    """Set the bit of each reference's row, counted from the row of `first_record_ref`: bit `r & 7` of byte `r >> 3`."""
    limit = np.int64(bitmap.shape[0]) << 3
    for i in range(record_refs.shape[0]):
        row = record_refs[i] - first_record_ref >> 1
        if 0 <= row < limit:
            bitmap[row >> 3] |= np.uint8(1 << (row & 7))


@loop
def clear_bits(record_refs: npt.NDArray[np.int64], first_record_ref: int, bitmap: Bytes) -> None:
    """Clear the bits that `set_bits` sets for these references."""
    limit = np.int64(bitmap.shape[0]) << 3
    for i in range(record_refs.shape[0]):
        row = record_refs[i] - first_record_ref >> 1
        if 0 <= row < limit:
            bitmap[row >> 3] &= ~np.uint8(1 << (row & 7))
