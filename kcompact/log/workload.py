"""How many batches and records some log files probably have, from a few headers: whether loading the kernels pays.

The size of a file does not tell: a compressed batch of a few KB can have thousands of records.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kcompact.errors import KcompactError
from kcompact.log.segment_reader import headers

_SAMPLED_FILES = 64
_SAMPLED_BATCHES = 16
_RECORD_BYTES = 128
"""Processing a record of any size takes as long as this many bytes of records of the usual size."""


class Workload(NamedTuple):
    """An estimate. Damage and old formats only make it worse."""

    size_bytes: int
    batches: int
    records: int

    @property
    def work_bytes(self) -> int:
        """The size of a log of usual records that is as much work as this one."""
        return max(self.size_bytes, _RECORD_BYTES * self.records)


def expected_work(files: Iterable[tuple[Path, int]]) -> Workload:
    """Return what files with these sizes probably contain, judged by the first batches of the newest ones.

    The oldest were cleaned most often, so their batches are not typical. An unreadable file is not an error here.
    """
    known = list(files)
    sampled_bytes = batches = records = 0
    for path, size_bytes in known[-_SAMPLED_FILES:]:
        try:
            for _, header in islice(headers(path, end_position=size_bytes), _SAMPLED_BATCHES):
                sampled_bytes += header.size_bytes
                batches += 1
                records += max(1, header.records_count)
        except (KcompactError, OSError):
            continue
    size_bytes = sum(size for _, size in known)
    share = size_bytes / max(1, sampled_bytes)
    return Workload(size_bytes, int(batches * share), int(records * share))
