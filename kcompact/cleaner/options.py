"""The options of a cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from kcompact.errors import ConfigError
from kcompact.plan.discovery import named_path
from kcompact.wording import worded


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """The options of a cleaning.

    `output` is a directory for a compacted copy; the source is then only read. `keep_replaced` is a new or empty
    directory that gets hard links to the files that are replaced. `journal` is a file that gets lines about each
    cleaning of a round; None means no journal. With `rebuild_indexes` no index file is read; the plan for
    `clean_partition` then also needs `plan_partition(rebuild_indexes=True)`. `max_bytes_per_second` limits reading and
    writing together; None means no limit. `memory_bytes` is for all workers together; None means
    `host.memory.default_memory_bytes`. Raises ConfigError for a combination or a number that makes no sense.
    """

    dry_run: bool = False
    output: str | PathLike[str] | None = None
    keep_replaced: str | PathLike[str] | None = None
    journal: str | PathLike[str] | None = None
    keep_tombstones: bool = False
    rebuild_indexes: bool = False
    apply_retention: bool = False
    max_bytes_per_second: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.output is not None:
            named_path(self.output)
        if self.output is not None and self.apply_retention:
            problem = worded("deletes segments in place, so it cannot be combined with --output")
            raise ConfigError(path=worded("--apply-retention"), problem=problem)
        if self.keep_replaced is not None:
            named_path(self.keep_replaced)
            self._require_kept_alone()
        for name in ("max_bytes_per_second", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(path=name, problem=f"{value} is less than 1")

    def _require_kept_alone(self) -> None:
        if self.output is not None:
            problem = worded("--output replaces nothing, so there is nothing to keep")
            raise ConfigError(path=worded("--keep-replaced"), problem=problem)
        if self.apply_retention:
            problem = "keeps what a cleaning replaces, not what --apply-retention deletes; run both after each other"
            raise ConfigError(path=worded("--keep-replaced"), problem=worded(problem))

    @property
    def only_reads(self) -> bool:
        """Return whether the partitions are only read: a dry run, or a copy."""
        return self.dry_run or self.output is not None
