"""Reads the fields of a message in order: integers and runs of bytes.

The records of the metadata log and those of the coordinators are messages of Kafka's protocol.
"""

from __future__ import annotations

_MAX_VARINT_BYTES = 5


class FieldReader:
    """Reads the fields of a message in order. Raises ValueError when a field is longer than the rest of the message."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0
        self.skipped_fields = 0
        """How many tagged fields the schema did not have."""

    @property
    def remaining(self) -> int:
        return len(self._message) - self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._message):
            raise ValueError(f"a field of {size} bytes, {len(self._message) - start} are left")
        return self._message[start : self._at]

    def uvarint(self) -> int:
        """Return an unsigned integer of variable length, seven bits a byte, lowest first."""
        value = 0
        if self._at < len(self._message) and self._message[self._at] < 0x80:  # The usual case.
            self._at += 1
            return self._message[self._at - 1]
        for number in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value
        raise ValueError("a variable-length integer is too long")

    def integer(self, size: int, *, signed: bool = True) -> int:
        """Return an integer of `size` bytes, big-endian."""
        return int.from_bytes(self.take(size), "big", signed=signed)
