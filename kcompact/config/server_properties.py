"""The `server.properties` of a broker: read from a file that is given, or searched where brokers keep it.

Of its settings only those that kcompact uses are kept: no password is. The places of the search, in this order:

    the file that a running broker was started with, with its `--override` options
    `KAFKA_...` in the environment, as in a container of the same image
    beside the log directory and above it; `$KAFKA_HOME`; where archives, packages and images have it

No file system is walked: each place is a name that is looked up. A file counts only if its `log.dirs` names the log
directory, its `node.id` is that of `meta.properties`, and only root, this user and the owner of the log directory can
have written it. If several files count and differ, none is used. The search never raises an error: a file that may be
the broker's and is not used becomes one of the `doubts`.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from kcompact.config.broker_config import (
    UNKNOWN_BROKER,
    ZOOKEEPER_CONNECT,
    BrokerConfig,
    check_broker_properties,
    is_of_broker,
)
from kcompact.config.layers import merged_config, with_refusals
from kcompact.config.properties_files import CONFIG_PROVIDERS, read_properties
from kcompact.config.settings import BROKER_NAMES, CLEANER_PREFIXES, FIELD_NAMES, NO_OVERRIDES
from kcompact.errors import ConfigError, CorruptCheckpointError, KcompactError
from kcompact.format.properties import MAX_SMALL_FILE_BYTES, parse_properties
from kcompact.host.other_processes import Process, processes_with
from kcompact.log.files import open_regular
from kcompact.values import dataclass

# Reading

_ABOUT_THE_BROKER = frozenset(
    {
        *("process.roles", ZOOKEEPER_CONNECT, "node.id", "broker.id", CONFIG_PROVIDERS),
        *("log.dirs", "log.dir", "metadata.log.dir"),
    }
)


def used_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that kcompact uses, and those that look like settings of the cleaner."""
    return {
        name: value
        for name, value in properties.items()
        if name in BROKER_NAMES or name in _ABOUT_THE_BROKER or name.startswith(CLEANER_PREFIXES)
    }


def read_broker_config(file: str | os.PathLike[str], *, log_dirs_moved: bool = False) -> BrokerConfig:
    """Return the static settings in a broker's `server.properties`; `log_dirs_moved` as in `BrokerConfig`.

    Raises ConfigError for a file that is not a broker's or that is malformed, RefusedError, StorageError.
    """
    path, properties = Path(file), read_properties(file)
    check_broker_properties(properties, file=path)
    return BrokerConfig(
        properties=used_properties(properties), origin=str(path.absolute()), log_dirs_moved=log_dirs_moved
    )


# Searching

SWITCH = "KCOMPACT_BROKER_SEARCH"
"""The environment variable: `auto` or `off`."""

ENVIRONMENT = "the environment (KAFKA_...)"

_MAIN_CLASSES = ("kafka.Kafka", "io.confluent.support.metrics.SupportedKafka")
"""The main classes of a broker; the program of the native image has the name of the first one."""
_NAMES = (
    "server.properties",
    "broker.properties",
    "kafka.properties",
    "kraft/server.properties",
    "kraft/broker.properties",
)
_FOLDERS = ("etc/kafka", "etc/kafka/conf", "opt/bitnami/kafka/config")
_INSTALLED_IN = ("opt", "usr/local")
"""Where archives are unpacked, in a directory `kafka*`."""
_MOUNTED = Path("/mnt/shared/config/server.properties")
"""The file that the image apache/kafka merges with the environment. Rule: `KafkaDockerWrapper.prepareServerConfigs`."""
_FILES = (
    "mnt/shared/config/server.properties",
    "etc/kafka/docker/server.properties",
    # Strimzi: what the operator has written, and the copy that the broker is started with.
    "opt/kafka/custom-config/server.config",
    "tmp/strimzi.properties",
)


def is_search_off() -> bool:
    """Return whether the environment turns the search off. Raises ConfigError for a value other than auto and off."""
    value = os.environ.get(SWITCH, "auto")
    if value not in ("auto", "off"):
        raise ConfigError(path=SWITCH, problem=f"'{value}' is neither auto nor off")
    return value == "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A file that may be the broker's. `path` is where it is opened, `origin` its name for the user."""

    path: Path
    origin: str
    added: Mapping[str, str] = field(default_factory=dict)
    """Settings that are stronger than those of the file."""
    process: int | None = None
    root: Path = Path("/")
    working_directory: Path | None = None


class _NotUsedError(Exception):
    """A file that may be the broker's is not used; the message says why."""


