"""What is wrong with log directories: each by itself, and together with the others of its broker.

By itself: lock, `meta.properties`, checkpoints, clean shutdown, disk, and what the broker's user may not read or write.
That user is the owner of the log directory. Another user's file is the usual trace of a tool that ran as root.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kcompact import readable
from kcompact.config.broker_config import BrokerConfig
from kcompact.config.brokers import Broker
from kcompact.config.metadata_log import METADATA_DIRECTORY, read_meta_properties, read_topic_id
from kcompact.config.server_properties import runs_broker
from kcompact.doctor.damage import of_error
from kcompact.doctor.findings import Finding
from kcompact.errors import CorruptCheckpointError, CorruptDataError, KcompactError
from kcompact.format.checkpoint import (
    BROKER_CHECKPOINTS,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.format.properties import META_PROPERTIES, PARTITION_METADATA, MetaProperties
from kcompact.host.access import why_not_writable
from kcompact.host.disk import Disk
from kcompact.host.other_processes import is_suspended
from kcompact.log.directory import LogDir, is_log_dir, read_log_dir
from kcompact.log.files import read_file
from kcompact.log.lock import LOCK_NAME, holder_in_words, lock_holder
from kcompact.remarks import RemarkCode

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
        yield Finding(code=RemarkCode.RUNNING, directory=log_dir, file=log_dir / LOCK_NAME, problem=problem)
        return
    yield Finding(
        code=RemarkCode.LOCKED,
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
        return None, [_bad(RemarkCode.BAD_META_PROPERTIES, file, str(problem), says)]
    if properties is None:
        problem = "missing: a broker takes this for a directory that was never formatted"
        says = f"No `meta.properties` found in {log_dir}, or: No readable meta.properties files found."
        return None, [_bad(RemarkCode.NO_META_PROPERTIES, file, problem, says)]
    lacking = [
        name
        for name, value in (("node.id", properties.node_id), ("cluster.id", properties.cluster_id))
        if value is None
    ]
    return properties, [_bad(RemarkCode.BAD_META_PROPERTIES, file, f"has no {name}", says) for name in lacking]


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
        except CorruptCheckpointError as error:
            yield _bad_checkpoint(file, error)
        except KcompactError as error:
            yield of_error(error, log_dir)
        else:
            unknown = sorted(entries.keys() - partitions)
            if unknown:
                some = readable.some_of(list(map(str, unknown)), at_most=_NAMED)
                yield _bad(RemarkCode.UNKNOWN_ENTRY, file, f"names partitions that are not here: {some}", "")


_OF_A_BAD_NUMBER = {
    CLEANER_OFFSET_CHECKPOINT: (
        RemarkCode.CLEANER_ENDS,
        "the thread of the broker's cleaner ends, and nothing is compacted any more",
        "Error due to java.lang.NumberFormatException",
    ),
    RECOVERY_POINT_CHECKPOINT: (
        RemarkCode.IGNORED_CHECKPOINT,
        "a broker takes 0 for all recovery points",
        "resetting the recovery checkpoint to 0",
    ),
    LOG_START_OFFSET_CHECKPOINT: (
        RemarkCode.IGNORED_CHECKPOINT,
        "a broker takes the first segment of each log for its start, so records that were deleted may come back",
        "resetting to the base offset of the first segment",
    ),
    REPLICATION_OFFSET_CHECKPOINT: (
        RemarkCode.BAD_CHECKPOINT,
        "a broker serves no partition of this directory",
        "due to NumberFormatException",
    ),
}
"""What a broker does with an entry whose number is none, and what its log says. Other damage counts as of the disk."""


def _bad_checkpoint(file: Path, error: CorruptCheckpointError) -> Finding:
    if not error.has_bad_number:
        return _bad(RemarkCode.BAD_CHECKPOINT, file, error.problem, f"Error while reading checkpoint file {file}")
    kind, then, says = _OF_A_BAD_NUMBER[file.name]
    return _bad(kind, file, f"{error.problem}: {then}", says)


def shutdown_findings(log_dir: LogDir) -> Iterator[Finding]:
    """Yield a finding if a broker was not shut down cleanly."""
    if log_dir.is_unclean:
        yield Finding(
            code=RemarkCode.UNCLEAN_SHUTDOWN,
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
            code=RemarkCode.DISK_FULL,
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


def _bad(code: RemarkCode, file: Path, problem: str, broker_says: str) -> Finding:
    return Finding(code=code, directory=file.parent, file=file, problem=problem, broker_says=broker_says)


# Owners and modes

_READ, _WRITE, _SEARCH = 4, 2, 1
_OPENED_FOR_WRITING = (".log", ".index", ".timeindex", ".txnindex", ".lock")
"""A broker opens these files for reading and writing. The others it reads or replaces."""


class BrokerUser:
    """The user that a broker runs as, by the owner of its log directory."""

    def __init__(self, log_dir: Path) -> None:
        status = log_dir.stat()
        self._user, self._groups, self.name = status.st_uid, {status.st_gid}, f"{status.st_uid}:{status.st_gid}"
        with suppress(KeyError):
            name = pwd.getpwuid(self._user).pw_name
            self._groups = set(os.getgrouplist(name, status.st_gid))
            self.name = name

    def lacks(self, status: os.stat_result, wanted: int) -> bool:
        """Return whether the user has not all of the wanted permissions (4 read, 2 write, 1 search)."""
        if self._user == 0:
            return False
        mode = status.st_mode
        if status.st_uid == self._user:
            granted = mode >> 6
        elif status.st_gid in self._groups:
            granted = mode >> 3
        else:
            granted = mode
        return granted & wanted != wanted


def access_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield what a broker's user may not use, in a log directory and its partitions; one finding for each directory.

    Raises OSError if this user cannot list the log directory.
    """
    problem = why_not_writable(log_dir)
    if problem is not None:
        text = f"nothing can be written here: {problem.strerror}"
        yield Finding(code=RemarkCode.READ_ONLY, directory=log_dir, problem=text, broker_says=problem.strerror or "")
    user = BrokerUser(log_dir)
    if user.lacks(log_dir.stat(), _READ | _WRITE | _SEARCH):
        yield _no_access(log_dir, log_dir, [log_dir.name], user)
    yield from _closed_files(log_dir, user)
    for entry in sorted(os.scandir(log_dir), key=lambda entry: entry.name):
        if not entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if user.lacks(entry.stat(follow_symlinks=False), _READ | _WRITE | _SEARCH):
            yield _no_access(path, path, [path.name], user)
        with suppress(PermissionError):  # Reading the partition reports it.
            yield from _closed_files(path, user)


