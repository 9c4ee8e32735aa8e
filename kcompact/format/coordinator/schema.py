"""Messages of Kafka's protocol: their fields as values, and one reader for all of them.

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
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from kcompact.format.batch import java_string
from kcompact.format.field_reader import FieldReader

Value: TypeAlias = "int | float | str | list[Value] | dict[str, Value] | None"
Fields: TypeAlias = dict[str, Value]

_MAX_STRING_BYTES = 0x7FFF
_UUID_BYTES = 16
_FLOAT64 = pack.Struct(">d")
_ANY_VERSION = 0x7FFF


class Primitive(Enum):
    """The types of fields that contain no others."""

    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    BOOL = auto()
    STRING = auto()
    BYTES = auto()
    UUID = auto()


INT8, INT16, UINT16, INT32, INT64, FLOAT64, BOOL, STRING, BYTES, UUID = Primitive

_INTEGER_BYTES = {INT8: 1, INT16: 2, UINT16: 2, INT32: 4, INT64: 8}

NO_UUID = "A" * 22
"""The UUID of zeros, which Kafka takes for none."""


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of elements of one type."""

    element: Primitive | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    type: Primitive | Array | Struct
    since: int = 0
    until: int = _ANY_VERSION
    """The first and the last version that have the field."""
    nullable: bool = False
    tag: int | None = None
    """The number of a tagged field, None for any other."""
    default: Value = None
    """The value of a tagged field that is missing."""

    def is_in(self, version: int) -> bool:
        """Return whether a version has the field."""
        return self.since <= version <= self.until


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in their order."""

    fields: tuple[Field, ...]
    last_version: int = _ANY_VERSION
    """The reader refuses later versions. A record's version is checked before it is read."""


def struct(*fields: Field) -> Struct:
    """Return a struct of these fields."""
    return Struct(fields)


def read_struct(reader: FieldReader, schema: Struct, version: int, *, flexible: bool) -> Fields:
    """Return the fields of a struct. Raises ValueError where the bytes contradict the schema."""
    if version > schema.last_version:
        raise ValueError(f"version {version} is unknown")
    values: Fields = {
        field.name: _read(reader, field.type, version, flexible=flexible, nullable=field.nullable, name=field.name)
        for field in schema.fields
        if field.tag is None and field.is_in(version)
    }
    if not flexible:
        return values
    values |= _read_tagged(reader, schema, version)
    return {field.name: values[field.name] for field in schema.fields if field.name in values}


def _read_tagged(reader: FieldReader, schema: Struct, version: int) -> Fields:
    """Return the tagged fields that have another value than their default.

    For Kafka a struct that has unknown fields is not the default.
    """
    known = {field.tag: field for field in schema.fields if field.tag is not None}
    values: Fields = {}
    for _ in range(_uvarint(reader)):
        tag, size = _uvarint(reader), _uvarint(reader)
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
    return None if _uvarint(reader) <= 0 else read_struct(reader, field.type, version, flexible=True)


def _read(
    reader: FieldReader, kind: Primitive | Array | Struct, version: int, *, flexible: bool, nullable: bool, name: str
) -> Value:
    """Return one value. `nullable` is whether the schema allows null; `name` is for the message of the error."""
    value: Value
    match kind:
        case Primitive.STRING:
            value = _string(reader, flexible=flexible, name=name)
        case Primitive.BYTES:
            size = _length(reader, 4, flexible=flexible)
            value = None if size < 0 else base64.b64encode(reader.take(size)).decode()
        case Primitive.UUID:
            return base64.urlsafe_b64encode(reader.take(_UUID_BYTES)).decode().rstrip("=")
        case Primitive.FLOAT64:
            (number,) = _FLOAT64.unpack(reader.take(_FLOAT64.size))
            return float(number)
        case Primitive.BOOL:
            return reader.integer(1) != 0
        case Primitive():
            return reader.integer(_INTEGER_BYTES[kind], signed=kind is not UINT16)
        case Array(element):
            value = _array(reader, element, version, flexible=flexible, name=name)
        case Struct():
            is_null = nullable and reader.integer(1) < 0
            value = None if is_null else read_struct(reader, kind, version, flexible=flexible)
    if value is None and not nullable:
        raise ValueError(f"{name} is null")
    return value


def _string(reader: FieldReader, *, flexible: bool, name: str) -> str | None:
    size = _length(reader, 2, flexible=flexible)
    if size > _MAX_STRING_BYTES:
        raise ValueError(f"{name} is a string of {size} bytes, longer than any")
    return None if size < 0 else java_string(reader.take(size))


def _array(
    reader: FieldReader, element: Primitive | Struct, version: int, *, flexible: bool, name: str
) -> list[Value] | None:
    count = _length(reader, 4, flexible=flexible)
    if count > reader.remaining:
        raise ValueError(f"{name} has {count} elements, but only {reader.remaining} bytes are left")
    if count < 0:
        return None
    return [_read(reader, element, version, flexible=flexible, nullable=False, name=name) for _ in range(count)]


def _length(reader: FieldReader, width: int, *, flexible: bool) -> int:
    """Return the length of a string or of bytes, or the count of an array; negative for null."""
    return _uvarint(reader) - 1 if flexible else reader.integer(width)


def _uvarint(reader: FieldReader) -> int:
    """Return an unsigned varint as Kafka uses it: as a signed integer of 32 bits."""
    return (reader.uvarint() + (1 << 31)) % (1 << 32) - (1 << 31)
