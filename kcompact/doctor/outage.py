"""Whether a broker was down for so long that its replicas may bring deleted keys back.

A follower that returns fetches from its own end on. A tombstone that the leader has dropped meanwhile never reaches it:
the old value stays, and is served once this replica leads. Rule: `AbstractFetcherThread`, `Cleaner.doClean`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kcompact.config.brokers import Broker
from kcompact.config.resolve import Configured
from kcompact.config.settings import TopicConfig
from kcompact.doctor.findings import Finding
from kcompact.errors import RefusedError, storage_errors
from kcompact.format.checkpoint import RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.format.names import parse_directory
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.files import files_in
from kcompact.log.lock import lock_holder
from kcompact.readable import duration, shown, some_of
from kcompact.remarks import RemarkCode

_WRITTEN_WHILE_IT_RUNS = (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)
"""Checkpoints that a broker writes every five seconds, and every minute."""


def outage_findings(
    configs: Mapping[Path, Configured], brokers: Mapping[Path, Broker], *, now_ms: int
) -> Iterator[Finding]:
    """Yield the log directories whose broker was down for longer than `delete.retention.ms` of a topic.

    A copy counts too, if it has kept the times of the files. A topic whose policy is unknown may be compacted.
    """
    topics: dict[Path, dict[str, TopicConfig]] = {}
    for directory, configured in configs.items():
        parsed, config = parse_directory(directory.name), configured.config
        is_compacted = config.compacts or config.cleanup_policy is None
        if parsed is not None and is_compacted and _may_have_other_replicas(brokers[directory.parent], directory):
            topics.setdefault(directory.parent, {})[parsed.topic_partition.topic] = config
    for log_dir, topic_configs in topics.items():
        with storage_errors(log_dir):
            stopped_ms = None if lock_holder(log_dir) is not None else _last_written_ms(log_dir)
        if stopped_ms is None:
            continue
        late = {name: each for name, each in topic_configs.items() if now_ms - stopped_ms > each.delete_retention_ms}
        if late:
            some = some_of([f"{shown(name)} ({duration(late[name].delete_retention_ms)})" for name in sorted(late)])
            condition = "" if any(each.compacts for each in late.values()) else ", if it is compacted"
            yield Finding(
                code=RemarkCode.LONG_OUTAGE,
                directory=log_dir,
                problem=f"the broker last wrote here {duration(now_ms - stopped_ms)} ago, which is longer than "
                f"delete.retention.ms of {some}{condition}: tombstones that it lacks may be gone from the other "
                "replicas, so that deleted keys would come back. Compare the replicas before it starts",
            )


def _may_have_other_replicas(broker: Broker, directory: Path) -> bool:
    """Return whether this broker has a replica of the partition and others do too, as far as its metadata tells."""
    parsed = parse_directory(directory.name)
    if broker.metadata is None or parsed is None:
        return True
    topic = broker.metadata.topics.get(parsed.topic_partition.topic)
    replicas = () if topic is None else topic.partitions.get(parsed.topic_partition.partition, ())
    return len(replicas) > 1 and (broker.node_id is None or broker.node_id in replicas)


def _last_written_ms(log_dir: Path) -> int | None:
    """Return when a broker stopped, or wrote a checkpoint last; None without these files."""
    files = files_in(log_dir)
    names = (CLEAN_SHUTDOWN_FILE,) if files.exists(CLEAN_SHUTDOWN_FILE) else _WRITTEN_WHILE_IT_RUNS
    times_ms = list[int]()
    for name in filter(files.exists, names):
        with suppress(RefusedError):  # A directory or a link of that name, which is reported with the log directory.
            times_ms.append(files.identity(name).mtime_ms)
    return max(times_ms, default=None)
