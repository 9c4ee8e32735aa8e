"""Topics and their settings from the KRaft metadata log of a stopped broker. Reads only.

    snapshot 00000000000000004200-0000000003.checkpoint        the state of the log below offset 4200
    log      00000000000000003900.log   00000000000000004400.log
                        [3900 ..... 4399]          [4400 .....
                               ^ replayed from 4200 on

The state is that of the newest complete snapshot plus a replay of the log from the snapshot's end offset on. When that
snapshot cannot be read, an older one is used if the log still reaches back to it. A gap is an error: CorruptDataError
with file, position and offset.

Two things at the end of the log are ignored, with a note: a transaction that has no end, and a partial batch. A
partial batch is an error after a clean shutdown, which leaves none. The log alone does not show whether its last
records were committed: a controller that lost its leadership can have records that no other controller has.

A newer Kafka has records of other types and versions. One that can decide about topics and settings is refused:
UnsupportedError. The others are counted, with a note. Kafka refuses each of them.

Rules: KIP-630, KIP-631, KIP-868; `MetadataLoader`, `MetadataBatchLoader`, `ConfigurationsDelta`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from kcompact import readable
from kcompact.config.settings import DynamicConfig, Source
from kcompact.errors import (
    CorruptBatchError,
    CorruptDataError,
    RefusedError,
    StaleReplicaError,
    UnsupportedError,
    storage_error,
)
from kcompact.format.batch import CONTROL_BIT, LOG_OVERHEAD_BYTES, Batch, Record, read_records, verify_crc
from kcompact.format.messages.cluster_metadata import (
    MetadataKind,
    MetadataRecord,
    ResourceType,
    UnknownRecord,
    read_record,
)
from kcompact.format.messages.control_records import (
    QUORUM_TYPES,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    control_type,
    decode_quorum_record,
)
from kcompact.format.messages.schema import Fields, unknown_record
from kcompact.format.names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    MetadataSnapshotName,
    TopicPartition,
    log_bases,
    log_name,
    parse_metadata_snapshot_name,
)
from kcompact.format.properties import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.format.text_lines import parse_digits
from kcompact.log.files import Files, LogFile, files_in
from kcompact.log.segment_reader import WINDOW_BYTES, batches
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

METADATA_DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"
ORIGIN = "metadata-log"
METADATA_VERSION = "metadata.version"
_UP_TO_ATTRIBUTES_BYTES = 23
_SAME_LEADER = -2
"""In a change: the leader stays. Rule: `LeaderConstants.NO_LEADER_CHANGE`."""


class Roles(NamedTuple):
    """Who leads a partition and which brokers are in sync, by node id. None is not known, the leader -1 is nobody."""

    leader: int | None = None
    in_sync: tuple[int, ...] | None = None


class Registration(NamedTuple):
    """What a broker registered at its last start: the greatest level of `metadata.version`, 0 without one.

    One that `is_migrating` uses ZooKeeper, and registers its `inter.broker.protocol.version` as this level.
    """

    level: int
    is_migrating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopic:
    """A topic: its id in Kafka's text form, the settings that it overrides, the brokers of each of its partitions."""

    topic_id: str
    overrides: Mapping[str, str]
    partitions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    roles: Mapping[int, Roles] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The state of a metadata log at `end_offset`. `broker_configs` has the dynamic settings by node id.

    `registrations` has those of the brokers by node id; None for one of a version that is unknown. `log_dirs` has the
    ids of the log directories that a broker registered. `feature_levels` has the levels of the features that the
    cluster has agreed on.

    `snapshot` is the one that the state is based on; None when the log was replayed from offset 0. `damage` is that of
    the newest snapshot, which a broker loads first. `topics_by_id` has the same topics as `topics`, which has them by
    name.
    """

    directory: Path
    topics: Mapping[str, ClusterTopic]
    broker_configs: Mapping[int, Mapping[str, str]]
    cluster_defaults: Mapping[str, str]
    end_offset: int
    registrations: Mapping[int, Registration | None] = field(default_factory=dict)
    log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    feature_levels: Mapping[str, int] = field(default_factory=dict)
    snapshot: MetadataSnapshotName | None = None
    damage: CorruptDataError | None = None
    notes: tuple[Note, ...] = ()
    topics_by_id: Mapping[str, ClusterTopic] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics_by_id", {topic.topic_id: topic for topic in self.topics.values()})


def read_cluster_metadata(log_dir: Path) -> ClusterMetadata | None:
    """Return the state of the metadata log in a log directory, or None when it has no metadata log.

    Raises CorruptDataError for damage and gaps, RefusedError for a link or a special file, UnsupportedError for a
    record of a newer Kafka that decides, StorageError.
    """
    directory = log_dir / METADATA_DIRECTORY
    if directory.is_symlink():
        raise RefusedError(path=directory, problem="a symbolic link; kcompact does not follow links")
    if not directory.is_dir():
        return None
    files, log_dir_files = files_in(directory), files_in(log_dir)
    snapshots, bases = _list_files(files)
    if not snapshots and not bases:
        return None

    notes: list[Note] = []
    state, snapshot, damage = _newest_state(files, snapshots, notes)
    start = snapshot.end_offset if snapshot else 0
    if snapshot is None and log_dir_files.exists(BOOTSTRAP_CHECKPOINT):
        try:
            state = _read_snapshot(log_dir_files.file(BOOTSTRAP_CHECKPOINT))
        except CorruptDataError as problem:
            notes.append(Note.of(RemarkCode.METADATA_NOT_USED, name=BOOTSTRAP_CHECKPOINT, problem=problem.problem))
    if bases and bases[0] > start:
        raise damage or CorruptDataError(
            file=directory / log_name(bases[0]),
            offset=bases[0],
            problem=f"the metadata log starts here, and no snapshot has the records from offset {start} on",
        )
    is_clean = log_dir_files.exists(CLEAN_SHUTDOWN_FILE)
    end_offset = _replay_log(files, bases, snapshot, state, notes, tolerate_torn_end=not is_clean)
    if damage is not None and end_offset < snapshots[0].end_offset:
        raise damage
    if state.unknown_records:
        records = readable.counted(state.unknown_records, "record")
        notes.append(Note.of(RemarkCode.UNKNOWN_METADATA_RECORDS, records=records, first=state.first_unknown))
    return ClusterMetadata(
        directory=directory,
        topics=state.topics(),
        broker_configs=state.broker_configs(),
        cluster_defaults=state.configs.get((ResourceType.BROKER, ""), {}),
        end_offset=end_offset,
        registrations=state.registrations,
        log_dirs=state.log_dirs,
        feature_levels=state.feature_levels,
        snapshot=snapshot,
        damage=damage,
        notes=tuple(notes),
    )


def newest_snapshot(directory: Path) -> MetadataSnapshotName | None:
    """Return the newest snapshot of a metadata log, None without one, and for a damaged one: a broker loads no other.

    Raises RefusedError, StorageError.
    """
    files = files_in(directory)
    _, snapshot, damage = _newest_state(files, _list_files(files)[0], [])
    return snapshot if damage is None else None


def _list_files(files: Files) -> tuple[list[MetadataSnapshotName], list[int]]:
    """Return the snapshots, newest first, and the base offsets of the log's segments, ascending."""
    try:
        names = files.names()
    except OSError as problem:
        raise storage_error(files.directory, problem, operation="list") from None
    snapshots = [snapshot for name in names if (snapshot := parse_metadata_snapshot_name(name))]
    return sorted(snapshots, reverse=True), log_bases(names)


