"""The options of a `clean` command line as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcompact.cleaner.options import CleanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of `clean`, except the configuration."""

    options: CleanOptions
    force: bool = False
    include_internal: bool = False
    assume_yes: bool = False
    as_json: bool = False
    engine: str = "spark"
    master: str = "local[*]"
    spark_conf: dict[str, str] = field(default_factory=dict)

    @property
    def only_reads(self) -> bool:
        """Return whether the partitions are only read: a dry run, or a copy."""
        return self.options.dry_run or self.options.output is not None
