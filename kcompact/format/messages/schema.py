"""The schemas of Kafka's messages: their fields as values, and one reader for all of them.

A schema is a `Struct` of `Field`s. A field belongs to a range of versions. From some version on a message may be
*flexible*. The widths of its fields then change, and each of its structs ends with tagged fields:

                   not flexible                       flexible
    string         length i16, bytes                  length + 1 as unsigned varint, bytes
    bytes          length i32, bytes                  length + 1 as unsigned varint, bytes
    array          count i32, elements                count + 1 as unsigned varint, elements
    null           length or count -1                 length or count 0
    struct         its fields                         its fields; count, then tag, size and value of each tagged field

A struct that may be null begins with a byte, negative for null; as a tagged field with a varint, 0 for null.

Example: the string "a" is `00 01 61`, and `02 61` in a flexible message.

The result is what Kafka's JSON converters write: bytes in base64, a UUID as Kafka prints it, and a tagged field only
if it has another value than its default. Like Kafka, the reader skips unknown tagged fields, ignores the sizes of
known ones, and ignores bytes after the last field.
Rules: KIP-482 (flexible versions), `ByteBufferAccessor`, the classes that Kafka's `MessageGenerator` writes.
"""

from __future__ import annotations

import base64
import struct as pack
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, TypeAlias

from kcompact.format.batch import java_string

Value: TypeAlias = "int | float | str | list[Value] | dict[str, Value] | None"
Fields: TypeAlias = dict[str, Any]
"""The values of a struct by the names of its fields: each is a `Value`."""

_MAX_STRING_BYTES = 0x7FFF
_UUID_BYTES = 16
_FLOAT64 = pack.Struct(">d")
_MAX_VARINT_BYTES = 5
ANY_VERSION = 0x7FFF


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of some bytes, big-endian."""

    size_bytes: int
    is_signed: bool = True


INT8, INT16, INT32, INT64 = map(Integer, (1, 2, 4, 8))
UINT16 = Integer(2, is_signed=False)


class Primitive(Enum):
    """The other types of fields that contain no others."""

    FLOAT64 = auto()
    BOOL = auto()
    STRING = auto()
    BYTES = auto()
    UUID = auto()


FLOAT64, BOOL, STRING, BYTES, UUID = Primitive

NO_UUID = "A" * 22
"""The UUID of zeros, which Kafka takes for none."""


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of elements of one type."""

    element: Integer | Primitive | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    type: Integer | Primitive | Array | Struct
    since: int = 0
    until: int = ANY_VERSION
    """The first and the last version that have the field."""
    nullable: bool = False
    tag: int | None = None
    """The number of a tagged field, None for any other."""
    default: Value = None
    """The value of a tagged field that is missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields in their order. Each struct of a schema is a value of its own: its fields are looked up by identity."""

    fields: tuple[Field, ...]
    last_version: int = ANY_VERSION
    """The reader refuses later versions. A record's version is checked before it is read."""


def struct(*fields: Field) -> Struct:
    """Return a struct of these fields."""
    return Struct(fields)


NO_FIELDS = struct()


@dataclass(frozen=True, slots=True)
class Message:
    """A type of message. The messages of some kinds have a key, which is never flexible."""

    number: int
    name: str
    value: Struct
    last_version: int = 0
    flexible_since: int = 0
    """The versions of the value: 0 to `last_version`. Those from `flexible_since` on are flexible."""
    key: Struct = NO_FIELDS

    def read(self, reader: FieldReader, version: int) -> Fields:
        """Return the fields of the value. Raises ValueError for another version, and as `read_struct`."""
        if not 0 <= version <= self.last_version:
            raise ValueError(f"version {version} of record type {self.number} ({self.name}) is unknown")
        return read_struct(reader, self.value, version, flexible=version >= self.flexible_since)


def by_number(*types: Message) -> dict[int, Message]:
    """Return the types of message by their numbers."""
    return {each.number: each for each in types}


# Reading


