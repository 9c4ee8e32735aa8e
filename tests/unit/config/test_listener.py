"""`config.listener`: why a listener cannot be used, said within seconds."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcompact.config import listener
from kcompact.config.listener import check_listener
from kcompact.errors import ClusterUnreachableError
from tests.support.command_line import kcompact, partition

METADATA, API_VERSIONS = (3, 0, 13), (18, 0, 4)


def framed(body: bytes, *, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def versions(*ranges: tuple[int, int, int]) -> bytes:
    """Return an answer to ApiVersions."""
    return framed(struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", *each) for each in ranges))


BROKER = versions(METADATA, API_VERSIONS)
TLS_ALERT = bytes.fromhex("15030300020250")


@contextmanager
def listening(answers: Sequence[bytes], *, stays_open: bool = False) -> Iterator[str]:
    """Answer each request on a connection with the next of some bytes, then close the connection."""
    done = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            for answer in answers:
                connection.recv(4096)
                # In two parts, as a network may deliver them.
                connection.sendall(answer[:3])
                connection.sendall(answer[3:])
            if stays_open:
                done.wait(10)
            else:
                connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        done.set()
        thread.join(10)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([BROKER], "requires authentication"),
        ([TLS_ALERT], "requires TLS"),
        ([versions(API_VERSIONS)], "is a controller's"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "no Kafka broker answers"),
        ([framed(b"", correlation_id=2)], "no Kafka broker answers"),
        ([BROKER[:9]], "no Kafka broker answers"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "no Kafka broker answers"),
        ([], "no Kafka broker answers"),
    ],
    ids=["sasl", "tls", "controller", "http", "other id", "cut", "ssh", "closed"],
)
def test_why_a_listener_cannot_be_used(answers: list[bytes], problem: str) -> None:
    with listening(answers) as address, pytest.raises(ClusterUnreachableError, match=problem) as raised:
        check_listener(address)
    assert str(raised.value).startswith(f"{address}: the ")


@pytest.mark.parametrize(
    "answers", [[BROKER, framed(b"brokers")], [versions((3, 2, 99), API_VERSIONS)]], ids=["kafka 4", "a later kafka"]
)
def test_a_broker_can_be_used(answers: list[bytes]) -> None:
    with listening(answers) as address:
        check_listener(address)


@pytest.mark.parametrize("sent", [b"", BROKER[:9]], ids=["nothing", "a part"])
def test_a_listener_that_is_silent(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TIMEOUT_S", 0.2)
    before = time.monotonic()
    with (
        listening([sent], stays_open=True) as address,
        pytest.raises(ClusterUnreachableError, match=r"nothing answers|no Kafka broker answers"),
    ):
        check_listener(address)
    assert time.monotonic() - before < 5


def test_a_host_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(ClusterUnreachableError, match=r"no connection within 3 seconds: .* firewall blocks port 9092"):
        check_listener("host:9092")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70])
def test_a_host_that_is_unknown(host: str) -> None:
    with pytest.raises(ClusterUnreachableError, match=f"{host}:9092: the host {host} is unknown"):
        check_listener(f"{host}:9092")


def test_a_closed_port_is_reported_at_once(tmp_path: Path) -> None:
    partition(tmp_path)
    address = closed_port()
    before = time.monotonic()
    ran = kcompact("plan", "--bootstrap-server", address, tmp_path)
    assert time.monotonic() - before < 6  # kafka-python alone takes more than 8.
    assert (ran.code, ran.out) == (1, "")
    first, second = ran.err.splitlines()
    assert first == f"error: {address}: the host is up, but nothing listens on port {address.split(':')[1]}"
    assert second.startswith("Without --bootstrap-server")