@dataclass(slots=True)
class _State:
    """Topics and settings while records are applied. `configs` has the settings by resource type and resource name."""

    names: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    roles: dict[str, dict[int, Roles]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    registrations: dict[int, Registration | None] = field(default_factory=dict)
    log_dirs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    feature_levels: dict[str, int] = field(default_factory=dict)
    last_timestamp_ms: int | None = None
    """The time of the last batch of the log that a snapshot contains, by its header."""
    unknown_records: int = 0
    first_unknown: str = ""
    """How many records were passed over because their type or version is unknown, and the first of them."""

    def pass_over(self, record: UnknownRecord, offset: int) -> None:
        """Count a record that is unknown and decides nothing."""
        self.unknown_records += 1
        self.first_unknown = self.first_unknown or f"{record}, at offset {offset}"

    def apply(self, record: MetadataRecord) -> None:
        """Apply one record; ignore kinds without topics and settings. Raises ValueError for a bad record."""
        fields = record.fields
        match record.type.number:
            case MetadataKind.TOPIC:
                self.names[fields["topicId"]] = fields["name"]
                self.ids[fields["name"]] = fields["topicId"]
            case MetadataKind.PARTITION:
                self._apply_partition(fields)
            case MetadataKind.PARTITION_CHANGE:
                self._require(fields["topicId"] in self.names, f"topic {fields['topicId']}")
                self._apply_partition(fields)
            case MetadataKind.CONFIG:
                resource_type, resource_name, name, value = fields.values()
                if resource_type == ResourceType.BROKER and resource_name and parse_digits(resource_name) is None:
                    raise ValueError(f"settings of a broker whose id is {resource_name[:40]!a}, not a number")
                settings = self.configs.setdefault((resource_type, resource_name), {})
                if value is None:
                    settings.pop(name, None)
                else:
                    settings[name] = value
            case MetadataKind.REMOVE_TOPIC:
                self._require(fields["topicId"] in self.names, f"topic {fields['topicId']}")
                name = self.names.pop(fields["topicId"], "")
                self.partitions.pop(fields["topicId"], None)
                self.roles.pop(fields["topicId"], None)
                if self.ids.get(name) == fields["topicId"]:
                    del self.ids[name]
                    self.configs.pop((ResourceType.TOPIC, name), None)
            case MetadataKind.FEATURE_LEVEL:
                self.feature_levels[fields["name"]] = fields["featureLevel"]
            case MetadataKind.REGISTER_BROKER:
                self._apply_registration(fields)
            case MetadataKind.BROKER_REGISTRATION_CHANGE:
                self._require(fields["brokerId"] in self.registrations, f"broker {fields['brokerId']}")
                # A disk that went offline while the broker ran is one of its disks.
                before = self.log_dirs.get(fields["brokerId"], ())
                self.log_dirs[fields["brokerId"]] = tuple(dict.fromkeys((*before, *(fields.get("logDirs") or ()))))
            case MetadataKind.UNREGISTER_BROKER:
                self.registrations.pop(fields["brokerId"], None)
                self.log_dirs.pop(fields["brokerId"], None)

    def _require(self, is_known: bool, what: str) -> None:
        """Raise ValueError if a record changes what no record has made. Rule: `ClusterDelta.getBrokerOrThrow`.

        After a record of an unknown version nothing is said.
        """
        if not is_known and not self.unknown_records:
            raise ValueError(f"changes {what}, which is in no record before. Does the snapshot belong to this log?")

    def _apply_registration(self, fields: Fields) -> None:
        """Apply the registration of a broker. Of an unknown version only the broker's id is there."""
        node_id = fields["brokerId"]
        self.log_dirs[node_id] = tuple(fields.get("logDirs", ()))
        if "features" not in fields:
            self.registrations[node_id] = None
            return
        levels = {each["name"]: each["maxSupportedVersion"] for each in fields["features"]}
        is_migrating = fields.get("isMigratingZkBroker", False)
        self.registrations[node_id] = Registration(levels.get(METADATA_VERSION, 0), is_migrating)

    def _apply_partition(self, fields: Fields) -> None:
        """Apply a new partition, or what changes in one. A field that is missing or null does not change."""
        topic_id, number = fields["topicId"], fields["partitionId"]
        if fields.get("replicas") is not None:
            self.partitions.setdefault(topic_id, {})[number] = tuple(fields["replicas"])
        roles = self.roles.setdefault(topic_id, {})
        known, leader, in_sync = roles.get(number, Roles()), fields.get("leader", _SAME_LEADER), fields.get("isr")
        roles[number] = Roles(
            known.leader if leader == _SAME_LEADER else leader, known.in_sync if in_sync is None else tuple(in_sync)
        )

    def topics(self) -> dict[str, ClusterTopic]:
        """Return the topics by name."""
        return {
            name: ClusterTopic(
                topic_id=topic_id,
                overrides=self.configs.get((ResourceType.TOPIC, name), {}),
                partitions=self.partitions.get(topic_id, {}),
                roles=self.roles.get(topic_id, {}),
            )
            for name, topic_id in self.ids.items()
        }

    def broker_configs(self) -> dict[int, dict[str, str]]:
        """Return the settings of single brokers by node id. Brokers without settings are left out."""
        return {
            int(name): settings
            for (resource_type, name), settings in self.configs.items()
            if resource_type == ResourceType.BROKER and name and settings
        }


def _newest_state(
    files: Files, snapshots: Sequence[MetadataSnapshotName], notes: list[Note]
) -> tuple[_State, MetadataSnapshotName | None, CorruptDataError | None]:
    """Return the state of the newest readable snapshot, that snapshot, and the damage of the newest of all.

    Without a readable snapshot the state is empty. Adds a note for each snapshot that is not used.
    """
    damage: CorruptDataError | None = None
    for snapshot in snapshots:
        try:
            return _read_snapshot(files.file(str(snapshot))), snapshot, damage
        except CorruptDataError as problem:
            damage = damage or problem
            name = f"metadata snapshot {snapshot}"
            notes.append(Note.of(RemarkCode.METADATA_NOT_USED, name=name, problem=problem.problem))
    return _State(), None, damage


def _read_snapshot(file: LogFile) -> _State:
    """Return the state in a snapshot. Raises CorruptDataError, also for a snapshot without its footer.

    A broker needs no footer. It shows that the snapshot has all its records, also if it is torn itself.
    """
    state = _State()
    is_begun = is_complete = False
    end = 0
    try:
        for batch in batches(file):
            end = batch.position + batch.header.size_bytes
            for record, kind in _checked(batch, file):
                if is_complete or (not is_begun and kind != SNAPSHOT_HEADER):
                    raise _corrupt(file, batch, record, "a snapshot must have its header first and its footer last")
                is_begun, is_complete = True, kind == SNAPSHOT_FOOTER
                if kind == SNAPSHOT_HEADER:
                    with suppress(ValueError):  # Of an unknown version.
                        _, fields = decode_quorum_record(kind, record.value) or ("", {})
                        state.last_timestamp_ms = fields.get("lastContainedLogTimestamp")
                if kind is None:
                    _apply(state, _decode(state, record, batch, file), record, batch, file)
    except CorruptBatchError as damage:
        torn = _torn_batch(file, end) if damage.position == end else None
        if torn is None:
            raise
        # Only the footer is a control batch at the end: all records are before it.
        is_complete |= is_begun and len(torn) == _UP_TO_ATTRIBUTES_BYTES and bool(torn[-1] & CONTROL_BIT)
    if not is_complete:
        raise CorruptDataError(file=str(file), problem="the snapshot is incomplete: it has no footer")
    return state


def _torn_batch(file: LogFile, position: int) -> bytes | None:
    """Return the first bytes of what Kafka takes for the end of a snapshot, None for what it cannot read.

    Rule: `ByteBufferLogInputStream.nextBatch`.
    """
    with file.open() as opened:
        left = opened.size_bytes - position
        prefix = opened.read(_UP_TO_ATTRIBUTES_BYTES, position)
    is_torn = left < LOG_OVERHEAD_BYTES or LOG_OVERHEAD_BYTES + int.from_bytes(prefix[8:12], "big", signed=True) > left
    return prefix if is_torn and prefix[16:17] <= b"\x02" else None


def _replay_log(
    files: Files,
    bases: Sequence[int],
    snapshot: MetadataSnapshotName | None,
    state: _State,
    notes: list[Note],
    *,
    tolerate_torn_end: bool,
) -> int:
    """Apply the records from the snapshot's end on to `state`, and return the log's end offset.

    The records of a transaction are applied when it ends. Adds notes. Raises CorruptDataError, also for a snapshot
    that does not have the time of the batch before its end: its name is that of another one.
    """
    start = snapshot.end_offset if snapshot else 0
    transaction: list[tuple[MetadataRecord, Record, Batch]] | None = None
    transaction_offset = end_offset = start
    for batch, file in _log_batches(files, bases, start, notes, tolerate_torn_end=tolerate_torn_end):
        if batch.header.next_offset == start:
            if state.last_timestamp_ms not in (None, batch.header.max_timestamp) and _is_of_metadata(batch, file):
                its, of_log = readable.time(state.last_timestamp_ms), readable.time(batch.header.max_timestamp)
                problem = f"the snapshot of another offset: the log before it ends at {its}, here at {of_log}"
                raise CorruptDataError(file=str(files.file(str(snapshot))), problem=problem)
            continue
        end_offset = max(end_offset, batch.header.next_offset)
        for record, kind in _checked(batch, file):
            decoded = None if kind is not None or record.offset < start else _decode(state, record, batch, file)
            match decoded.type.number if decoded else None:
                case MetadataKind.BEGIN_TRANSACTION:
                    if transaction is not None:
                        problem = f"a transaction begins inside the transaction of offset {transaction_offset}"
                        raise _corrupt(file, batch, record, problem)
                    transaction, transaction_offset = [], record.offset
                case MetadataKind.END_TRANSACTION | MetadataKind.ABORT_TRANSACTION as end:
                    if transaction is None:
                        raise _corrupt(file, batch, record, "a transaction ends, but none has begun")
                    if end == MetadataKind.END_TRANSACTION:
                        for entry in transaction:
                            _apply(state, *entry, file)
                    transaction = None
                case _ if transaction is not None and decoded:
                    transaction.append((decoded, record, batch))
                case _:
                    _apply(state, decoded, record, batch, file)
    if transaction is not None:
        notes.append(Note.of(RemarkCode.OPEN_METADATA_TRANSACTION, offset=transaction_offset))
    return end_offset


def _is_of_metadata(batch: Batch, file: LogFile) -> bool:
    """Return whether a batch can be read as one of a metadata log."""
    with suppress(CorruptDataError, UnsupportedError):
        for record, kind in _checked(batch, file):
            if kind is None:
                _decode(_State(), record, batch, file)
        return True
    return False


def _log_batches(
    files: Files, bases: Sequence[int], start: int, notes: list[Note], *, tolerate_torn_end: bool
) -> Iterator[tuple[Batch, LogFile]]:
    """Yield the batches that end at `start` or above. Raises CorruptDataError for a gap: a metadata log has none.

    With `tolerate_torn_end` a partial batch at the end is ignored, with a note.
    """
    first = max((number for number, base in enumerate(bases) if base <= start), default=0)
    expected = bases[first] if bases else start
    for base in bases[first:]:
        file, position = files.file(log_name(base)), 0
        if base != expected:
            raise CorruptDataError(
                file=str(file), offset=base, problem=f"the metadata log has nothing from offset {expected} to {base}"
            )
        try:
            for batch in batches(file):
                header = batch.header
                if header.base_offset != expected:
                    problem = f"base offset {header.base_offset}, but the previous batch ends at {expected}"
                    raise CorruptBatchError(
                        file=str(file), position=batch.position, offset=header.base_offset, problem=problem
                    )
                expected = header.next_offset
                if expected >= start:
                    yield batch, file
                position = batch.position + header.size_bytes
        except CorruptBatchError as problem:
            if not tolerate_torn_end or base != bases[-1] or not _is_torn(file, position):
                raise
            notes.append(Note.of(RemarkCode.TORN_METADATA_LOG, log=file.name, position=position))


def _is_torn(file: LogFile, position: int) -> bool:
    """Return whether only a partial batch or zeros follow `position`, as an interrupted write leaves them."""
    with file.open() as opened:
        left = opened.size_bytes - position
        prefix = opened.read(LOG_OVERHEAD_BYTES, position)
        if any(prefix) or len(prefix) < LOG_OVERHEAD_BYTES:
            return int.from_bytes(prefix[8:], "big") + LOG_OVERHEAD_BYTES > left
        while window := opened.read(WINDOW_BYTES, position):
            if any(window):
                return False
            position += len(window)
    return True


def _checked(batch: Batch, file: LogFile) -> Iterator[tuple[Record, int | None]]:
    """Yield each record of a batch, with its type if it is a control record.

    Raises CorruptBatchError; UnsupportedError for a control record of an unknown type, which can decide about others.
    Rule: `ControlRecord.of`.
    """
    verify_crc(batch, file=str(file))
    for record in read_records(batch, file=str(file)):
        kind = None
        if batch.header.is_control:
            kind = control_type(record.key, file=str(file), position=batch.position, offset=record.offset)
            if kind not in QUORUM_TYPES:
                problem = f"control record type {kind} is unknown"
                raise unknown_record(file=str(file), position=batch.position, offset=record.offset, problem=problem)
        yield record, kind


def _decode(state: _State, record: Record, batch: Batch, file: LogFile) -> MetadataRecord | None:
    """Return the metadata record that a record holds, None for one that is not used. Counts what is unknown.

    Raises CorruptDataError, UnsupportedError.
    """
    content = read_record(record.value, key=record.key, file=str(file), position=batch.position, offset=record.offset)
    if isinstance(content, UnknownRecord):
        state.pass_over(content, record.offset)
        return None
    return content


def _apply(state: _State, decoded: MetadataRecord | None, record: Record, batch: Batch, file: LogFile) -> None:
    """Apply a decoded record, if any. Raises CorruptBatchError for a bad one."""
    if decoded is not None:
        try:
            state.apply(decoded)
        except ValueError as problem:
            raise _corrupt(file, batch, record, str(problem)) from None


def _corrupt(file: LogFile, batch: Batch, record: Record, problem: str) -> CorruptBatchError:
    return CorruptBatchError(file=str(file), position=batch.position, offset=record.offset, problem=problem)


def read_meta_properties(log_dir: Path) -> MetaProperties | None:
    """Return the log directory's `meta.properties`, or None without that file. Raises CorruptCheckpointError."""
    file = files_in(log_dir).file(META_PROPERTIES)
    return parse_meta_properties(file.read(), file=str(file)) if file.exists() else None


def read_topic_id(directory: Path) -> str | None:
    """Return the topic id in `partition.metadata`, or None without that file. Raises CorruptCheckpointError."""
    file = files_in(directory).file(PARTITION_METADATA)
    return parse_partition_metadata(file.read(), file=str(file)).topic_id if file.exists() else None


def dynamic_config(metadata: ClusterMetadata, *, node_id: int | None) -> DynamicConfig:
    """Return the settings of a broker; with `node_id` None those of single brokers are left out."""
    layers = [(Source.CLUSTER_DEFAULT, metadata.cluster_defaults)]
    if node_id is not None:
        layers.append((Source.BROKER_OVERRIDE, metadata.broker_configs.get(node_id, {})))
    return DynamicConfig(origin=ORIGIN, layers=tuple(layers))


def why_stray(
    metadata: ClusterMetadata, topic_id: str | None, partition: TopicPartition, *, node_id: int | None
) -> str | None:
    """Return why a broker moves a replica aside as stray when it starts; None if it keeps it.

    A replica is known by its `topic_id` in `partition.metadata`, not by its name. With `node_id` None the broker is
    unknown. Rule: `BrokerMetadataPublisher.initializeManagers`, `LogManager.isStrayReplica`.
    """
    if topic_id is None:
        return f"no topic id: {PARTITION_METADATA} is missing"
    topic = metadata.topics_by_id.get(topic_id)
    if topic is None:
        return "the topic is not in the cluster metadata"
    if partition.partition not in topic.partitions:
        return f"the cluster metadata has the topic, but no partition {partition.partition} of it"
    replicas = topic.partitions[partition.partition]
    if node_id is not None and node_id not in replicas:
        brokers = ", ".join(map(str, replicas))
        return f"the cluster metadata has the partition on {brokers}, not on this broker, {node_id}"
    return None


def check_topic_id(directory: Path, partition: TopicPartition, known_id: str, *, where: str) -> str | None:
    """Return a directory's topic id, None without one. It must be `known_id`, the id that `where` has.

    Raises StaleReplicaError for another id, CorruptCheckpointError for a malformed `partition.metadata`.
    """
    directory_id = read_topic_id(directory)
    if directory_id is not None and directory_id != known_id:
        raise StaleReplicaError(
            path=directory,
            problem=f"a stale replica: partition.metadata has the topic id {directory_id}, but {where} has {known_id} "
            f"for {partition.topic}. The topic was deleted and created again and the directory is of the deleted one, "
            "or the file is wrong",
            hint="A broker that starts moves such a directory aside, and makes an empty one. To clean it, copy it out "
            "of the log directory.",
        )
    return directory_id
