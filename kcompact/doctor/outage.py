"""Whether a broker was down for so long that its replicas may bring deleted keys back.

A follower that returns fetches from its own end on. A tombstone that the leader has dropped meanwhile never reaches it:
the old value stays, and is served once this replica leads. Rule: `AbstractFetcherThread`, `Cleaner.doClean`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kcompact.config.brokers import Broker
from kcompact.config.resolve import Configured
from kcompact.doctor.findings import Finding, Kind
from kcompact.format.checkpoint import RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.format.names import parse_directory
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.files import files_in
from kcompact.log.lock import lock_holder
from kcompact.readable import duration, shown, some_of

_WRITTEN_BY_BROKERS = (CLEAN_SHUTDOWN_FILE, REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)
"""A broker writes the first when it stops, the high watermarks every five seconds, the recovery points every minute."""


def outage_findings(
    configs: Mapping[Path, Configured], brokers: Mapping[Path, Broker], *, now_ms: int
) -> Iterator[Finding]:
    """Yield the log directories whose broker was down for longer than `delete.retention.ms` of a topic.

    A copy counts too, if it has kept the times of the files. Raises StorageError.
    """
    topics: dict[Path, dict[str, int]] = {}
    for directory, configured in configs.items():
        parsed, config = parse_directory(directory.name), configured.config
        if parsed is None or not config.compacts or _is_only_replica(brokers[directory.parent], directory):
            continue
        topics.setdefault(directory.parent, {})[parsed.topic_partition.topic] = config.delete_retention_ms
    for log_dir, retention_ms in topics.items():
        stopped_ms = _last_written_ms(log_dir)
        if stopped_ms is None or lock_holder(log_dir) is not None:
            continue
        late = [topic for topic, limit_ms in retention_ms.items() if now_ms - stopped_ms > limit_ms]
        if late:
            some = some_of([f"{shown(topic)} ({duration(retention_ms[topic])})" for topic in sorted(late)])
            yield Finding(
                kind=Kind.LONG_OUTAGE,
                directory=log_dir,
                problem=f"the broker last wrote here {duration(now_ms - stopped_ms)} ago, which is longer than "
                f"delete.retention.ms of {some}: tombstones that it lacks may be gone from the other replicas, so that "
                "deleted keys would come back. Compare the replicas before it starts",
            )


def _is_only_replica(broker: Broker, directory: Path) -> bool:
    """Return whether the cluster metadata has no other replica of a partition."""
    parsed = parse_directory(directory.name)
    if broker.metadata is None or parsed is None:
        return False
    topic = broker.metadata.topics.get(parsed.topic_partition.topic)
    return topic is not None and len(topic.partitions.get(parsed.topic_partition.partition, ())) == 1


def _last_written_ms(log_dir: Path) -> int | None:
    files = files_in(log_dir)
    return max((files.identity(name).mtime_ms for name in _WRITTEN_BY_BROKERS if files.exists(name)), default=None)
