"""How large the batches of some log files probably are, from a few headers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from kcompact.errors import KcompactError
from kcompact.log.segment_reader import headers

_SAMPLED_FILES = 64
_SAMPLED_BATCHES = 16


def mean_batch_bytes(files: Iterable[tuple[Path, int]]) -> int:
    """Return the mean size of a batch in files with these sizes, judged by the first batches of the newest ones.

    The oldest were cleaned most often, so their batches are not typical. Damage and old formats only make the estimate
    worse, and an unreadable file is not an error here. Returns all bytes where no batch is found.
    """
    known = list(files)
    sampled_bytes = batches = 0
    for path, size_bytes in known[-_SAMPLED_FILES:]:
        try:
            for _, header in islice(headers(path, end_position=size_bytes), _SAMPLED_BATCHES):
                sampled_bytes += header.size_bytes
                batches += 1
        except (KcompactError, OSError):
            continue
    return sampled_bytes // batches if batches else sum(size for _, size in known)
