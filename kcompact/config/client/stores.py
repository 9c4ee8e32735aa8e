"""Certificates and keys from the files that Kafka's settings name: PEM, PKCS12 and JKS.

The bytes of a file say which of the three it is, not `ssl.truststore.type`: since Java 9 `keytool` writes PKCS12 into
files named `.jks`, and Java reads them as JKS. kcompact decrypts nothing by itself: OpenSSL does, and for PKCS12 the
library `cryptography`. Keys in JKS files are encrypted in a way that only Java has, so these files must be converted.

A JKS file is, with all integers big-endian and each text with two bytes of length before it:

    0xFEEDFEED, version 1 or 2, number of entries
    each entry:      kind (1 key, 2 trusted certificate), alias, creation time (8 bytes)
      a key:         length and bytes of the encrypted key, number of certificates, those certificates
      a certificate: "X.509" (version 2 only), length, DER
    SHA-1 of the password in UTF-16, of the words "Mighty Aphrodite", and of everything before

Its certificates are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import struct
import textwrap
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.errors import ConfigError
from kcompact.host.installation import how_to_add
from kcompact.log.files import read_file
from kcompact.readable import shell_word
from kcompact.values import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

MAX_STORE_BYTES = 16 << 20
_PEM = re.compile(
    r"-+BEGIN\s+(?P<label>[A-Z0-9 ]*?(?P<kind>CERTIFICATE|PRIVATE\s+KEY))-+\s+"
    r"(?P<headers>(?:[^\r\n:-]*:[^\r\n]*[\r\n]+)*)(?P<base64>[A-Za-z0-9/+=\s]*)-+END[^-]*-+"
)
"""An entry of a PEM text. All white space may be spaces, as in the value of a property. Rule: PemStore.PemParser."""
_LABELS = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The private key and the certificates of a client, in PEM. `password` decrypts the key if it is encrypted."""

    pem: str = field(repr=False)
    password: str | None = field(repr=False)


def certificates_in(text: str) -> str:
    """Return the certificates of a PEM text, each in the layout that OpenSSL reads. Raises ValueError without one."""
    certificates = [_entry("CERTIFICATE", each) for each in _PEM.finditer(text) if each["kind"] == "CERTIFICATE"]
    if not certificates:
        raise ValueError("has no certificate in PEM")
    return "".join(certificates)


def identity_in(key_text: str, chain_text: str, *, password: str | None) -> Identity:
    """Return the identity of a PEM text with one private key, and of one with certificates. Raises ValueError."""
    keys = [each for each in _PEM.finditer(key_text) if each["kind"] != "CERTIFICATE"]
    if len(keys) != 1:
        raise ValueError(f"has {len(keys)} private keys in PEM, not one")
    label = " ".join(keys[0]["label"].split())
    if keys[0]["headers"] or label not in _LABELS:
        raise ValueError("has a private key that is not PKCS #8; `openssl pkcs8 -topk8 -in OLD -out NEW` converts it")
    return Identity(pem=_entry(label, keys[0]) + certificates_in(chain_text), password=password)


