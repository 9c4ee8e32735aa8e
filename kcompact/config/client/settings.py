"""The settings of the client of a running cluster, from properties under Kafka's names or from their file."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from kcompact.config.client.credentials import SASL_SECRETS, Credentials, holds_password, parse_credentials
from kcompact.config.client.tls import SSL_SECRETS, ssl_context
from kcompact.config.kafka_names import KAFKA_CLIENT_NAMES
from kcompact.config.properties_files import CONFIG_PROVIDERS, VARIABLE, read_properties, resolved
from kcompact.errors import ConfigError, storage_errors
from kcompact.format.java_values import read_integer, trimmed
from kcompact.format.text_lines import INT_MAX
from kcompact.readable import closest, shell_word, shown
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SECRETS = SSL_SECRETS | SASL_SECRETS
_KEYS = {"ssl.keystore.location", "ssl.keystore.key"}
_LOOKUP = "client.dns.lookup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client reaches a cluster. Without any setting: no encryption, no authentication.

    `request_timeout_ms` is the limit for a request, `connection_timeout_ms` that for the connection and for each answer
    of the first check. `notes` are for the user: settings without effect, a password that others can read.
    """

    security_protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    has_certificate: bool = False
    """Whether `tls` has a certificate of the client."""
    credentials: Credentials | None = None
    client_id: str = "kcompact"
    request_timeout_ms: int = 8_000
    connection_timeout_ms: int = 3_000
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], *, where: str = "client settings") -> ClientConfig:
        """Return the settings of a client. `where` names their source in errors.

        The files of keys and certificates are read. An unknown name gets a note, as Kafka's tools give a warning.
        Raises ConfigError for a value that Kafka would not accept and for a setting that kcompact cannot follow,
        StorageError, RefusedError.
        """
        settings = {name: trimmed(value) for name, value in resolved(properties, where=where).items()}
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            problem = f"security.protocol is '{protocol}', not one of {', '.join(PROTOCOLS)}"
            raise ConfigError(path=where, problem=problem)
        if settings.get(_LOOKUP, "use_all_dns_ips") != "use_all_dns_ips":
            raise ConfigError(
                path=where, problem=f"{_LOOKUP} is '{settings[_LOOKUP]}', which kcompact does not support"
            )
        return cls(
            security_protocol=protocol,
            tls=ssl_context(settings, where=where) if protocol.endswith("SSL") else None,
            has_certificate=bool(_KEYS & settings.keys()),
            credentials=parse_credentials(settings, where=where) if protocol.startswith("SASL") else None,
            client_id=settings.get("client.id") or cls().client_id,
            request_timeout_ms=_milliseconds(settings, "request.timeout.ms", cls().request_timeout_ms, where),
            connection_timeout_ms=_milliseconds(
                settings, "socket.connection.setup.timeout.ms", cls().connection_timeout_ms, where
            ),
            notes=tuple(_unknown_names(properties, where)),
        )

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> ClientConfig:
        """Return the settings in a properties file, such as Kafka's tools take as `--command-config`.

        Raises as `of`.
        """
        path, properties = Path(file), read_properties(file)
        client = cls.of(properties, where=str(path))
        notes = (*_permission_notes(path, properties), *client.notes)
        return cls(**{name: getattr(client, name) for name in cls.__dataclass_fields__} | {"notes": notes})


def _milliseconds(settings: Mapping[str, str], name: str, default: int, where: str) -> int:
    text = settings.get(name, str(default))
    number = read_integer(text)
    if number is None or not 0 < number <= INT_MAX:
        raise ConfigError(path=where, problem=f"{name} is '{text}', not a number of milliseconds from 1 to 2^31 - 1")
    return number


def _unknown_names(properties: Mapping[str, str], where: str) -> list[Note]:
    """Return a note about the names that Kafka's clients do not have, if there are any."""
    unknown = [
        name for name in properties if name not in KAFKA_CLIENT_NAMES and not name.startswith(f"{CONFIG_PROVIDERS}.")
    ]
    if not unknown:
        return []
    meant = {name: closest(name, KAFKA_CLIENT_NAMES) for name in unknown}
    named = [f"{shown(name)} (did you mean {close}?)" if close else shown(name) for name, close in meant.items()]
    return [Note.of(RemarkCode.UNKNOWN_CLIENT_SETTING, where=shown(where), names=", ".join(named))]


def _permission_notes(path: Path, properties: Mapping[str, str]) -> list[Note]:
    """Return a note if every user of the machine can read a password in this file."""
    with storage_errors(path):
        everyone_reads = bool(path.stat().st_mode & stat.S_IROTH)
    if not everyone_reads or not any(_is_secret(name, value) for name, value in properties.items()):
        return []
    return [Note.of(RemarkCode.READABLE_PASSWORD, file=shown(str(path)), word=shell_word(str(path)))]


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is a password, or has one, and is not only a variable."""
    text = VARIABLE.sub("", value)
    return holds_password(text) if name == "sasl.jaas.config" else name in _SECRETS and bool(text.strip())