class BrokerSearch:
    """Finds the static settings of the brokers of log directories."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._is_off = is_search_off()

    def of(self, log_dir: Path, *, node_id: int | None) -> BrokerConfig:
        """Return what is known of the broker of a log directory whose `meta.properties` has this node id, None if none.

        `BrokerConfig.refused` has the values that a broker refuses.
        """
        if self._is_off:
            return UNKNOWN_BROKER
        try:
            status = log_dir.stat()
        except OSError:
            return UNKNOWN_BROKER
        judge = _Judge(log_dir, node_id, status)
        running = [judge.judged(each) for each in self._of_processes(judge.trusted_users)]
        configs = [each for each in running if each is not None]
        if not configs:
            configs = [config for each in self._of_environment() if (config := judge.named(each)) is not None]
            configs += [config for each in self._files(log_dir) if (config := judge.judged(each)) is not None]
        return judge.agreed(configs)

    # Candidates

    @cached_property
    def _processes(self) -> list[Process]:
        return list(processes_with(*_MAIN_CLASSES))

    def _of_processes(self, users: Collection[int]) -> Iterator[_Candidate]:
        """Yield the files that brokers of these users were started with."""
        for process in self._processes:
            named = _started_with(process.arguments) if process.user_id in users else None
            if named is None:
                continue
            file, overrides = named
            root, directory = process.root or Path("/"), process.working_directory
            seen_from = root if file.startswith("/") else directory
            if seen_from is not None:
                path = seen_from / file.lstrip("/")
                yield _Candidate(
                    path=path,
                    origin=file if file.startswith("/") else os.path.realpath(path),
                    added=overrides,
                    process=process.pid,
                    root=root,
                    working_directory=directory,
                )

    @cached_property
    def _environment_properties(self) -> dict[str, str]:
        """The settings in the environment. Rule: `KafkaDockerWrapper.getServerConfigsFromEnv`; Bitnami adds CFG_."""
        named = {
            name.removeprefix("KAFKA_").removeprefix("CFG_").lower().replace("_", "."): value
            for name, value in self._environment.items()
            if name.startswith("KAFKA_")
        }
        return used_properties(named)

    def _of_environment(self) -> Iterator[BrokerConfig]:
        """Yield the settings of the environment if a broker of the image is started with nothing else."""
        properties = self._environment_properties
        if {"log.dirs", "log.dir"} & properties.keys() and not os.path.exists(_MOUNTED):  # noqa: PTH110 - never raises
            yield BrokerConfig(properties=properties, origin=ENVIRONMENT, is_found=True)

    def _files(self, log_dir: Path) -> Iterator[_Candidate]:
        """Yield the places above a log directory, each time as if that directory were the root of a mounted disk."""
        places: dict[Path, None] = {}
        if home := self._environment.get("KAFKA_HOME"):
            places |= dict.fromkeys(_named_in(Path(home, "config")))
        for above in log_dir.resolve().parents:
            places |= dict.fromkeys((*_named_in(above), *_named_in(above / "config")))
            places |= dict.fromkeys(above / name for name in _FILES)
            for folder in (*_FOLDERS, *_installed(above)):
                places |= dict.fromkeys(_named_in(above / folder))
        for path in places:
            added = self._environment_properties if path == _MOUNTED else {}
            yield _Candidate(path=path, origin=str(path), added=added)


def _named_in(folder: Path) -> list[Path]:
    return [folder / name for name in _NAMES]


def _installed(above: Path) -> Iterator[str]:
    """Yield the configuration folders of archives that are unpacked in the usual directories."""
    for directory in _INSTALLED_IN:
        with suppress(OSError):
            names = sorted(entry.name for entry in os.scandir(above / directory))
            yield from (f"{directory}/{name}/config" for name in fnmatch.filter(names, "kafka*"))


def _started_with(arguments: Sequence[str]) -> tuple[str, dict[str, str]] | None:
    """Return the file of a broker's command line and its overrides; None if it is no broker's. Rule: `kafka.Kafka`."""
    start = _main_class(arguments)
    if start is None:
        return None
    words = list(arguments[start + 1 :])
    if words[:1] == ["start"]:  # The native image: start --config FILE
        words = words[words.index("--config") + 1 :] if "--config" in words else []
    if not words or words[0].startswith("-"):
        return None
    overrides = {}
    for word, following in pairwise([*words, ""]):
        if word == "--override" or word.startswith("--override="):
            given = following if word == "--override" else word.removeprefix("--override=")
            name, _, value = given.partition("=")
            overrides[name.strip()] = value
    return words[0], overrides


def runs_broker(pid: int) -> bool:
    """Return whether a process runs a broker, as its command line shows."""
    return any(each.pid == pid and _main_class(each.arguments) is not None for each in processes_with(*_MAIN_CLASSES))


def _main_class(arguments: Sequence[str]) -> int | None:
    """Return the position of a broker's main class, or of its native image, in a command line."""
    native = f"/{_MAIN_CLASSES[0]}"
    return next((n for n, word in enumerate(arguments) if word in _MAIN_CLASSES or word.endswith(native)), None)


# Which candidate counts