def _entry(label: str, pem_match: re.Match[str]) -> str:
    lines = textwrap.wrap("".join(pem_match["base64"].split()), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def read_trust(file: Path, *, password: str | None, name: str) -> str:
    """Return the certificates of a trust store in PEM. `name` is the setting that names the file.

    Raises ConfigError, StorageError.
    """
    data = _read(file, name=name)
    try:
        if data.startswith(_JKS_MAGIC):
            der_certificates = jks_certificates(data, password=password)
            text = "".join(map(ssl.DER_cert_to_PEM_cert, der_certificates))
        elif _is_pem(data):
            text = data.decode("utf-8", "replace")
        else:
            text = _certificates_of(_read_pkcs12(data, password, file, is_key_store=False))
        return certificates_in(text)
    except ValueError as problem:
        raise ConfigError(path=file, problem=f"{problem} ({name})") from None


def read_identity(file: Path, *, password: str | None, key_password: str | None, name: str) -> Identity:
    """Return the identity in a key store. Raises ConfigError, StorageError."""
    data = _read(file, name=name)
    try:
        if data.startswith(_JKS_MAGIC):
            raise ConfigError(
                path=file,
                problem=f"a key store in Java's old format JKS, whose keys only Java can decrypt ({name})",
                hint=f"Convert it: keytool -importkeystore -srckeystore {shell_word(str(file))} "
                f"-destkeystore client.p12 -deststoretype PKCS12\nThen set {name}=client.p12",
            )
        if _is_pem(data):
            text = data.decode("utf-8", "replace")
            return identity_in(text, text, password=key_password)
        return _identity_of(_read_pkcs12(data, password, file, is_key_store=True))
    except ValueError as problem:
        raise ConfigError(path=file, problem=f"{problem} ({name})") from None


def _read(file: Path, *, name: str) -> bytes:
    if not file.exists():
        raise ConfigError(path=file, problem=f"no such file ({name})")
    return read_file(file.resolve(), max_bytes=MAX_STORE_BYTES)


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN" in data


# PKCS12


def _read_pkcs12(data: bytes, password: str | None, file: Path, *, is_key_store: bool) -> PKCS12KeyAndCertificates:
    """Return the content of a PKCS12 file. Raises ValueError for a wrong password, ConfigError without the library."""
    if not data.startswith(b"\x30"):
        raise ValueError("is neither PEM nor PKCS12 nor JKS")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise _without_library(file, is_key_store=is_key_store) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as problem:
        raise ValueError(f"is encrypted in a way that is not supported: {problem}") from None
    except ValueError:
        raise ValueError("the password is wrong or missing, or the file is damaged") from None


def _without_library(file: Path, *, is_key_store: bool) -> ConfigError:
    kind, pem = ("keystore", "client.pem") if is_key_store else ("truststore", "ca.pem")
    convert = f"openssl pkcs12 -in {shell_word(str(file))} {'' if is_key_store else '-nokeys '}-out {pem}"
    return ConfigError(
        path=file,
        problem=f"a PKCS12 file, which needs the library cryptography; {how_to_add('live')}",
        hint=f"Or convert the file: {convert}\n"
        f"Then set ssl.{kind}.type=PEM and ssl.{kind}.location={pem}, without ssl.{kind}.password"
        + (", and ssl.key.password" if is_key_store else ""),
    )


def _certificates_of(store: PKCS12KeyAndCertificates) -> str:
    certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    return "".join(map(_pem, certificates))


def _identity_of(store: PKCS12KeyAndCertificates) -> Identity:
    """Return the key and its certificates, the client's first and then each issuer. Raises ValueError without a key."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ValueError("has no private key with a certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = [store.cert.certificate]
    others = [each.certificate for each in store.additional_certs]
    while issuers := [each for each in others if each.subject == chain[-1].issuer]:
        chain.append(issuers[0])
        others.remove(issuers[0])
    return Identity(pem=key + "".join(map(_pem, chain)), password=None)


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


# Java's old format JKS

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_KEY, _JKS_CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"


def jks_certificates(data: bytes, *, password: str | None) -> list[bytes]:
    """Return the DER of every trusted certificate, and of the certificate of each key: Java trusts these too.

    Without a password the file's digest is not checked, as in Java. Raises ValueError for a malformed file or a wrong
    password. Rules: sun.security.provider.JavaKeyStore.engineLoad, sun.security.validator.TrustStoreUtil.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        right = hashlib.sha1(password.encode("utf-16-be", "surrogatepass") + _WHITENER + body)
        if not hmac.compare_digest(right.digest(), digest):
            raise ValueError("the password is wrong, or the file is damaged")
    try:
        return _entries(_JksReader(body))
    except struct.error:
        raise ValueError("the file ends too early, or is damaged") from None


def _entries(reader: _JksReader) -> list[bytes]:
    _, version, count = reader.unpack(">4sii")
    if version not in (1, 2):
        raise ValueError(f"the version {version} of the format is unknown")
    certificates = []
    for _ in range(count):
        (kind,) = reader.unpack(">i")
        reader.block(">H")  # The alias.
        reader.unpack(">q")
        if kind == _JKS_KEY:
            reader.block()
            certificates += [reader.certificate(version) for _ in range(reader.unpack(">i")[0])][:1]
        elif kind == _JKS_CERTIFICATE:
            certificates.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry has the unknown kind {kind}")
    return certificates


class _JksReader:
    """Reads one value after the other. Raises struct.error at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def block(self, length: str = ">i") -> bytes:
        """Return the bytes after their number."""
        (count,) = self.unpack(length)
        if not 0 <= count <= len(self._data) - self._position:
            raise struct.error
        self._position += count
        return self._data[self._position - count : self._position]

    def certificate(self, version: int) -> bytes:
        """Return a certificate. In version 2 its type comes first."""
        if version == 2:
            self.block(">H")
        return self.block()
