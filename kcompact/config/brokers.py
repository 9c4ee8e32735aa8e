"""The brokers of some log directories: which directories belong to one broker, and what its files tell.

    d1/   meta.properties: node 1 of cluster C     orders-0   __cluster_metadata-0
    d2/   meta.properties: node 1 of cluster C     orders-1   orders-0.<id>-future

A broker has one metadata log, one `server.properties` and one release, whichever of its directories a user names. Its
directories are those with the same cluster and node in `meta.properties`: the ones that are named, and the ones that
its `log.dirs` and `metadata.log.dir` name. Without a cluster and a node a directory is alone.

A directory with the id of another one is a copy of it, and nothing proves which of the others were copied with it. Then
only those in the file of the broker belong together, and the moves are those in all of them: they only pause more.

Rules: KIP-112, KIP-113, KIP-858; `MetaPropertiesEnsemble`, `KafkaConfig.metadataLogDir`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from kcompact.bucket.path import is_in_bucket
from kcompact.config.broker_config import UNKNOWN_BROKER, BrokerConfig, is_same_directory
from kcompact.config.metadata_log import (
    METADATA_DIRECTORY,
    ClusterMetadata,
    read_cluster_metadata,
    read_meta_properties,
)
from kcompact.config.server_properties import BrokerSearch, differences
from kcompact.errors import CorruptBatchError, CorruptDataError, KcompactError, storage_error
from kcompact.format.names import DirectoryKind, TopicPartition, parse_directory
from kcompact.format.properties import MetaProperties
from kcompact.log.directory import is_log_dir, is_one_partition, partition_directories
from kcompact.log.files import files_in
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirOfBroker:
    """A log directory and its `meta.properties`, or the problem with that file."""

    path: Path
    properties: MetaProperties | None = None
    problem: KcompactError | None = None

    @property
    def owner(self) -> tuple[str, int] | None:
        """The cluster and the node that it belongs to; None if one of them is unknown."""
        properties = self.properties
        if properties is None or properties.cluster_id is None or properties.node_id is None:
            return None
        return properties.cluster_id, properties.node_id

    @property
    def directory_id(self) -> str | None:
        """The id of the directory; None if it has none."""
        return self.properties.directory_id if self.properties else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, as far as its log directories and its `server.properties` tell.

    A `config` that was given may have values that a broker refuses. With a `problem` its metadata log cannot be read.
    `moves` has the `-future` directories of a partition: replicas that are on their way to another log directory.
    """

    log_dirs: tuple[LogDirOfBroker, ...]
    config: BrokerConfig
    metadata: ClusterMetadata | None = None
    problem: KcompactError | None = None
    moves: Mapping[TopicPartition, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def properties(self) -> MetaProperties | None:
        """The `meta.properties` of the first log directory that has a readable one."""
        return next((each.properties for each in self.log_dirs if each.properties is not None), None)

    @property
    def node_id(self) -> int | None:
        """The id of the broker, None if neither `meta.properties` nor `server.properties` has it."""
        stored = self.properties.node_id if self.properties else None
        return self.config.node_id if stored is None else stored

    @property
    def why_no_metadata(self) -> str:
        """Why the settings of topics are in no file of the broker, in words."""
        properties = self.properties
        if properties is not None and properties.is_of_zookeeper and properties.cluster_id is not None:
            return "the broker uses ZooKeeper, which has them"
        named = self.config.metadata_log_dir if self.config.names_log_dirs else None
        if named is not None and named in self.config.missing:
            return f"the metadata log of the broker is in {named}, which was not found"
        if properties is not None:
            return "the metadata log of the broker was not found"
        return "there is no metadata log beside the data"


def brokers_of(
    log_dirs: Iterable[Path],
    given: BrokerConfig | None,
    *,
    further_log_dirs: Iterable[Path] = (),
    replicas: Iterable[Path] = (),
) -> dict[Path, Broker]:
    """Return the broker of each log directory. Its settings are `given`, else those in the file that is found.

    The paths `further_log_dirs` count too. A directory there with nothing but a `-future` directory in it is a log
    directory. `replicas` count for moves only: most are of other brokers.
    Raises ConfigError if `given` is that of another broker.
    """
    of_partitions = dict.fromkeys(log_dirs)
    paths = dict.fromkeys((*of_partitions, *filter(_is_listed, map(_log_dir_of, further_log_dirs))))
    named = {path: _read_log_dir(path) for path in paths}
    by_owner: dict[object, list[LogDirOfBroker]] = defaultdict(list)
    for path, log_dir in named.items():
        by_owner[log_dir.owner or path].append(log_dir)
    # Few of many directories say something about others.
    beside_them = [_read_log_dir(path) for path in filter(_is_listed, map(_log_dir_of, replicas)) if path not in named]
    moving = [each for each in (*named.values(), *beside_them) if _is_closed(each.path) or future_replicas([each.path])]
    search, brokers = BrokerSearch(), dict[Path, Broker]()
    for log_dirs_of_owner in by_owner.values():
        ids = [each.directory_id for each in log_dirs_of_owner if each.directory_id is not None]
        groups = [log_dirs_of_owner] if len(ids) == len(set(ids)) else [[each] for each in log_dirs_of_owner]
        for group in groups:
            # One whose owner is not known may be of this broker.
            owner = group[0].owner
            others = [each for each in moving if owner is None or each.owner in (None, owner)]
            broker = _broker(group, log_dirs_of_owner, others, given, search)
            brokers |= {each.path: broker for each in group}
    return brokers


def _log_dir_of(path: Path) -> Path:
    """Return a named path in the form of those of partitions; of a partition's directory the one around it."""
    resolved = path if is_in_bucket(path) else Path(os.path.realpath(path))
    return resolved.parent if is_one_partition(resolved) else resolved


def _is_listed(path: Path) -> bool:
    """Return whether a path is a log directory, or holds a `-future` directory, or may not be listed."""
    if _is_closed(path):
        return os.path.isdir(path)  # noqa: PTH112 - never raises
    with suppress(KcompactError, OSError):  # Whoever reads its partitions reports it.
        return is_log_dir(path) or bool(future_replicas([path]))
    return False


def _is_closed(path: Path) -> bool:
    """Return whether this user may not list a directory, so that the moves in it are not known."""
    return not os.access(path, os.R_OK | os.X_OK)


def _read_log_dir(path: Path) -> LogDirOfBroker:
    try:
        return LogDirOfBroker(path=path, properties=read_meta_properties(path))
    except KcompactError as problem:
        return LogDirOfBroker(path=path, problem=_with_hint(problem))
    except OSError as problem:
        return LogDirOfBroker(path=path, problem=storage_error(Path(problem.filename or path), problem))


def _belongs_to(log_dir: LogDirOfBroker, group: Sequence[LogDirOfBroker]) -> bool:
    """Return whether a log directory is another one of the broker of a group, and not a copy of one of them."""
    if log_dir.owner is None or log_dir.owner != group[0].owner:
        return False
    return log_dir.directory_id is None or all(each.directory_id != log_dir.directory_id for each in group)


def _broker(
    named: Sequence[LogDirOfBroker],
    copies: Sequence[LogDirOfBroker],
    others: Sequence[LogDirOfBroker],
    given: BrokerConfig | None,
    search: BrokerSearch,
) -> Broker:
    """Return the broker of some log directories. Raises ConfigError if `given` is that of another broker.

    `copies` have the same owner. `others` may be of this broker, and may have moves.
    """
    config = _config(named, given, search)
    added_log_dirs, missing = _other_log_dirs(named, config)
    log_dirs = (*named, *added_log_dirs)
    listed = dict.fromkeys(each.path for each in (*log_dirs, *copies, *others))
    unlisted = [str(path) for path in listed if _is_closed(path)]
    moves = future_replicas((*listed, *_located(config)))
    broker = Broker(log_dirs=log_dirs, config=config, moves=moves)
    problem = next((each.problem for each in named if each.problem is not None), None)
    try:
        metadata = None if problem is not None else _metadata(log_dirs, config)
        if metadata is None and problem is None and named[0].owner is not None:
            metadata = _metadata(copies, config)
    except KcompactError as error:
        metadata, problem = None, _with_hint(error)
    except OSError as error:
        metadata, problem = None, storage_error(Path(error.filename or named[0].path), error)
    if metadata is not None and broker.node_id is not None:
        missing += _not_found(metadata.log_dirs.get(broker.node_id, ()), log_dirs)[len(missing) :]
    config = replace(config, missing=(*missing, *unlisted))
    return replace(broker, config=config, metadata=metadata, problem=problem)


def _located(config: BrokerConfig) -> list[Path]:
    """Return where the paths in `log.dirs` of a broker's files lead, as far as that is known."""
    return [Path(os.path.realpath(path)) for path in (*config.located_log_dirs, *config.other_log_dirs)]


def _config(named: Sequence[LogDirOfBroker], given: BrokerConfig | None, search: BrokerSearch) -> BrokerConfig:
    """Return what is known of the static settings of a broker. Raises ConfigError as `BrokerConfig.require_naming`."""
    if given is not None:
        first, *_ = [given.require_naming(each.path) for each in named]
        return first
    configs = [search.of(each.path, node_id=each.properties.node_id if each.properties else None) for each in named]
    known = [each for each in configs if each.is_known]
    for other in known[1:]:
        if names := differences(known[0], other):
            why = f"{known[0].origin} and {other.origin} are of this broker, and differ in {', '.join(names)}"
            return replace(UNKNOWN_BROKER, doubts=(why,)).with_directories_of(configs)
    doubts = dict.fromkeys(doubt for each in configs for doubt in each.doubts)
    decided = known[0] if known else replace(UNKNOWN_BROKER, doubts=tuple(doubts))
    return decided.with_directories_of([each for each in configs if each is not decided])


def _other_log_dirs(named: Sequence[LogDirOfBroker], config: BrokerConfig) -> tuple[list[LogDirOfBroker], list[str]]:
    """Return the log directories of a broker that its `server.properties` adds, and the paths there that lack one."""
    added_log_dirs: list[LogDirOfBroker] = []
    missing = [f"{path} (of {file})" for path, file in config.other_log_dirs.items() if not path.is_dir()]
    if config.log_dirs_moved and (more := len(config.log_dirs) - len(named)) > 0:
        return added_log_dirs, [*missing, f"{more} more of its log.dirs"]
    if not config.names_log_dirs:
        return added_log_dirs, missing
    paths = dict.fromkeys((*config.log_dirs, *filter(None, [config.metadata_log_dir])))
    for path in paths:
        located = config.located(path)
        if located is None:
            missing.append(path)
            continue
        if any(is_same_directory(located, each.path) for each in (*named, *added_log_dirs)):
            continue
        other = _read_log_dir(Path(os.path.realpath(located)))
        if _belongs_to(other, [*named, *added_log_dirs]):
            added_log_dirs.append(other)
        elif named[0].owner is not None or not other.path.is_dir():
            missing.append(path)
    return added_log_dirs, missing


def _not_found(registered: Sequence[str], log_dirs: Sequence[LogDirOfBroker]) -> list[str]:
    """Return which of the registered log directories are none of these, in words. One without an id may be any."""
    ids = [each.directory_id for each in log_dirs]
    lacking = [each for each in registered if each not in ids]
    return [f"directory.id {each}" for each in lacking[ids.count(None) :]]


def _metadata(log_dirs: Sequence[LogDirOfBroker], config: BrokerConfig) -> ClusterMetadata | None:
    """Return the state of the broker's metadata log, None without one.

    It is in `metadata.log.dir`. Where that is unknown and several directories have one, the longest counts: a broker
    never shortens it. Raises as `read_cluster_metadata`.
    """
    having = [each.path for each in log_dirs if os.path.lexists(each.path / METADATA_DIRECTORY)]
    named = config.located(config.metadata_log_dir) if config.names_log_dirs and config.metadata_log_dir else None
    having = [each for each in having if named is not None and is_same_directory(named, each)] or having
    states = [state for path in having if (state := read_cluster_metadata(path)) is not None]
    return max(states, key=lambda state: state.end_offset, default=None)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Return the first path to each directory: a bind mount leads to one that another path has."""
    distinct_paths: list[Path] = []
    for path in dict.fromkeys(paths):
        if not any(is_same_directory(path, each) for each in distinct_paths):
            distinct_paths.append(path)
    return distinct_paths


def future_replicas(log_dirs: Iterable[Path]) -> dict[TopicPartition, tuple[Path, ...]]:
    """Return the `-future` directories of each partition: replicas on their way from another log directory.

    A log directory that cannot be listed has none: whoever reads its partitions reports it.
    Rule: `LocalLog.logFutureDirName`, KIP-113.
    """
    directories_by_partition: dict[TopicPartition, tuple[Path, ...]] = {}
    for log_dir in _distinct(log_dirs):
        with suppress(OSError):
            for directory in partition_directories(log_dir):
                parsed = parse_directory(directory.name)
                if parsed is not None and parsed.kind is DirectoryKind.FUTURE:
                    partition = parsed.topic_partition
                    directories_by_partition[partition] = (*directories_by_partition.get(partition, ()), directory)
    return directories_by_partition


def moves_of(partition: TopicPartition, log_dir: Path, config: BrokerConfig) -> list[Path]:
    """Return the `-future` directories of one partition, in its log directory and in those of its broker's file."""
    future_directories: dict[Path, None] = {}
    for path in _distinct((log_dir, *_located(config))):
        with suppress(OSError):
            names = [name for name in files_in(path).names() if name.startswith(f"{partition}.")]
            future_directories |= dict.fromkeys(
                path / name for name in sorted(names) if name.endswith(f"-{DirectoryKind.FUTURE}")
            )
    return list(future_directories)


def _with_hint(problem: KcompactError) -> KcompactError:
    """Return damage of `meta.properties` or of a metadata log with what can be done without it."""
    if not isinstance(problem, CorruptDataError):
        return problem
    hint = (
        "The settings of the topics are unknown. Read them from a running cluster with --bootstrap-server, or "
        "copy the partition directory elsewhere and pass its settings with --config."
    )
    return type(problem)(
        file=problem.file,
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
        hint=hint if isinstance(problem, CorruptBatchError) else problem.hint or hint,
    )
