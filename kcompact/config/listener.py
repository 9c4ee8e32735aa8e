"""Checks in at most a few seconds whether kcompact can use a listener, and says why not.

A client of Kafka tries again until its own time limit, and its error is the same for a wrong port, a wrong host, a
listener with TLS and a certificate that is not trusted. A few small requests tell these apart, and change nothing:

    TLS handshake   if the client's settings say so. The alert of a broker that wants a client's certificate comes
                    only after the handshake, with the first answer (RFC 8446, 4.4.2.4)
    ApiVersions     every broker answers, also before authentication; a controller's answer lacks the Metadata request;
                    a listener with TLS answers with a TLS alert. Rule: KIP-35
    SaslHandshake   if the client's settings say so; names the mechanisms that a listener has. Rule: KIP-43
    SaslAuthenticate  so that a wrong password is sent once: kafka-python alone sends it again and again. Rule: KIP-152
    Metadata        of no topic; a listener with authentication closes the connection instead
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from kcompact.config.client.credentials import Credentials
from kcompact.config.client.settings import ClientConfig
from kcompact.config.client.tls import CERTIFICATE_HINT, certificate_problem, handshake_problem
from kcompact.errors import ClusterUnreachableError

_METADATA, _SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 3, 17, 18, 36
_METADATA_VERSION = 1
"""The first version in which an empty list of topics means no topic."""
_SASL_HANDSHAKE_VERSION = 1
_UNSUPPORTED_SASL_MECHANISM, _ILLEGAL_SASL_STATE = 33, 34
_MAX_SASL_ROUNDS = 10
_CLIENT_ID = b"kcompact"
_CORRELATION_ID = 1
_MAX_ANSWER_BYTES = 1 << 16
"""Far more than the answers have."""
_ANSWER = struct.Struct(">ii")
"""The start of an answer: the size of what follows, and the correlation id."""
_API_RANGES_POSITION = _ANSWER.size + 2 + 4
"""The position in an answer to ApiVersions, after an error code and a count."""
_API_RANGE = struct.Struct(">hhh")
"""The key of a request, its oldest and its newest version."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake."""
_ANOTHER = "Pass the address of a broker's listener."
PLAIN = ClientConfig()
"""Neither encryption nor authentication."""


class Exchange(Protocol):
    """The client's side of one authentication, a SASL mechanism of kafka-python."""

    def is_done(self) -> bool: ...
    def auth_bytes(self) -> bytes: ...
    def receive(self, auth_bytes: bytes, /) -> object: ...


Authentication = Callable[[], Exchange]
"""Begins an authentication."""


def usable_address(addresses: str, client: ClientConfig = PLAIN, begin: Authentication | None = None) -> str:
    """Return the first usable listener of `HOST:PORT,HOST:PORT`.

    Raises the ClusterUnreachableError of the last one, or of the first one that refuses user and password: further
    attempts could lock the account.
    """
    *others, last = addresses.split(",")
    for address in others:
        try:
            check_listener(address, client, begin)
        except _NotAuthenticatedError:
            raise
        except ClusterUnreachableError:
            continue
        return address
    check_listener(last, client, begin)
    return last


class _NotAuthenticatedError(ClusterUnreachableError):
    """A listener refuses user and password."""


def check_listener(address: str, client: ClientConfig = PLAIN, begin: Authentication | None = None) -> None:
    """Return if the listener at HOST:PORT is a broker's that this client can use. Raises ClusterUnreachableError.

    Without `begin` the client does not authenticate: only the mechanism is checked.
    """
    _Listener(address, client, begin).check()


