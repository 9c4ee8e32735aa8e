"""`config.listener`: why a listener cannot be used, said within seconds."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kcompact.config import listener
from kcompact.config.client.credentials import Credentials
from kcompact.config.client.settings import ClientConfig
from kcompact.config.listener import check_listener, usable_address
from kcompact.errors import ClusterUnreachableError
from tests.support.certificates import Signed, authority, sign, tls_server
from tests.support.command_line import kcompact, partition
from tests.support.patience import PATIENCE_S

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
    """Answer each request on a connection with the next of some bytes, then end it. Further connections end at once."""
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
                done.wait()
            else:
                # No client waits for more until its time is over, and what it still sends is not refused.
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
        with suppress(OSError):
            while True:
                server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        done.set()
        server.shutdown(socket.SHUT_RDWR)  # Ends the waiting for a connection.
        thread.join(PATIENCE_S)


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
def test_a_listener_that_is_silent(sent: bytes) -> None:
    with (
        listening([sent], stays_open=True) as address,
        pytest.raises(ClusterUnreachableError, match=r"nothing answers|no Kafka broker answers"),
    ):
        check_listener(address, ClientConfig(connection_timeout_ms=200))


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
    ran = kcompact("plan", "--bootstrap-server", address, tmp_path)
    assert (ran.code, ran.out) == (1, "")
    first, second = ran.err.splitlines()
    assert first == f"error: {address}: the host is up, but nothing listens on port {address.split(':')[1]}"
    assert second.startswith("Without --bootstrap-server")


# TLS and authentication


OWN = sign("broker", by=authority(), names=["127.0.0.1"])
METADATA_ANSWER = framed(b"brokers")


def trusting(*trusted: Signed, **settings: str) -> ClientConfig:
    """Return a client that trusts these certificates."""
    trust = {"ssl.truststore.certificates": "".join(each.pem for each in trusted)}
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ClientConfig.of({"security.protocol": "SSL", "ssl.truststore.type": "PEM"} | trust | named)


def test_a_broker_with_tls() -> None:
    with tls_server(OWN, [BROKER, METADATA_ANSWER]) as address:
        check_listener(address, trusting(authority()))


@pytest.mark.parametrize(
    ("own", "client", "problem"),
    [
        (OWN, trusting(sign("another")), r"certificate is not trusted \(.*\)\nssl.truststore.location must name"),
        (sign("b", by=authority(), names=["kafka"]), trusting(authority()), r"is not for 127.0.0.1\nPass the broker"),
        (
            sign("b", by=authority(), names=["127.0.0.1"], age_days=9),
            trusting(authority()),
            r"has expired.*\n.* -dates`",
        ),
        (
            sign("b", by=authority(), names=["127.0.0.1"], age_days=-9),
            trusting(authority()),
            r"not valid yet\nCheck the",
        ),
        (OWN, trusting(authority(), ssl_enabled_protocols="TLSv1.3"), r"no version of TLS in common"),
    ],
    ids=["not trusted", "other name", "expired", "not yet valid", "other version"],
)
def test_tls_that_fails(own: Signed, client: ClientConfig, problem: str) -> None:
    with (
        tls_server(own, [], version=ssl.TLSVersion.TLSv1_2) as address,
        pytest.raises(ClusterUnreachableError, match=problem),
    ):
        check_listener(address, client)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_that_wants_a_certificate(version: ssl.TLSVersion) -> None:
    mine, others = sign("client", by=authority(), names=["client"]), sign("stranger", names=["stranger"])

    def check(key: Signed | None) -> None:
        keys = {} if key is None else {"ssl_keystore_key": key.key_pem(), "ssl_keystore_certificate_chain": key.pem}
        with tls_server(OWN, [BROKER, METADATA_ANSWER], wants_by=authority(), version=version) as address:
            check_listener(address, trusting(authority(), **keys))

    check(mine)
    with pytest.raises(ClusterUnreachableError, match=r"refuses the client's certificate \(unknown ca\)"):
        check(others)
    # OpenSSL's alert for TLS 1.2 is a general one; Java's says what is missing.
    with pytest.raises(ClusterUnreachableError, match=r"ssl.keystore.location"):
        check(None)


def test_tls_and_a_listener_without() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    if connection.recv(4096)[:1] != b"\x16":  # Kafka closes a connection that begins with a handshake.
                        connection.sendall(BROKER)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(ClusterUnreachableError, match=r"has no TLS, but .* is SSL\nPass the address"):
            check_listener(f"127.0.0.1:{server.getsockname()[1]}", trusting(authority()))
        thread.join(PATIENCE_S)


SCRAM = ClientConfig(
    security_protocol="SASL_PLAINTEXT",
    credentials=Credentials(mechanism="SCRAM-SHA-256", user="alice", password="hush"),
)


def handshake(code: int, *mechanisms: str) -> bytes:
    """Return an answer to SaslHandshake."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    return framed(struct.pack(">hi", code, len(mechanisms)) + names)


