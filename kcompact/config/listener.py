"""Checks in at most a few seconds whether kcompact can use a listener, and says why not.

A client of Kafka tries again until its own time limit, and its error is the same for a wrong port, a wrong host and a
listener with TLS. Two small requests tell these apart, and change nothing:

    ApiVersions   every broker answers, also before authentication; a controller's answer lacks the Metadata request; a
                  listener with TLS answers with a TLS alert. Rule: KIP-35
    Metadata      of no topic; a listener with authentication closes the connection instead. Rule: KIP-43
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from kcompact.errors import ClusterUnreachableError

TIMEOUT_S = 3.0
"""The limit for the connection, and for each answer."""

_METADATA, _API_VERSIONS = 3, 18
_METADATA_VERSION = 1
"""The first version in which an empty list of topics means no topic."""
_CLIENT_ID = b"kcompact"
_CORRELATION_ID = 1
_MAX_ANSWER_BYTES = 1 << 16
"""Far more than the two answers have."""
_ANSWER = struct.Struct(">ii")
"""The start of an answer: the size of what follows, and the correlation id."""
_API_RANGES_POSITION = _ANSWER.size + 2 + 4
"""The position in an answer to ApiVersions, after an error code and a count."""
_API_RANGE = struct.Struct(">hhh")
"""The key of a request, its oldest and its newest version."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake."""
_HINT = "pass the address of a broker's PLAINTEXT listener"


def usable_address(addresses: str) -> str:
    """Return the first usable listener of `HOST:PORT,HOST:PORT`. Raises the ClusterUnreachableError of the last one."""
    *others, last = addresses.split(",")
    for address in others:
        with suppress(ClusterUnreachableError):
            check_listener(address)
            return address
    check_listener(last)
    return last


def check_listener(address: str) -> None:
    """Return if the listener at HOST:PORT is a broker's, without TLS and without authentication.

    Raises ClusterUnreachableError.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S) as connection:
            problem = _problem_with(connection)
    except (socket.gaierror, UnicodeError) as error:
        problem = f"the host {host} is unknown ({_reason(error)})"
    except ConnectionRefusedError:
        problem = f"the host is up, but nothing listens on port {port}"
    except TimeoutError:
        problem = f"no connection within {TIMEOUT_S:g} seconds: the host is down, or a firewall blocks port {port}"
    except OSError as error:
        problem = f"no connection ({_reason(error)})"
    if problem:
        raise ClusterUnreachableError(address=address, problem=problem)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _problem_with(connection: socket.socket) -> str:
    """Return why a listener cannot be used, an empty text if it can."""
    answer = _answer(connection, _API_VERSIONS, 0)
    if answer is None:
        return f"the port is open, but nothing answers within {TIMEOUT_S:g} seconds"
    if answer.startswith(_TLS_RECORDS):
        return f"the listener requires TLS, which kcompact does not support; {_HINT}"
    if not _is_complete(answer) or not _is_of_kafka(answer):
        return f"the port is open, but no Kafka broker answers there; {_HINT}"
    ranges = answer[_API_RANGES_POSITION:]
    oldest = {key: first for key, first, _ in _API_RANGE.iter_unpack(ranges[: len(ranges) // 6 * 6])}
    if _METADATA not in oldest:
        return f"the listener is a controller's; {_HINT}"
    if oldest[_METADATA] > _METADATA_VERSION:
        return ""  # A later Kafka. The client finds out.
    if _answer(connection, _METADATA, _METADATA_VERSION, struct.pack(">i", 0)) == b"":
        return f"the listener requires authentication (SASL), which kcompact does not support; {_HINT}"
    return ""


def _answer(connection: socket.socket, api_key: int, version: int, body: bytes = b"") -> bytes | None:
    """Send a request and return the answer, cut if the connection ends, or None if nothing arrives in time."""
    request = struct.pack(">hhih", api_key, version, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID + body
    answer = b""
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        while not _is_complete(answer) and (chunk := connection.recv(1 << 16)):
            answer += chunk
    except TimeoutError:
        return answer or None
    except OSError:
        pass  # The listener has closed the connection. The bytes before that can say why.
    return answer


def _is_complete(answer: bytes) -> bool:
    """Return whether an answer has as many bytes as it announces. True for an answer that is not Kafka's."""
    if len(answer) < _ANSWER.size:
        return False
    return not _is_of_kafka(answer) or len(answer) >= min(4 + _ANSWER.unpack_from(answer)[0], _MAX_ANSWER_BYTES)


def _is_of_kafka(answer: bytes) -> bool:
    return bool(_ANSWER.unpack_from(answer)[1] == _CORRELATION_ID)