def _closed_files(directory: Path, user: BrokerUser) -> Iterator[Finding]:
    """Yield a finding if the user may not open some files of a directory as a broker does."""
    closed = {}
    for entry in os.scandir(directory):
        status = entry.stat(follow_symlinks=False)
        wanted = _READ | (_WRITE if entry.name.endswith(_OPENED_FOR_WRITING) else 0)
        if stat.S_ISREG(status.st_mode) and user.lacks(status, wanted):
            closed[entry.name] = user.lacks(status, _READ)
    if closed:
        names = sorted(closed)
        file = directory / names[0]
        says = f"Could not read file {file}" if closed[names[0]] else f"{file} (Permission denied)"
        yield _no_access(directory, file, names, user, says)


def _no_access(directory: Path, file: Path, names: list[str], user: BrokerUser, broker_says: str = "") -> Finding:
    more = f" and {len(names) - 1:,} more files" if len(names) > 1 else ""
    return Finding(
        code=RemarkCode.NO_ACCESS,
        directory=directory,
        file=file,
        problem=f"the owner of the log directory, {user.name}, may not open {names[0]}{more} as a broker does",
        owner=user.name,
        broker_says=broker_says,
    )


# Several log directories of one broker


def identity_findings(
    identities: Mapping[Path, MetaProperties], configs: Mapping[Path, BrokerConfig]
) -> Iterator[Finding]:
    """Yield log directories of another cluster or node than the first, and directory ids that occur twice.

    `node.id` of `server.properties` is compared too. `configs` has what is known of the broker of each log directory.
    Rule: MetaPropertiesEnsemble.verify.
    """
    cluster_id: str | None = None
    node_id: int | None = None
    owners: dict[str, Path] = {}
    for log_dir, properties in identities.items():
        file = log_dir / META_PROPERTIES
        cluster_id = cluster_id or properties.cluster_id
        known = (node_id, configs[log_dir].node_id, properties.node_id)
        node_id = next((each for each in known if each is not None), None)
        if properties.cluster_id is not None and properties.cluster_id != cluster_id:
            says = f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {properties.cluster_id}"
            problem = f"belongs to the cluster {properties.cluster_id}, the directories before it to {cluster_id}"
            yield Finding(code=RemarkCode.CLUSTER_IDS, directory=log_dir, file=file, problem=problem, broker_says=says)
        if properties.node_id is not None and properties.node_id != node_id:
            says = f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {file}."
            problem = f"belongs to the node {properties.node_id}, the broker is the node {node_id}"
            yield Finding(code=RemarkCode.NODE_IDS, directory=log_dir, file=file, problem=problem, broker_says=says)
        if properties.directory_id is not None:
            owner = owners.setdefault(properties.directory_id, log_dir)
            if owner != log_dir:
                says = f"Duplicate directory ID Optional[{properties.directory_id}] found. It was the ID of {owner}"
                problem = f"has the directory id of {owner}; one of them is a copy"
                yield Finding(
                    code=RemarkCode.DIRECTORY_IDS, directory=log_dir, file=file, problem=problem, broker_says=says
                )


