"""The options of a cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """The options of a cleaning.

    `output` is a directory for a compacted copy; the source is then only read. `max_bytes_per_second` limits reading
    and writing together; None means no limit. `memory_bytes` is for all workers together; None means
    `host.memory.default_memory_bytes`.
    """

    dry_run: bool = False
    output: Path | None = None
    keep_tombstones: bool = False
    rebuild_indexes: bool = False
    apply_retention: bool = False
    max_bytes_per_second: int | None = None
    memory_bytes: int | None = None
