"""The values that travel between the driver and the tasks of a scan. All of them pickle."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt

from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.log.files import FileIdentity, LogFile
from kcompact.values import dataclass


def _no_offsets() -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A run of whole batches of one segment: its positions in the file, and the range of its offsets.

    `number` counts the splits of a cleaning in offset order. `excluded_from_map` and `discardable` are base offsets of
    transactional batches, i64[n] ascending (`transactions.TransactionDecisions`). `keeps_legacy_tombstones` decides
    about tombstones in batches of magic 0 and 1, which cannot store a delete horizon. `identity` is that of the `.log`
    that was planned. No other file is read, whatever the path leads to by now; None is not compared.
    """

    log: LogFile
    start_position: int
    end_position: int
    base_offset: int
    end_offset: int
    check_index: bool = True
    excluded_from_map: npt.NDArray[np.int64] = field(default_factory=_no_offsets, compare=False)
    discardable: npt.NDArray[np.int64] = field(default_factory=_no_offsets, compare=False)
    keeps_legacy_tombstones: bool = True
    number: int = 0
    identity: FileIdentity | None = None

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanJob:
    """The values that an executor and every task of a scan need, besides the splits.

    `directory` is that of the partition, empty for splits of several partitions. `hash_key` has 16 bytes. `keys_bytes`
    limits the keys that one task holds in memory, `memory_bytes` what it holds for a batch (`format.limits`): there is
    enough for `workers` tasks at the same time.
    """

    directory: str = ""
    hash_key: bytes
    bucket_count: int
    keys_bytes: int = 64 << 20
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    workers: int = 1
    max_bytes_per_second: int | None = None