class _Judge:
    """Decides which candidates have the settings of the broker of one log directory, and remembers the doubts."""

    def __init__(self, log_dir: Path, node_id: int | None, status: os.stat_result) -> None:
        self._log_dir = log_dir
        self._node_id = node_id
        self._doubts: dict[str, None] = {}
        self._seen: set[tuple[int, int]] = set()
        # Nothing but their log directories counts, where moves are looked for: that makes kcompact more careful.
        self._doubted: list[BrokerConfig] = []
        self.trusted_users = {0, os.geteuid(), status.st_uid}
        self._trusted_groups = {0, os.getegid(), status.st_gid}

    def judged(self, candidate: _Candidate) -> BrokerConfig | None:
        """Return the settings of a candidate, None if it is not the broker's, or if there is a doubt."""
        try:
            read = self._read(candidate.path)
            if read is None:
                return None
            status, properties = read
            config = BrokerConfig(
                properties=used_properties({**properties, **candidate.added}),
                origin=candidate.origin,
                is_found=True,
                process=candidate.process,
                root=candidate.root,
                working_directory=candidate.working_directory,
            )
            config_or_none = self._of_this_broker(config)
            if config_or_none is not None and (why := self._why_not_trusted(status)):
                self._doubted.append(config_or_none)
                raise _NotUsedError(why)
        except _NotUsedError as problem:
            self._doubts[f"{candidate.origin} {problem}"] = None
            return None
        return config_or_none

    def named(self, config: BrokerConfig) -> BrokerConfig | None:
        """Return settings that are in no file if they are those of the broker."""
        try:
            return self._of_this_broker(config)
        except _NotUsedError as problem:
            self._doubts[f"{config.origin} {problem}"] = None
            return None

    def agreed(self, configs: Sequence[BrokerConfig]) -> BrokerConfig:
        """Return the settings if all that were found agree, else that nothing is known, and why."""
        for other in configs[1:]:
            names = differences(configs[0], other)
            if names:
                both = f"{configs[0].origin} and {other.origin} both name it, and differ in {', '.join(names)}"
                unknown = replace(UNKNOWN_BROKER, doubts=(*self._doubts, both))
                return unknown.with_directories_of([*configs, *self._doubted])
        if not configs:
            return replace(UNKNOWN_BROKER, doubts=tuple(self._doubts)).with_directories_of(self._doubted)
        return configs[0].with_directories_of([*configs[1:], *self._doubted])

    def _read(self, path: Path) -> tuple[os.stat_result, Mapping[str, str]] | None:
        """Return the status and the settings of a file; None without a file, and for one that was read before."""
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise _NotUsedError("is not a regular file")
            with open_regular(path, follows_links=True) as opened:
                status = opened.status
                if (status.st_dev, status.st_ino) in self._seen:
                    return None
                self._seen.add((status.st_dev, status.st_ino))
                data = opened.read(MAX_SMALL_FILE_BYTES + 1, 0)
            return status, parse_properties(data, file=str(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            closed = next(each for each in (*reversed(path.parents), path) if not os.access(each, os.X_OK))
            self._doubts[f"{closed} cannot be searched: Permission denied"] = None
            return None
        except OSError as problem:
            raise _NotUsedError(f"cannot be read: {problem.strerror}") from None
        except CorruptCheckpointError:  # Its message has a line of the file, which may be a password.
            raise _NotUsedError("is too large or malformed") from None
        except KcompactError as problem:
            raise _NotUsedError(f"cannot be read: {problem.word or 'it was replaced'}") from None

    def _of_this_broker(self, config: BrokerConfig) -> BrokerConfig | None:
        """Return settings with the root in which they name the log directory; None if they do not."""
        if not is_of_broker(config.properties):
            return None
        named = config.naming(self._log_dir)
        if named is None:
            if self._may_name(config):
                raise _NotUsedError(f"may name it, but {config.why_not_naming(self._log_dir)}")
            return None
        if None not in (self._node_id, config.node_id) and self._node_id != config.node_id:
            self._doubted.append(named)
            raise _NotUsedError(
                f"names it, but has the node id {config.node_id}, and meta.properties has {self._node_id}"
            )
        return with_refusals(named)

    def _may_name(self, config: BrokerConfig) -> bool:
        """Return whether settings that do not name the log directory name one that cannot be located."""
        if {"log.dirs", "log.dir"} & config.unresolved:
            return True
        unlocated = [Path(path) for path in config.log_dirs if config.located(path) is None]
        return self._log_dir.resolve().name in {path.name for path in unlocated}

    def _why_not_trusted(self, status: os.stat_result) -> str:
        """Return that another unprivileged user can have written a file; an empty text if none can."""
        if status.st_uid not in self.trusted_users:
            return (
                f"names it, but belongs to {_user_name(status.st_uid)}, who is neither root, nor this user, nor the "
                "owner of the log directory"
            )
        writable_by_group = status.st_mode & stat.S_IWGRP and status.st_gid not in self._trusted_groups
        return "names it, but other users can write to it" if status.st_mode & stat.S_IWOTH or writable_by_group else ""


def differences(one: BrokerConfig, other: BrokerConfig) -> list[str]:
    """Return the names of the settings in which the files of a broker differ, as far as kcompact uses them."""
    # What is unknown cannot differ, so it is a topic that is known to override nothing.
    first, second = (merged_config("every topic", overrides=(), own=NO_OVERRIDES, broker=each) for each in (one, other))
    differing_names = [
        name
        for name in FIELD_NAMES.values()
        if first.value_of(name) != second.value_of(name) or (name in first.unresolved) != (name in second.unresolved)
    ]
    same = one.metadata_log_dir == other.metadata_log_dir
    return differing_names if same else [*differing_names, "metadata.log.dir"]


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"the user {user}"