def missing_log_dir_findings(brokers: Mapping[Path, Broker]) -> Iterator[Finding]:
    """Yield the log directories that a broker has and that were not found; `brokers` are those of log directories.

    Rule: MetaPropertiesEnsemble.verify, which wants the metadata log directory to be formatted.
    """
    for log_dir, broker in _each_once(brokers):
        config = broker.config
        for missing in config.missing:
            path = config.located(missing) if config.names_log_dirs else None
            if path is not None and Path(os.path.realpath(path)) in brokers:
                continue  # It is that of another broker, or a copy, which `identity_findings` says.
            if path is not None and missing == config.metadata_log_dir:
                problem = (
                    "the metadata log directory of this broker was not found. The settings of the topics are also in "
                    "the metadata log of every other broker and controller: --bootstrap-server and --topic-configs "
                    "take them from there"
                )
                says = f"No `meta.properties` found in {missing}"
                yield Finding(code=RemarkCode.NO_META_PROPERTIES, directory=path, problem=problem, broker_says=says)
                continue
            problem = f"the broker has another log directory, {readable.shown(missing)}, which was not found"
            yield Finding(
                code=RemarkCode.MISSING_LOG_DIR, directory=log_dir, problem=f"{problem}: nothing in it was judged"
            )


def _each_once(brokers: Mapping[Path, Broker]) -> Iterator[tuple[Path, Broker]]:
    """Yield each broker once, with the first of its log directories."""
    seen: set[int] = set()
    for log_dir, broker in brokers.items():
        if id(broker) not in seen:
            seen.add(id(broker))
            yield log_dir, broker


def metadata_log_findings(brokers: Mapping[Path, Broker]) -> Iterator[Finding]:
    """Yield metadata logs outside of the metadata log directory, which by default is the first log directory.

    `brokers` are those of log directories. Rule: KafkaRaftServer.initializeLogDirs.
    """
    for _, broker in _each_once(brokers):
        yield from _misplaced_metadata_logs([each.path for each in broker.log_dirs], broker.config)


def _misplaced_metadata_logs(log_dirs: Sequence[Path], config: BrokerConfig) -> Iterator[Finding]:
    present = [log_dir for log_dir in log_dirs if (log_dir / METADATA_DIRECTORY).is_dir()]
    named = None if config.log_dirs_moved or not config.properties else config.metadata_log_dir
    located = None if named is None else config.located(named)
    if located is not None:
        expected = Path(os.path.realpath(located))
    elif len(present) > 1:
        expected = present[0].resolve()
    else:
        return
    for log_dir in present:
        if log_dir.resolve() != expected:
            file = log_dir / METADATA_DIRECTORY
            says = f"Found unexpected metadata location in data directory `{file}`"
            problem = f"a metadata log outside of the metadata log directory, {expected}"
            yield Finding(
                code=RemarkCode.METADATA_LOGS, directory=log_dir, file=file, problem=problem, broker_says=says
            )


def duplicate_findings(partitions: Sequence[Path], brokers: Mapping[Path, Broker]) -> Iterator[Finding]:
    """Yield partitions that are in several log directories of their broker. Rule: LogManager.loadLog.

    `brokers` are those of log directories. Directories that nobody has named are those of the broker's file.
    """
    first: dict[tuple[object, str], Path] = {}
    for directory in partitions:
        log_dirs = brokers[directory.parent].log_dirs
        others = (each.path / directory.name for each in log_dirs if each.path not in brokers)
        other = next((each for each in others if each.is_dir()), None)
        other = other or first.setdefault((log_dirs[0].owner, directory.name), directory)
        if other != directory and directory.name != METADATA_DIRECTORY:
            says = f"Duplicate log directories for {directory.name} are found in both {other} and {directory}."
            problem = f"is in {other.parent} too; find out which one is newer, and move the other out"
            yield Finding(code=RemarkCode.DUPLICATE_PARTITION, directory=directory, problem=problem, broker_says=says)


def topic_id_findings(partitions: Sequence[Path]) -> Iterator[Finding]:
    """Yield topics with several ids, and ids of several topics: some of these directories come from elsewhere."""
    first_of_topic: dict[str, tuple[str, Path]] = {}
    topics_of_id: dict[str, dict[str, Path]] = defaultdict(dict)
    for directory in partitions:
        parsed = parse_directory(directory.name)
        topic_id = None
        with suppress(KcompactError, OSError):  # Reading the partition reports it.
            topic_id = read_topic_id(directory)
        if parsed is None or topic_id is None:
            continue
        topic = parsed.topic_partition.topic
        known, other = first_of_topic.setdefault(topic, (topic_id, directory))
        if known != topic_id:
            problem = f"has the topic id {topic_id}, but {other.name} has {known}: a broker moves one of them aside"
            yield _topic_ids(directory, problem)
        topics_of_id[topic_id].setdefault(topic, directory)
    for topic_id, topics in topics_of_id.items():
        for directory in list(topics.values())[1:]:
            yield _topic_ids(directory, f"has the topic id {topic_id}, which {next(iter(topics))} has too")


def _topic_ids(directory: Path, problem: str) -> Finding:
    return Finding(code=RemarkCode.TOPIC_IDS, directory=directory, file=directory / PARTITION_METADATA, problem=problem)
