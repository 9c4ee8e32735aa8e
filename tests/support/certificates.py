"""Certificates, keys and stores for tests of TLS, made anew, and a server that uses them."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "store secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey
    authority: x509.Certificate | None = None

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """Return the key in PKCS #8, encrypted with a password if there is one."""
        how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def key_store(self, password: str = PASSWORD) -> bytes:
        """Return a PKCS12 store with the key and all certificates."""
        authorities = [self.authority] if self.authority else None
        how = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, authorities, how)


def sign(name: str, *, by: Signed | None = None, names: Sequence[str] = (), age_days: int = 0) -> Signed:
    """Return a certificate for two days from `age_days` ago on, by itself or by an authority, for these names."""
    key = generate_private_key(SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (subject, key) if by is None else (by.certificate.subject, by.key)
    from_then = datetime.now(UTC) - timedelta(days=age_days, hours=1)
    alternative = [
        x509.IPAddress(ipaddress.ip_address(each)) if each[0].isdigit() else x509.DNSName(each) for each in names
    ]
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(from_then)
        .not_valid_after(from_then + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=by is None and not names, path_length=None), critical=True)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    signed = builder.sign(signer, hashes.SHA256())
    return Signed(certificate=signed, key=key, authority=by.certificate if by else None)


@cache
def authority() -> Signed:
    """Return the authority of this process."""
    return sign("test authority")


def trust_store(*certificates: Signed, password: str = PASSWORD) -> bytes:
    """Return a PKCS12 store without keys."""
    how = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(None, None, None, [each.certificate for each in certificates], how)


def jks(*certificates: Signed, keys: Sequence[Signed] = (), password: str = PASSWORD, version: int = 2) -> bytes:
    """Return a store in Java's old format with trusted certificates, and keys whose bytes mean nothing."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    def certificate(signed: Signed) -> bytes:
        kind = text("X.509") if version == 2 else b""
        return kind + struct.pack(">i", len(signed.der)) + signed.der

    body = struct.pack(">4sii", b"\xfe\xed\xfe\xed", version, len(certificates) + len(keys))
    for each in keys:
        body += struct.pack(">i", 1) + text("key") + bytes(8) + struct.pack(">i", 5) + b"bytes"
        body += struct.pack(">i", 1) + certificate(each)
    for each in certificates:
        body += struct.pack(">i", 2) + text("trusted") + bytes(8) + certificate(each)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


@contextlib.contextmanager
def tls_server(
    own: Signed, answers: Sequence[bytes], *, wants_by: Signed | None = None, version: ssl.TLSVersion | None = None
) -> Iterator[str]:
    """Answer each request of one TLS connection with the next of some bytes. `wants_by`: the client's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _memory_file(own.key_pem() + own.pem) as file:
        context.load_cert_chain(file)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if wants_by is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=wants_by.pem)

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            connection.settimeout(10)
            with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secured:
                try:
                    secured.do_handshake()
                except ssl.SSLError:
                    socket.socket.recv(secured, 4096)  # A connection that is closed earlier can lose the alert.
                    return
                for answer in answers:
                    secured.recv(4096)
                    secured.sendall(answer)
                secured.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[Path]:
    descriptor = os.memfd_create("key")
    try:
        os.write(descriptor, text.encode())
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
