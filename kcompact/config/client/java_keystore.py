"""The certificates in a keystore of Java in the old format JKS. PKCS12 and PEM are other formats.

A file is, with all integers big-endian and each text with two bytes of length before it:

    0xFEEDFEED, version 1 or 2, number of entries
    each entry:      kind (1 key, 2 trusted certificate), alias, creation time (8 bytes)
      a key:         length and bytes of the encrypted key, number of certificates, those certificates
      a certificate: "X.509" (version 2 only), length, DER
    SHA-1 of the password in UTF-16, of the words "Mighty Aphrodite", and of everything before

Certificates are not encrypted. Keys are, with a method that only Java has: kcompact does not read them.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"


def trusted_certificates(data: bytes, *, password: str | None) -> list[bytes]:
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
        return _certificates(_Reader(body))
    except struct.error:
        raise ValueError("the file ends too early, or is damaged") from None


def _certificates(reader: _Reader) -> list[bytes]:
    _, version, count = reader.unpack(">4sii")
    if version not in (1, 2):
        raise ValueError(f"the version {version} of the format is unknown")
    found = []
    for _ in range(count):
        (kind,) = reader.unpack(">i")
        reader.block(">H")  # The alias.
        reader.unpack(">q")
        if kind == _KEY:
            reader.block()
            found += [reader.certificate(version) for _ in range(reader.unpack(">i")[0])][:1]
        elif kind == _CERTIFICATE:
            found.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry has the unknown kind {kind}")
    return found


class _Reader:
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