def authenticated(code: int = 0, message: str = "", data: bytes = b"") -> bytes:
    """Return an answer to SaslAuthenticate."""
    text = struct.pack(">h", len(message) or -1) + message.encode()
    return framed(struct.pack(">h", code) + text + struct.pack(">i", len(data)) + data)


class Rounds:
    """An authentication of two rounds."""

    def __init__(self, *, fails: bool = False) -> None:
        self.received: list[bytes] = []
        self._fails = fails

    def is_done(self) -> bool:
        return len(self.received) == 2

    def auth_bytes(self) -> bytes:
        return b"hush %d" % len(self.received)

    def receive(self, auth_bytes: bytes, /) -> None:
        if self._fails:
            raise ValueError("wrong signature")
        self.received.append(auth_bytes)


def test_an_authentication() -> None:
    rounds = Rounds()
    answers = [BROKER, handshake(0, "SCRAM-SHA-256"), authenticated(data=b"one"), authenticated(data=b"two")]
    with listening(answers) as address:
        check_listener(address, SCRAM, lambda: rounds)
    assert rounds.received == [b"one", b"two"]


@pytest.mark.parametrize(
    ("answers", "fails", "problem"),
    [
        (
            [handshake(33, "PLAIN", "GSSAPI")],
            False,
            "not have the mechanism SCRAM-SHA-256; it has GSSAPI, PLAIN\nSet sasl",
        ),
        ([handshake(34)], False, "has no authentication, but security.protocol is SASL_PLAINTEXT\nSet .*=PLAINTEXT"),
        (
            [handshake(0), authenticated(58, "wrong")],
            False,
            "of alice with SCRAM-SHA-256 failed: wrong\nCheck sasl.jaas",
        ),
        ([handshake(0), authenticated(99)], False, "failed: error 99"),
        ([handshake(0), b""], False, "failed: the listener closed the connection"),
        ([handshake(0), authenticated()], True, "failed: the listener does not prove that it has the password"),
    ],
    ids=["mechanism", "no sasl", "password", "unknown error", "closed", "no proof"],
)
def test_an_authentication_that_fails(answers: list[bytes], fails: bool, problem: str) -> None:
    with listening([BROKER, *answers]) as address, pytest.raises(ClusterUnreachableError, match=problem) as raised:
        check_listener(address, SCRAM, lambda: Rounds(fails=fails))
    assert "hush" not in str(raised.value)


def test_a_wrong_password_is_tried_once() -> None:
    begun: list[Rounds] = []

    def begin() -> Rounds:
        begun.append(Rounds())
        return begun[-1]

    with (
        listening([BROKER, handshake(0), authenticated(58, "wrong")]) as address,
        pytest.raises(ClusterUnreachableError, match=f"{address}: the authentication of alice"),
    ):
        usable_address(f"{closed_port()},{address},{closed_port()}", SCRAM, begin)
    assert len(begun) == 1


def test_what_to_pass_when_nothing_was_passed() -> None:
    for answers, client, words in (
        ([TLS_ALERT], listener.PLAIN, r"requires TLS\nPass .*client"),
        ([TLS_ALERT], SCRAM, r"requires TLS, but security.protocol is SASL_PLAINTEXT\nSet security.protocol=SASL_SSL"),
        ([BROKER], listener.PLAIN, r"requires authentication\nPass .*security.protocol=SASL_PLAINTEXT"),
    ):
        with listening(answers) as address, pytest.raises(ClusterUnreachableError, match=words):
            check_listener(address, client)
