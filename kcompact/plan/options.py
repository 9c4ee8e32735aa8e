"""How partitions are chosen and planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcompact.config.resolve import Configured
    from kcompact.config.settings import Override


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How the partitions of a command or of a round are chosen, configured and planned.

    `now_ms` is the one time of all decisions; `by_clock` is whether it is from the clock, which may be wrong, and not
    from the user. `topics` are shell patterns; none selects every topic. The high watermark is `high_watermark`, with
    `use_log_end` the log end, else that of the log directory's checkpoint. `force` ignores the ratio only.
    """

    now_ms: int
    by_clock: bool = False
    topics: tuple[str, ...] = ()
    overrides: tuple[Override, ...] = ()
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    bootstrap_server: str | None = None
    high_watermark: int | None = None
    use_log_end: bool = False
    force: bool = False
    include_internal: bool = False
    rebuild_indexes: bool = False

    def configs_of(self, directories: Sequence[Path]) -> dict[Path, Configured]:
        """Return the configuration of each partition. Raises ConfigError: a wrong value stops the command."""
        from kcompact.config.resolve import configurations

        return configurations(
            directories,
            overrides=self.overrides,
            broker_properties=self.broker_properties,
            bootstrap_server=self.bootstrap_server,
        )
