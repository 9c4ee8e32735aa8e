"""How partitions are chosen and planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.bucket.path import require_known_store, require_local_path
from kcompact.errors import ConfigError
from kcompact.host.machine import clock_ms
from kcompact.plan.selection import Selection
from kcompact.readable import time
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.config.broker_config import BrokerConfig
    from kcompact.config.brokers import Broker
    from kcompact.config.client.settings import ClientConfig
    from kcompact.config.resolve import Configured
    from kcompact.config.settings import Override, TopicOverrides
    from kcompact.release import Release


LIKELY_SECONDS = range(10**8, 10**11)
"""Numbers that `date +%s` prints for the years 1973 to 5138. As milliseconds they are before March 1973, long before
Kafka. Smaller numbers are milliseconds, because tests use them."""


def as_both_units(number: int) -> str:
    """Return why a number is not taken as milliseconds, and what to pass instead."""
    return f"{number} looks like seconds: in milliseconds {time(number * 1000)} is {number}000"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How the partitions of a command or of a round are chosen, configured and planned.

    `now_ms` is the one time of all decisions, by default that of the clock; `by_clock` is whether it is from the clock,
    which may be wrong, and not from the user. `topics` are shell patterns, `partitions` are numbers; none selects all.
    `broker_config` has the broker's static settings; with None the file of each log directory's broker is looked for.
    `topic_configs` has what topics override, as `read_topic_configs` returns it. `log_dirs` are log directories that
    may belong to the brokers of the partitions, besides those around them, such as all paths of a command. `client` has
    the settings with which the cluster of `bootstrap_server` is asked; none: no encryption, no authentication. The
    rules are those of `release`; with None those of the broker's release if its files tell it, else those of the
    newest. The high watermark is `high_watermark`, with `use_log_end` the log end, else that of the log directory's
    checkpoint. `force` ignores the ratio only. With `unclean` a log is planned after an unclean shutdown too, as
    `plan_partition` says. `replicas` are log directories or partition directories of other brokers, or `-future`
    directories: a cleaning holds back the tombstones and markers that replicas there still have to fetch
    (`plan.replicas`).

    Raises ConfigError for a time that is not in milliseconds or looks like seconds, for a `client` without a cluster,
    for anything else in place of a tuple, for a replica whose path is not local, and for a log directory of another
    store.
    """

    now_ms: int = None  # type: ignore[assignment]  # It is set at once.
    by_clock: bool = False
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    overrides: tuple[Override, ...] = ()
    broker_config: BrokerConfig | None = None
    topic_configs: Mapping[str, TopicOverrides] | None = None
    log_dirs: tuple[Path, ...] = ()
    bootstrap_server: str | None = None
    client: ClientConfig | None = None
    release: Release | None = None
    high_watermark: int | None = None
    use_log_end: bool = False
    force: bool = False
    include_internal: bool = False
    rebuild_indexes: bool = False
    unclean: bool = False
    replicas: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.now_ms is None:
            object.__setattr__(self, "now_ms", clock_ms())
            object.__setattr__(self, "by_clock", True)
        if type(self.now_ms) is not int or self.now_ms < 0:
            raise ConfigError(path="now_ms", problem=f"{self.now_ms!r} is not a whole number of Unix milliseconds")
        if self.now_ms in LIKELY_SECONDS:
            raise ConfigError(path="now_ms", problem=as_both_units(self.now_ms))
        if self.client is not None and self.bootstrap_server is None:
            raise ConfigError(path="client", problem="says how to reach a cluster, but there is no bootstrap_server")
        for name in ("topics", "partitions", "log_dirs", "replicas"):
            if isinstance(given := getattr(self, name), str) or not isinstance(given, Sequence):
                raise ConfigError(path=name, problem=f"{given!r} is no tuple; pass a tuple, also of a single one")
        for replica in self.replicas:
            require_local_path(replica)
        for log_dir in self.log_dirs:
            require_known_store(log_dir, suggests_address=True)

    @property
    def selection(self) -> Selection:
        """Which of the partitions that the paths name are meant."""
        return Selection(tuple(self.topics), tuple(self.partitions))

    def configs_of(
        self, directories: Sequence[Path], *, brokers: Mapping[Path, Broker] | None = None
    ) -> dict[Path, Configured]:
        """Return the configuration of each partition. Raises ConfigError: a wrong value stops the command.

        `brokers` are those of the log directories, if they are known already.
        """
        from kcompact.config.resolve import configurations

        return configurations(
            directories,
            log_dirs=self.log_dirs,
            replicas=self.replicas,
            overrides=self.overrides,
            broker_config=self.broker_config,
            topic_configs=self.topic_configs,
            bootstrap_server=self.bootstrap_server,
            client=self.client,
            release=self.release,
            brokers=brokers,
        )
