"""The static settings of a broker, and whether they are those of the broker of a log directory.

A broker reads its static settings from one file, `server.properties`, when it starts. The cluster's metadata never has
them. The file of another broker must not decide, so the file has to name the log directory, in `log.dirs` or `log.dir`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Self

from kcompact.config.kafka_names import KAFKA_BROKER_NAMES
from kcompact.config.properties_files import CONFIG_PROVIDERS, VARIABLE
from kcompact.errors import ConfigError
from kcompact.format.java_values import read_integer, trimmed
from kcompact.format.text_lines import INT_MAX
from kcompact.readable import some_of
from kcompact.values import dataclass

DEFAULT_LOG_DIR = str(Path("/", "tmp", "kafka-logs"))
"""Where a broker without log.dirs and log.dir has its log directory. Rule: `ServerLogConfigs.LOG_DIR_DEFAULT`."""
ZOOKEEPER_CONNECT = "zookeeper.connect"
"""A setting that every broker before KRaft needs. Kafka 4 does not have it any more."""

_ANY_BROKER = "Pass the file with which the broker is started, such as /etc/kafka/server.properties"
_SINGLE_SETTINGS = "or single settings with --config."
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What is known of a broker's static settings.

    `properties` are names and values as in `server.properties`. `origin` is the file they were read from, or words for
    another origin; None if a program gives them. `is_found`: kcompact has looked for the file, and `process` is the
    running broker that was started with it. `log_dirs_moved`: the user says that the file is that of the broker,
    although it names other directories. `is_known` False: nothing was read, so Kafka's defaults are only assumed;
    `doubts` then say which files may be the broker's and were not used. `missing` are log directories that the broker
    has and that were not found: their paths, or their ids. `other_log_dirs` are the log directories in files of the
    broker that do not decide, because they are outdated, or not trusted, or contradict each other, with the names of
    these files: moves are looked for there, and they may be missing, but nothing else is taken from them. `refused` are
    the properties that keep a broker from starting, and why. Their settings are unknown; all others count. A file that
    was given has none, except in `doctor`: a wrong value in it is an error.

    The paths in `log.dirs` are those of the broker: `root` is the directory that is `/` there, `working_directory` the
    directory that relative paths begin with, None if unknown.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None
    is_known: bool = True
    is_found: bool = False
    process: int | None = None
    log_dirs_moved: bool = False
    root: Path = Path("/")
    working_directory: Path | None = None
    doubts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    other_log_dirs: Mapping[Path, str] = field(default_factory=dict)
    refused: Mapping[str, ConfigError] = field(default_factory=dict)

    @property
    def names_log_dirs(self) -> bool:
        """Whether the paths in `log.dirs` are known, and those of the broker's directories on this machine."""
        names = {"log.dirs", "log.dir"} & self.properties.keys()
        return bool(names) and not self.log_dirs_moved and not names & self.unresolved

    @property
    def unresolved(self) -> frozenset[str]:
        """The settings without a value: it is refused, or only the broker's configuration providers know it.

        Rule: `AbstractConfig`, KIP-297.
        """
        return frozenset(self.refused) | self.provided

    @property
    def provided(self) -> frozenset[str]:
        """The settings whose values only the broker's configuration providers know."""
        if CONFIG_PROVIDERS not in self.properties:
            return frozenset()
        return frozenset(name for name, value in self.properties.items() if VARIABLE.search(value))

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The paths of the log directories, as the broker has them. Rule: `AbstractKafkaConfig.logDirs`."""
        written = self.properties.get("log.dirs", self.properties.get("log.dir", DEFAULT_LOG_DIR))
        return tuple(path.strip() for path in written.split(",") if path.strip())

    @property
    def metadata_log_dir(self) -> str | None:
        """The path of the directory with the metadata log. Rule: `KafkaConfig.metadataLogDir`."""
        return self.properties.get("metadata.log.dir", "").strip() or next(iter(self.log_dirs), None)

    @property
    def node_id(self) -> int | None:
        """The id of the broker, None if the settings have none."""
        number = read_integer(trimmed(self.properties.get("node.id", self.properties.get("broker.id", ""))))
        return number if number is not None and 0 <= number <= INT_MAX else None

    def located(self, path: str) -> Path | None:
        """Return where a path of the broker leads on this machine; None if that is unknown, or if no path is so."""
        if "\0" in path:
            return None
        if path.startswith("/"):
            return self.root / path.lstrip("/")
        return None if self.working_directory is None else self.working_directory / path

    def with_directories_of(self, others: Iterable[Self]) -> Self:
        """Return these settings with the log directories that other files of the broker name, for `other_log_dirs`."""
        files_by_log_dir = {**self.other_log_dirs}
        for each in others:
            files_by_log_dir |= dict.fromkeys(each.located_log_dirs, str(each.origin)) | {**each.other_log_dirs}
        own = self.located_log_dirs
        return replace(self, other_log_dirs={path: file for path, file in files_by_log_dir.items() if path not in own})

    @property
    def located_log_dirs(self) -> list[Path]:
        """Where the paths in `log.dirs` lead on this machine, as far as that is known."""
        paths = [self.located(path) for path in self.log_dirs] if self.names_log_dirs else []
        return [path for path in paths if path is not None]

    def naming(self, log_dir: Path) -> Self | None:
        """Return the settings with the root in which they name a log directory; None if they do not name it.

        A path of `log.dirs` names the directory that it leads to. A file that lies on a mounted disk, together with the
        log directory, names it by its path on that disk.
        """
        for path in (*self.log_dirs, *filter(None, [self.metadata_log_dir])):
            located = self.located(path)
            if located is not None and is_same_directory(located, log_dir):
                return self
            mounted = self._root_on_disk(path, log_dir)
            if mounted is not None:
                return replace(self, root=mounted)
        return None

    def _root_on_disk(self, path: str, log_dir: Path) -> Path | None:
        """Return the directory below which both the file and, at `path`, the log directory lie; None without one."""
        if self.origin is None or not self.origin.startswith("/") or self.root != Path("/"):
            return None
        whole, end = os.path.realpath(log_dir), os.path.normpath(path)
        if not end.startswith("/") or not whole.endswith(end) or whole == end:
            return None
        root = Path(whole.removesuffix(end))
        return root if Path(os.path.realpath(self.origin)).is_relative_to(root) else None

    def require_naming(self, log_dir: Path) -> Self:
        """Return the settings if they are those of the log directory's broker, by their paths or by the user's word.

        Raises ConfigError for the file of another broker. What a program gives is not checked.
        """
        if self.origin is None or self.log_dirs_moved:
            return self
        named = self.naming(log_dir)
        if named is not None:
            return named
        raise ConfigError(
            path=self.origin,
            problem=self.why_not_naming(log_dir),
            hint="If the directory is a copy or another mount of a log directory of this broker, add "
            f"--log-dirs-moved. Else pass the file of its own broker, {_SINGLE_SETTINGS}",
        )

    def why_not_naming(self, log_dir: Path) -> str:
        """Return why the settings do not name a log directory, in words."""
        name = next((name for name in ("log.dirs", "log.dir") if name in self.properties), None)
        if name is None:
            return f"has no log.dirs, so its log directory is {DEFAULT_LOG_DIR}, and not {log_dir}"
        written = self.properties[name]
        if name in self.unresolved:
            return f"{name} is '{written}', which only the broker can resolve"
        relative = [path for path in self.log_dirs if self.located(path) is None]
        if relative:
            return f"{name} has '{relative[0]}', a path relative to the directory in which the broker was started"
        return f"{name} names {some_of(self.log_dirs, at_most=_MOST_NAMED) or 'nothing'}, and not {log_dir}"


UNKNOWN_BROKER = BrokerConfig(is_known=False)
"""Nothing is known of the broker's static settings."""