class _Listener:
    """A listener, and the connections to it."""

    def __init__(self, address: str, client: ClientConfig, begin: Authentication | None) -> None:
        self._address = address
        self._begin = begin
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._client = client
        self._timeout_s = client.connection_timeout_ms / 1000

    def _unusable(self, problem: str, hint: str = "") -> ClusterUnreachableError:
        return ClusterUnreachableError(address=self._address, problem=problem, hint=hint)

    def check(self) -> None:
        """Raise ClusterUnreachableError if the listener cannot be used."""
        with self._connection() as plain, self._secured(plain) as connection:
            try:
                self._check_broker(connection)
            except ssl.SSLError as problem:
                raise self._unusable(
                    *handshake_problem(problem, has_certificate=self._client.has_certificate)
                ) from None

    # The connection

    def _connection(self) -> socket.socket:
        host, port = self._host, self._port
        try:
            return socket.create_connection((host, port), timeout=self._timeout_s)
        except (socket.gaierror, UnicodeError) as error:
            problem = f"the host {host} is unknown ({_reason(error)})"
        except ConnectionRefusedError:
            problem = f"the host is up, but nothing listens on port {port}"
        except TimeoutError:
            within = f"within {self._timeout_s:g} seconds"
            problem = f"no connection {within}: the host is down, or a firewall blocks port {port}"
        except OSError as error:
            problem = f"no connection ({_reason(error)})"
        raise self._unusable(problem)

    def _secured(self, connection: socket.socket) -> socket.socket:
        """Return the connection with TLS, or as it is if the client uses none."""
        if self._client.tls is None:
            return connection
        try:
            return self._client.tls.wrap_socket(connection, server_hostname=self._host.rstrip("."))
        except ssl.SSLCertVerificationError as error:
            raise self._unusable(*certificate_problem(error, self._address)) from None
        except OSError as error:
            if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
                raise self._unusable(*handshake_problem(error, has_certificate=self._client.has_certificate)) from None
            if self._speaks_without_tls():
                right = self._client.security_protocol.removesuffix("SSL") + "PLAINTEXT"
                raise self._unusable(
                    f"the listener has no TLS, but security.protocol is {self._client.security_protocol}",
                    f"Pass the address of a listener with TLS, or set security.protocol={right}.",
                ) from None
            raise self._unusable(f"no TLS handshake ({_reason(error)})", _ANOTHER) from None

    def _speaks_without_tls(self) -> bool:
        try:
            with self._connection() as connection:
                answer = _answer(connection, _API_VERSIONS, 0)
        except ClusterUnreachableError:
            return False
        return answer is not None and _is_complete(answer) and _is_of_kafka(answer)

    # The requests

    def _check_broker(self, connection: socket.socket) -> None:
        """Raise ClusterUnreachableError unless a broker answers, ssl.SSLError for an alert."""
        answer = _answer(connection, _API_VERSIONS, 0)
        if answer is None:
            raise self._unusable(f"the port is open, but nothing answers within {self._timeout_s:g} seconds", _ANOTHER)
        if answer.startswith(_TLS_RECORDS):
            raise self._unusable(*self._needs_tls())
        if not answer and self._client.tls is not None:
            # The alert that says why can be lost with the connection.
            raise self._unusable("the listener closes the connection after the TLS handshake", CERTIFICATE_HINT)
        if not _is_complete(answer) or not _is_of_kafka(answer):
            raise self._unusable("the port is open, but no Kafka broker answers there", _ANOTHER)
        ranges = answer[_API_RANGES_POSITION:]
        oldest = {key: first for key, first, _ in _API_RANGE.iter_unpack(ranges[: len(ranges) // 6 * 6])}
        if _METADATA not in oldest:
            raise self._unusable("the listener is a controller's", _ANOTHER)
        if self._client.credentials is not None:
            self._check_mechanism(connection, self._client.credentials.mechanism)
            if self._begin is not None:
                self._authenticate(connection, self._begin(), self._client.credentials)
            return
        if oldest[_METADATA] > _METADATA_VERSION:
            return  # A later Kafka. The client finds out.
        if _answer(connection, _METADATA, _METADATA_VERSION, struct.pack(">i", 0)) == b"":
            raise self._unusable(*self._needs_authentication())

    def _check_mechanism(self, connection: socket.socket, mechanism: str) -> None:
        code, enabled = _mechanisms(connection, mechanism)
        protocol = self._client.security_protocol
        if code == _ILLEGAL_SASL_STATE:
            raise self._unusable(
                f"the listener has no authentication, but security.protocol is {protocol}",
                f"Set security.protocol={'SSL' if protocol.endswith('SSL') else 'PLAINTEXT'}, or pass the address of "
                "a listener with authentication.",
            )
        if code == _UNSUPPORTED_SASL_MECHANISM:
            raise self._unusable(
                f"the listener does not have the mechanism {mechanism}; it has {', '.join(enabled) or 'none'}",
                "Set sasl.mechanism to one of them, with its sasl.jaas.config.",
            )

    def _authenticate(self, connection: socket.socket, exchange: Exchange, credentials: Credentials) -> None:
        user = f" of {credentials.user}" if credentials.user else ""
        failed = f"the authentication{user} with {credentials.mechanism} failed"
        hint = "Check sasl.jaas.config" + (" and sasl.oauthbearer.*." if credentials.tokens else ".")
        for _ in range(_MAX_SASL_ROUNDS):
            if exchange.is_done():
                return
            sent = exchange.auth_bytes()
            body = struct.pack(">i", len(sent)) + sent
            code, message, received = _sasl_answer(_answer(connection, _SASL_AUTHENTICATE, 0, body) or b"")
            if code is None:
                raise self._unusable(f"{failed}: the listener closed the connection", hint)
            if code:
                problem = f"{failed}: {message or f'error {code}'}"
                raise _NotAuthenticatedError(address=self._address, problem=problem, hint=hint)
            try:
                exchange.receive(received)
            except (ValueError, LookupError):
                raise self._unusable(f"{failed}: the listener does not prove that it has the password", hint) from None
        raise self._unusable(f"{failed}: it does not end", hint)

    def _needs_tls(self) -> tuple[str, str]:
        if self._client != PLAIN:
            protocol = self._client.security_protocol
            right = "SASL_SSL" if self._client.credentials else "SSL"
            return f"the listener requires TLS, but security.protocol is {protocol}", f"Set security.protocol={right}."
        return "the listener requires TLS", (
            "Pass --command-config FILE, the file that Kafka's own tools take, with ssl.truststore.location and "
            "security.protocol=SSL, or SASL_SSL if the listener has authentication too."
        )

    def _needs_authentication(self) -> tuple[str, str]:
        """Return the problem with a listener that closes a connection without authentication."""
        enabled: list[str] = []
        with (
            suppress(OSError, ClusterUnreachableError),
            self._connection() as plain,
            self._secured(plain) as connection,
        ):
            _, enabled = _mechanisms(connection, "")
        problem = "the listener requires authentication" + (f" ({', '.join(enabled)})" if enabled else "")
        right = "SASL_SSL" if self._client.tls else "SASL_PLAINTEXT"
        settings = f"security.protocol={right}, sasl.mechanism and sasl.jaas.config"
        if self._client != PLAIN:
            return f"{problem}, but security.protocol is {self._client.security_protocol}", f"Set {settings}."
        return problem, f"Pass --command-config FILE, the file that Kafka's own tools take, with {settings}."


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _mechanisms(connection: socket.socket, mechanism: str) -> tuple[int, list[str]]:
    """Return the error code of an answer to SaslHandshake, and the mechanisms that the listener has."""
    body = struct.pack(">h", len(mechanism)) + mechanism.encode("ascii")
    answer = _answer(connection, _SASL_HANDSHAKE, _SASL_HANDSHAKE_VERSION, body) or b""
    names = []
    try:
        code, count = struct.unpack_from(">hi", answer, _ANSWER.size)
        position = _ANSWER.size + 6
        for _ in range(min(count, 100)):
            (length,) = struct.unpack_from(">h", answer, position)
            names.append(answer[position + 2 : position + 2 + length].decode("ascii", "replace"))
            position += 2 + length
    except struct.error:
        return 0, names  # The client finds out.
    return code, sorted(names)


def _sasl_answer(answer: bytes) -> tuple[int | None, str, bytes]:
    """Return the error code, the message and the bytes of an answer to SaslAuthenticate; None for a cut answer."""
    try:
        code, length = struct.unpack_from(">hh", answer, _ANSWER.size)
        position = _ANSWER.size + 4 + max(0, length)
        message = answer[_ANSWER.size + 4 : position].decode("utf-8", "replace")
        (count,) = struct.unpack_from(">i", answer, position)
    except struct.error:
        return None, "", b""
    return code, message, answer[position + 4 : position + 4 + max(0, count)]


def _answer(connection: socket.socket, api_key: int, version: int, body: bytes = b"") -> bytes | None:
    """Send a request and return the answer, cut if the connection ends, or None if nothing arrives in time.

    Raises ssl.SSLError for an alert.
    """
    request = struct.pack(">hhih", api_key, version, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID + body
    answer = b""
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        while not _is_complete(answer) and (chunk := connection.recv(1 << 16)):
            answer += chunk
    except TimeoutError:
        return answer or None
    except OSError as error:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            raise
        # The listener has closed the connection. The bytes before that can say why.
    return answer


def _is_complete(answer: bytes) -> bool:
    """Return whether an answer has as many bytes as it announces. True for an answer that is not Kafka's."""
    if len(answer) < _ANSWER.size:
        return False
    return not _is_of_kafka(answer) or len(answer) >= min(4 + _ANSWER.unpack_from(answer)[0], _MAX_ANSWER_BYTES)


def _is_of_kafka(answer: bytes) -> bool:
    return bool(_ANSWER.unpack_from(answer)[1] == _CORRELATION_ID)
