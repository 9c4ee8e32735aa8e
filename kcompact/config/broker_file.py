"""Reads a broker's `server.properties`. Of its settings only those that kcompact uses are kept: no password is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kcompact.config.broker_config import ZOOKEEPER_CONNECT, BrokerConfig, check_broker_properties
from kcompact.config.client.variables import CONFIG_PROVIDERS
from kcompact.config.settings import BROKER_NAMES, CLEANER_PREFIXES
from kcompact.errors import ConfigError, CorruptCheckpointError
from kcompact.format.properties import parse_java_properties
from kcompact.log.files import read_file

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


def parse_broker_file(data: bytes, *, file: str) -> dict[str, str]:
    """Return the properties in a broker's file. Raises CorruptCheckpointError.

    A broker takes its bytes for ISO 8859-1. Rule: `Utils.loadProps`, `java.util.Properties.load(InputStream)`.
    """
    return parse_java_properties(data.decode("iso-8859-1").encode(), file=file)


def read_broker_config(file: str | os.PathLike[str], *, log_dirs_moved: bool = False) -> BrokerConfig:
    """Return the static settings in a broker's `server.properties`; `log_dirs_moved` as in `BrokerConfig`.

    Raises ConfigError for a file that is not a broker's or that is malformed, RefusedError, StorageError.
    """
    path = Path(file)
    try:
        # kcompact follows no links to files of a log, but a configuration file may be a link.
        properties = parse_broker_file(read_file(path.resolve()), file=str(path))
    except CorruptCheckpointError as problem:
        raise ConfigError(path=path, problem=problem.problem) from None
    check_broker_properties(properties, file=path)
    return BrokerConfig(
        properties=used_properties(properties), origin=str(path.absolute()), log_dirs_moved=log_dirs_moved
    )