def is_same_directory(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same directory, also through links and bind mounts."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def is_of_broker(properties: Mapping[str, str]) -> bool:
    """Return whether properties are those of a broker: of KRaft with that role, or of one with ZooKeeper."""
    roles = [role.strip() for role in properties.get("process.roles", "").split(",")]
    return "broker" in roles or ("process.roles" not in properties and ZOOKEEPER_CONNECT in properties)


def check_broker_properties(properties: Mapping[str, str], *, file: Path | str) -> None:
    """Raise ConfigError if a file is not a broker's `server.properties`; the message says what it is."""
    if is_of_broker(properties):
        return
    hint = f"{_ANY_BROKER}, {_SINGLE_SETTINGS}"
    if "process.roles" in properties:
        roles = properties["process.roles"].strip()
        problem = f"process.roles is '{roles}': the file of a controller, which has no settings of a broker"
        if roles != "controller":
            problem = f"process.roles is '{roles}', and a broker needs the role broker"
    elif {"version", "cluster.id"} <= properties.keys():
        problem = "a meta.properties, which says whose log directory it is: it has no settings of a broker"
    elif not KAFKA_BROKER_NAMES & properties.keys():
        problem = "not one line sets a broker setting of Kafka"
    else:
        problem = "neither process.roles nor zookeeper.connect is set, so this is not the whole file of a broker"
    raise ConfigError(path=file, problem=problem, hint=hint)
