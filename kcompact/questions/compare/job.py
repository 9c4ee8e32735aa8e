"""The values that travel between the driver and the tasks of a comparison. All of them pickle.

The offsets are divided into *bands*, at each replica's log start, at its log end and at its fork. So of each band it is
known which replicas have it, and each replica is judged by what all of them have below its own end:

    replica A   0 ----------------------------- 900
    replica B           200 ------------- 700                log start 200, log end 700
    bands       |   0   |        1        |  2  |            band 0: A.  band 1: A and B.  band 2: A

A record reference is the distance of its offset from the first offset of the comparison, and the kind of the record:

    record_ref = (offset - first_offset) << 2 | kind         kind: bit 0 a tombstone, bit 1 transactional
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column, Mask, Table
from kcompact.stages.job import ScanJob, Split
from kcompact.values import dataclass

REF_SHIFT = 2
TOMBSTONE, TRANSACTIONAL = 1, 2


class ComparedLog(NamedTuple):
    """One replica: its log start, its fork, and the number of the first band that it is not judged by.

    From its fork on it is not compared: it has left the line of the newest leader. Below `known_band` it may have
    cleaned by records that are in no file any more: an unclean election made it remove them. `tainted` i64[n, 2] has
    the first offsets and the end offsets of what is damaged: nothing there is accused.
    """

    start_offset: int
    fork_offset: int
    end_band: int
    known_band: int
    tainted: Table


def overlap(ranges: Table, first: Column | int, end: Column | int) -> Mask:
    """Return which of the offsets [`first`, `end`) lie in one of some ranges i64[n, 2] of first and end offsets."""
    is_overlapping: Mask = np.zeros(np.shape(first), np.bool_)
    for start, stop in ranges.tolist():
        is_overlapping |= (start < end) & (first < stop)
    return is_overlapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSplit(Split):
    """A split of one replica. All replicas' splits of a `group` have their last offsets in the same range.

    That range is [`first_offset`, `limit_offset`); `excluded_from_map` names the batches of transactions that are
    aborted or open, `unknown` those of transactions whose marker is missing in all replicas.
    """

    replica: int
    group: int
    first_offset: int
    limit_offset: int
    unknown: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJob(ScanJob):
    """The values that every task of a comparison needs, besides its splits.

    `bands` are their end offsets, ascending. `visible` has for each band the mask of the replicas whose log start is
    not above it. `leader` is the replica from which the others fetch, None if that is not known. A task merges rows of
    `table_bytes` at a time.
    """

    replicas: tuple[ComparedLog, ...]
    first_offset: int
    bands: tuple[int, ...]
    visible: tuple[int, ...]
    leader: int | None = None
    table_bytes: int = 8 << 20

    @property
    def unknown_mask(self) -> int:
        """The mask of rows whose transactions may have been committed or aborted: they are no replica's."""
        return 1 << len(self.replicas)

    @property
    def bucket_bits(self) -> int:
        """How many of the highest bits of one half of its hash name the bucket of a key."""
        return (self.bucket_count - 1).bit_length()
