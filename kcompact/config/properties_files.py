"""Properties files of Kafka's programs, and the variables in their values.

A variable such as `${env:PASSWORD}` is resolved by one of `config.providers`. Rule: KIP-297, KIP-421.

    config.providers=env
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.key.password=${env:KEY_PASSWORD}

The three providers of Kafka are supported: environment variables, properties files, directories with a file for each
key. A variable without a value, or of a provider that is not named, stays as it is, as in Kafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kcompact.bucket.path import local_path
from kcompact.errors import ConfigError, CorruptCheckpointError
from kcompact.format.properties import parse_java_properties, parse_properties
from kcompact.log.files import read_file

CONFIG_PROVIDERS = "config.providers"
VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
"""Provider, path or None, key. Rule: ConfigTransformer.DEFAULT_PATTERN."""

_PACKAGE = "org.apache.kafka.common.config.provider."
_ENVIRONMENT, _FILE, _DIRECTORY = (f"{_PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory"))
_PARAMETERS = {_ENVIRONMENT: "allowlist.pattern", _FILE: "allowed.paths", _DIRECTORY: "allowed.paths"}
"""The only parameter of each provider."""


def read_properties(file: str | os.PathLike[str]) -> dict[str, str]:
    """Return the properties in a file.

    Raises ConfigError for a malformed file and for a path that is not local, RefusedError, StorageError.

    kcompact follows no links to files of a log, but a configuration file may be a link.
    """
    path = local_path(file)
    try:
        return parse_properties(read_file(path.resolve()), file=str(path))
    except CorruptCheckpointError as problem:
        raise ConfigError(path=path, problem=problem.problem) from None


# Variables


def resolved(properties: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Return the properties with variables replaced. `where` names the file of the properties in errors.

    Raises ConfigError for a provider that is not one of Kafka's and for a file that is not readable, StorageError.
    """
    classes = {
        name: properties.get(f"{CONFIG_PROVIDERS}.{name}.class", "").strip()
        for name in _names(properties.get(CONFIG_PROVIDERS, ""))
    }
    for name, kind in classes.items():
        if kind not in _PARAMETERS:
            raise ConfigError(
                path=where,
                problem=f"{CONFIG_PROVIDERS}.{name}.class is '{kind}', which kcompact does not support"
                if kind
                else f"{CONFIG_PROVIDERS}.{name}.class is missing",
                hint="Supported are EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider of "
                f"{_PACKAGE[:-1]}. Or write the values themselves into a file that only you can read.",
            )

    def replacement(variable: re.Match[str]) -> str:
        provider, path, key = variable.groups()
        if provider not in classes:
            return variable[0]
        kind = classes[provider]
        allowed = properties.get(f"{CONFIG_PROVIDERS}.{provider}.param.{_PARAMETERS[kind]}")
        value = _lookup(kind, path or "", key, allowed, where=where)
        return variable[0] if value is None else value

    return {name: VARIABLE.sub(replacement, value) for name, value in properties.items()}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _lookup(kind: str, path: str, key: str, allowed: str | None, *, where: str) -> str | None:
    """Return the value of a key, or None. Rules: EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider."""
    if kind == _ENVIRONMENT:
        if path:
            raise ConfigError(path=where, problem=f"${{...:{path}:{key}}}: an environment variable has no path")
        try:
            is_allowed = re.fullmatch(allowed or ".*", key)
        except re.error as problem:
            raise ConfigError(path=where, problem=f"allowlist.pattern: {problem}") from None
        return os.environ.get(key) if is_allowed else None
    if not path or not _is_allowed(Path(path), allowed):
        return None
    if kind == _DIRECTORY:
        file = Path(path) / key
        if not key or Path(key).name != key or not file.is_file():
            return None
        return _read(file, where=where).decode("utf-8", "surrogateescape")
    try:
        return parse_java_properties(_read(Path(path), where=where), file=path).get(key)
    except CorruptCheckpointError as problem:
        raise ConfigError(path=path, problem=problem.problem) from None


def _is_allowed(path: Path, allowed: str | None) -> bool:
    """Return whether a path is below one of the allowed ones. Rule: AllowedPaths.parseUntrustedPath."""
    if allowed is None:
        return True
    normal = Path(os.path.normpath(path.absolute()))
    return any(normal.is_relative_to(os.path.normpath(each)) for each in _names(allowed))


def _read(file: Path, *, where: str) -> bytes:
    if not file.exists():
        raise ConfigError(path=where, problem=f"names {file}, which does not exist")
    return read_file(file.resolve())
