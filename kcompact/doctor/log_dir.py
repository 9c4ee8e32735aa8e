"""What is wrong with a log directory itself: its lock, `meta.properties`, its checkpoints, its disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kcompact import readable
from kcompact.config.metadata_log import read_meta_properties
from kcompact.config.server_properties import runs_broker
from kcompact.doctor.damage import of_error
from kcompact.doctor.findings import Finding, Kind
from kcompact.errors import CorruptDataError, KcompactError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kcompact.format.names import DirectoryKind, TopicPartition, parse_directory
from kcompact.format.properties import META_PROPERTIES, MetaProperties
from kcompact.host.disk import Disk
from kcompact.host.other_processes import is_suspended
from kcompact.log.directory import BROKER_CHECKPOINTS, LogDir, is_log_dir, read_log_dir
from kcompact.log.files import read_file
from kcompact.log.lock import LOCK_NAME, holder_in_words, lock_holder

LEAST_FREE_BYTES = 64 << 10
"""With less a broker cannot write its checkpoints, snapshots and indexes."""
_NAMED = 5


def lock_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield who holds the lock: a broker at work, or something that only keeps brokers out."""
    holder = lock_holder(log_dir)
    if holder is None:
        return
    who, pid = readable.shown(holder_in_words(log_dir)), max(holder, 0) or None
    if pid is not None and runs_broker(pid) and not is_suspended(pid):
        problem = f"{who} is a running broker: beside it clean only works with --dry-run or --output"
        yield Finding(kind=Kind.RUNNING, directory=log_dir, file=log_dir / LOCK_NAME, problem=problem)
        return
    yield Finding(
        kind=Kind.LOCKED,
        directory=log_dir,
        file=log_dir / LOCK_NAME,
        problem=f"{who} holds the lock: no other broker can start, and clean only works with --output",
        pid=pid,
        broker_says=f"Failed to acquire lock on file .lock in {log_dir}. A Kafka instance in another process or thread "
        "is using this directory.",
    )


def meta_properties_findings(log_dir: Path) -> tuple[MetaProperties | None, list[Finding]]:
    """Return the content of `meta.properties` and what is wrong with it. Rule: KafkaRaftServer.initializeLogDirs."""
    file = log_dir / META_PROPERTIES
    says = f"Error while reading meta.properties file {file}"
    try:
        properties = read_meta_properties(log_dir)
    except KcompactError as error:
        problem = error.problem if isinstance(error, CorruptDataError) else str(error).splitlines()[0]
        return None, [_bad(Kind.BAD_META_PROPERTIES, file, str(problem), says)]
    if properties is None:
        problem = "missing: a broker takes this for a directory that was never formatted"
        says = f"No `meta.properties` found in {log_dir}, or: No readable meta.properties files found."
        return None, [_bad(Kind.NO_META_PROPERTIES, file, problem, says)]
    lacking = [
        name
        for name, value in (("node.id", properties.node_id), ("cluster.id", properties.cluster_id))
        if value is None
    ]
    return properties, [_bad(Kind.BAD_META_PROPERTIES, file, f"has no {name}", says) for name in lacking]


def checkpoint_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield offset checkpoints that cannot be read, and entries of partitions that are not there. Raises OSError."""
    partitions = {
        parsed.topic_partition
        for entry in log_dir.iterdir()
        if (parsed := parse_directory(entry.name)) and parsed.kind is not DirectoryKind.DELETE
    }
    for name in (CLEANER_OFFSET_CHECKPOINT, *BROKER_CHECKPOINTS):
        file = log_dir / name
        if not (file.exists() or file.is_symlink()):
            continue
        try:
            entries = parse_offset_checkpoint(read_file(file), file=str(file))
        except CorruptDataError as error:
            yield _bad(Kind.BAD_CHECKPOINT, file, error.problem, f"Error while reading checkpoint file {file}")
        except KcompactError as error:
            yield of_error(error, log_dir)
        else:
            unknown = sorted(entries.keys() - partitions)
            if unknown:
                yield _bad(Kind.UNKNOWN_ENTRY, file, f"names partitions that are not here: {_some(unknown)}", "")


def shutdown_findings(log_dir: LogDir) -> Iterator[Finding]:
    """Yield a finding if a broker was not shut down cleanly."""
    if log_dir.is_unclean:
        yield Finding(
            kind=Kind.UNCLEAN_SHUTDOWN,
            directory=log_dir.path,
            problem="the broker was not shut down cleanly: .kafka_cleanshutdown is missing. The next broker recovers "
            "every log; kcompact does not clean before that, unless with --unclean",
            broker_says=f"Recovering logs from {log_dir.path} since no clean shutdown file was found",
        )


def disk_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield a finding if the disk is full. Raises OSError."""
    disk = Disk.of(log_dir)
    if disk.free_bytes < LEAST_FREE_BYTES:
        yield Finding(
            kind=Kind.DISK_FULL,
            directory=log_dir,
            problem=f"{disk.free_bytes:,} bytes are free: a broker cannot write its checkpoints",
            broker_says="No space left on device",
        )


def readable_log_dir(log_dir: Path) -> LogDir:
    """Return the log directory with its checkpoints; without them if one cannot be read. Raises OSError."""
    try:
        return read_log_dir(log_dir)
    except KcompactError:
        return LogDir(path=log_dir, is_log_dir=is_log_dir(log_dir), is_clean_shutdown=True)


def _bad(kind: Kind, file: Path, problem: str, broker_says: str) -> Finding:
    return Finding(kind=kind, directory=file.parent, file=file, problem=problem, broker_says=broker_says)


def _some(partitions: Sequence[TopicPartition]) -> str:
    more = "" if len(partitions) <= _NAMED else f" and {len(partitions) - _NAMED:,} more"
    return ", ".join(map(str, partitions[:_NAMED])) + more
