"""Partitions that end in groups: the log directory of the tests, and what a write of its checkpoints sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcompact.format.names import TopicPartition
from kcompact.swap import checkpoint
from kcompact.swap import round_end as ending

CHECKPOINT = "cleaner-offset-checkpoint"
NAMES = ("a-0", "b-0", "c-3", "d-1", "e-0")


def stagings(log_dir: Path) -> list[str]:
    """Return the names of the partitions that have a staging directory."""
    return sorted(path.parent.name for path in log_dir.glob("*/.kcompact-*"))


@contextmanager
def counted_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield how many checkpoints each write of the file at the end of partitions sets."""
    sizes: list[int] = []
    really = checkpoint.write_checkpoints

    def counting(log_dir: Path, wanted: Mapping[TopicPartition, int]) -> None:
        sizes.append(len(wanted))
        really(log_dir, wanted)

    with monkeypatch.context() as patched:
        patched.setattr(ending, "write_checkpoints", counting)
        yield sizes