class FieldReader:
    """Reads the fields of a message in order. Raises ValueError when a field is longer than the rest of the message.

    A *strict* reader refuses text that is not UTF-8, where Java replaces the wrong bytes, and counts of more than 31
    bits, which Java takes for negative.
    """

    def __init__(self, message: bytes, *, is_strict: bool = False) -> None:
        self._message = message
        self._is_strict = is_strict
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

    def count(self) -> int:
        """Return an unsigned varint as Kafka uses it for counts, sizes and tags: as a signed integer of 32 bits."""
        value = self.uvarint()
        if value < 1 << 31:
            return value
        if self._is_strict:
            raise ValueError("a count of more than 31 bits")
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)

    def integer(self, size: int, *, signed: bool = True) -> int:
        """Return an integer of `size` bytes, big-endian."""
        return int.from_bytes(self.take(size), "big", signed=signed)

    def text(self, size: int) -> str:
        """Return the text in the next `size` bytes."""
        data = self.take(size)
        if not self._is_strict:
            return java_string(data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ValueError("a string that is not UTF-8") from None


def read_struct(reader: FieldReader, schema: Struct, version: int, *, flexible: bool) -> Fields:
    """Return the fields of a struct. Raises ValueError where the bytes contradict the schema."""
    if version > schema.last_version:
        raise ValueError(f"version {version} is unknown")
    values = read_fields(reader, schema, version, flexible=flexible)
    count = reader.count() if flexible else 0
    if count <= 0:
        return values
    values |= _read_tagged(reader, count, schema, version)
    return {field.name: values[field.name] for field in schema.fields if field.name in values}


def read_fields(reader: FieldReader, schema: Struct, version: int, *, flexible: bool) -> Fields:
    """Return the fields of a struct that are not tagged. Raises ValueError as `read_struct`."""
    return {
        field.name: _read(reader, field.type, version, flexible=flexible, nullable=field.nullable, name=field.name)
        for field in _untagged(schema, version)
    }


# A metadata log has many records of a few types, so what follows from the schema alone is worked out once.


@cache
def _untagged(schema: Struct, version: int) -> tuple[Field, ...]:
    return tuple(field for field in schema.fields if field.tag is None and field.since <= version <= field.until)


@cache
def _tagged(schema: Struct) -> Mapping[int, Field]:
    return {field.tag: field for field in schema.fields if field.tag is not None}


def _read_tagged(reader: FieldReader, count: int, schema: Struct, version: int) -> Fields:
    """Return those of the next `count` tagged fields that have another value than their default.

    For Kafka a struct that has unknown fields is not the default.
    """
    known = _tagged(schema)
    values: Fields = {}
    for _ in range(count):
        tag, size = reader.count(), reader.count()
        field, skipped_before = known.get(tag), reader.skipped_fields
        if field is None:
            reader.take(size)
            reader.skipped_fields += 1
            continue
        value = _read_tagged_value(reader, field, version)
        values.pop(field.name, None)
        if value != field.default or reader.skipped_fields > skipped_before:
            values[field.name] = value
    return values


def _read_tagged_value(reader: FieldReader, field: Field, version: int) -> Value:
    if not isinstance(field.type, Struct):
        return _read(reader, field.type, version, flexible=True, nullable=field.nullable, name=field.name)
    return None if reader.count() <= 0 else read_struct(reader, field.type, version, flexible=True)


def _read(
    reader: FieldReader,
    kind: Integer | Primitive | Array | Struct,
    version: int,
    *,
    flexible: bool,
    nullable: bool,
    name: str,
) -> Value:
    """Return one value. `nullable` is whether the schema allows null; `name` is for the message of the error."""
    # The usual types come first: a metadata log has many of them, and a `match` takes longer.
    if isinstance(kind, Integer):
        return reader.integer(kind.size_bytes, signed=kind.is_signed)
    if kind is UUID:
        return base64.urlsafe_b64encode(reader.take(_UUID_BYTES)).decode().rstrip("=")
    if kind is BOOL:
        return reader.integer(1) != 0
    if kind is FLOAT64:
        (number,) = _FLOAT64.unpack(reader.take(_FLOAT64.size))
        return float(number)
    value: Value
    if kind is STRING:
        value = _string(reader, flexible=flexible, name=name)
    elif isinstance(kind, Array):
        value = _array(reader, kind.element, version, flexible=flexible, name=name)
    elif isinstance(kind, Struct):
        is_null = nullable and reader.integer(1) < 0
        value = None if is_null else read_struct(reader, kind, version, flexible=flexible)
    else:
        size = _length(reader, 4, flexible=flexible)
        value = None if size < 0 else base64.b64encode(reader.take(size)).decode()
    if value is None and not nullable:
        raise ValueError(f"{name} is null")
    return value


def _string(reader: FieldReader, *, flexible: bool, name: str) -> str | None:
    size = _length(reader, 2, flexible=flexible)
    if size > _MAX_STRING_BYTES:
        raise ValueError(f"{name} is a string of {size} bytes, longer than any")
    return None if size < 0 else reader.text(size)


def _array(
    reader: FieldReader, element: Integer | Primitive | Struct, version: int, *, flexible: bool, name: str
) -> list[Value] | None:
    count = _length(reader, 4, flexible=flexible)
    if count > reader.remaining:
        raise ValueError(f"{name} has {count} elements, but only {reader.remaining} bytes are left")
    if count < 0:
        return None
    if isinstance(element, Integer):
        return [reader.integer(element.size_bytes, signed=element.is_signed) for _ in range(count)]
    return [_read(reader, element, version, flexible=flexible, nullable=False, name=name) for _ in range(count)]


def _length(reader: FieldReader, width: int, *, flexible: bool) -> int:
    """Return the length of a string or of bytes, or the count of an array; negative for null."""
    return reader.count() - 1 if flexible else reader.integer(width)
