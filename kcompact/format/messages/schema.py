"""The schemas of Kafka's messages: their fields as values, and one reader for all of them.

A schema is a `Struct` of `MessageField`s. A field belongs to a range of versions. From some version on a message may be
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
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeAlias, TypeGuard

from kcompact.errors import UnsupportedError
from kcompact.format.batch import java_string
from kcompact.values import dataclass

Value: TypeAlias = "int | float | str | list[Value] | dict[str, Value] | None"
Fields: TypeAlias = dict[str, Any]
"""The values of a struct by the names of its fields: each is a `Value`."""

_MAX_STRING_BYTES = 0x7FFF
_MAX_VARINT_BYTES = 5
ANY_VERSION = 0x7FFF
_MOST_CACHED = 1024


class Primitive(Enum):
    """The types of fields that contain no others. A type of fixed width has its format in the module `struct`."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UINT16 = "H"
    FLOAT64 = "d"
    BOOL = "?"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"


INT8, INT16, INT32, INT64, UINT16, FLOAT64, BOOL, UUID, STRING, BYTES = Primitive

NO_UUID = "A" * 22
"""The UUID of zeros, which Kafka takes for none."""


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of elements of one type."""

    element: Primitive | Struct


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a struct."""

    name: str
    type: Primitive | Array | Struct
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

    fields: tuple[MessageField, ...]
    last_version: int = ANY_VERSION
    """The reader refuses later versions. A record's version is checked before it is read."""


def struct(*fields: MessageField) -> Struct:
    """Return a struct of these fields."""
    return Struct(fields)


NO_FIELDS = struct()


class UnknownVersionError(ValueError):
    """A newer Kafka has written the record."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type of message. The messages of some kinds have a key, which is never flexible."""

    number: int
    name: str
    value: Struct
    last_version: int = 0
    flexible_since: int = 0
    """The versions of the value: 0 to `last_version`. Those from `flexible_since` on are flexible."""
    key: Struct = NO_FIELDS

    def read(self, reader: FieldReader, version: int) -> Fields:
        """Return the fields of the value. Raises UnknownVersionError for another version, and as `read_struct`."""
        if not 0 <= version <= self.last_version:
            raise UnknownVersionError(f"version {version} of record type {self.number} ({self.name}) is unknown")
        return read_struct(reader, self.value, version, flexible=version >= self.flexible_since)


def by_number(*types: MessageType) -> dict[int, MessageType]:
    """Return the types of message by their numbers."""
    return {each.number: each for each in types}


def unknown_record(*, file: str, position: int, offset: int, problem: str, hint: str = "") -> UnsupportedError:
    """Return the error for a record that decides about the result, and of which the type or the version is unknown."""
    newer = "A newer Kafka wrote this record: install a newer kcompact."
    where = f"position {position}, offset {offset}"
    return UnsupportedError(path=file, problem=f"{where}: {problem}", hint=f"{newer} {hint}".rstrip())


# Reading


class FieldReader:
    """Reads the fields of a message in order. Raises ValueError when a field is longer than the rest of the message.

    A *strict* reader refuses text that is not UTF-8, where Java replaces the wrong bytes, and counts of more than 31
    bits, which Java takes for negative.
    """

    __slots__ = ("_at", "_is_strict", "_message", "skipped_fields")

    def __init__(self, message: bytes, *, is_strict: bool = False) -> None:
        self._message = message
        self._is_strict = is_strict
        self._at = 0
        self.skipped_fields = 0
        """How many tagged fields the schema did not have."""

    @property
    def remaining(self) -> int:
        return len(self._message) - self._at

    def unpack(self, layout: pack.Struct, sizes: Sequence[int]) -> tuple[Any, ...]:
        """Return the next values of fixed width, of which these are the sizes."""
        start, end = self._at, self._at + layout.size
        if end > len(self._message):
            for size in sizes:  # Raises the error of the first value that is missing.
                self.take(size)
        self._at = end
        return layout.unpack_from(self._message, start)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._message):
            raise ValueError(f"a field of {size} bytes, {len(self._message) - start} are left")
        return self._message[start : self._at]

    def uvarint(self) -> int:
        """Return an unsigned integer of variable length, seven bits a byte, lowest first."""
        at = self._at
        if at < len(self._message) and (value := self._message[at]) < 0x80:  # The usual case.
            self._at = at + 1
            return value
        value = 0
        for number in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value
        raise ValueError("a variable-length integer is too long")

    def uvarints(self, number: int) -> Sequence[int]:
        """Return several such integers."""
        start = self._at
        small = self._message[start : start + number]
        if len(small) == number and small.isascii():  # The usual case: one byte each.
            self._at = start + number
            return small
        return [self.uvarint() for _ in range(number)]

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
    return _struct_reader(schema, version, flexible)(reader)


def read_fields(reader: FieldReader, schema: Struct, version: int, *, flexible: bool) -> Fields:
    """Return the fields of a struct that are not tagged. Raises ValueError as `read_struct`."""
    return _fields_reader(schema, version, flexible)(reader)


# A log has many records of a few types. So what follows from a schema and a version is worked out once: the functions
# that read its values.

_ReadValue: TypeAlias = Callable[[FieldReader], Any]
_ReadFields: TypeAlias = Callable[[FieldReader], Fields]


@lru_cache(_MOST_CACHED)
def _struct_reader(schema: Struct, version: int, flexible: bool) -> _ReadFields:
    read_untagged = _fields_reader(schema, version, flexible)
    tagged = {field.tag: (field, _tagged_reader(field, version)) for field in schema.fields if field.tag is not None}

    def read(reader: FieldReader) -> Fields:
        if version > schema.last_version:
            raise ValueError(f"version {version} is unknown")
        values = read_untagged(reader)
        count = reader.count() if flexible else 0
        if count <= 0:
            return values
        values |= _read_tagged(reader, count, tagged)
        return {field.name: values[field.name] for field in schema.fields if field.name in values}

    return read


@lru_cache(_MOST_CACHED)
def _fields_reader(schema: Struct, version: int, flexible: bool) -> _ReadFields:
    present = [field for field in schema.fields if field.tag is None and field.since <= version <= field.until]
    parts: list[tuple[str, _ReadValue]] = []  # Neighbours of fixed width are one part, which has no name.
    for is_fixed, run in groupby(present, key=lambda field: _is_fixed(field.type)):
        if is_fixed:
            parts.append(("", _fixed_fields_reader(list(run))))
        else:
            parts += [
                (each.name, _value_reader(each.type, version, flexible, each.name, nullable=each.nullable))
                for each in run
            ]

    def read(reader: FieldReader) -> Fields:
        values: Fields = {}
        for name, read_part in parts:
            if name:
                values[name] = read_part(reader)
            else:
                values |= read_part(reader)
        return values

    return read


def _is_fixed(kind: Primitive | Array | Struct) -> TypeGuard[Primitive]:
    """Return whether all values of a type have the same width."""
    return isinstance(kind, Primitive) and kind not in (STRING, BYTES)


@lru_cache(_MOST_CACHED)
def _layout(formats: str) -> pack.Struct:
    return pack.Struct(f">{formats}")


def _fixed_fields_reader(fields: Sequence[MessageField]) -> _ReadFields:
    """Return what reads fields of fixed width that follow each other, all at once."""
    formats = [field.type.value for field in fields if _is_fixed(field.type)]
    layout, sizes = _layout("".join(formats)), [_layout(each).size for each in formats]
    names, uuids = [field.name for field in fields], [field.name for field in fields if field.type is UUID]

    def read(reader: FieldReader) -> Fields:
        values = dict(zip(names, reader.unpack(layout, sizes), strict=True))
        for name in uuids:
            values[name] = _uuid_text(values[name])
        return values

    return read


@lru_cache(_MOST_CACHED)
def _uuid_text(uuid: bytes) -> str:
    """Return a UUID as Kafka prints it. A topic's id is in the records of all its partitions."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def _tagged_reader(field: MessageField, version: int) -> _ReadValue:
    if not isinstance(field.type, Struct):
        return _value_reader(field.type, version, True, field.name, nullable=field.nullable)
    read = _struct_reader(field.type, version, True)
    return lambda reader: None if reader.count() <= 0 else read(reader)


def _read_tagged(reader: FieldReader, count: int, known: Mapping[int, tuple[MessageField, _ReadValue]]) -> Fields:
    """Return those of the next `count` tagged fields that have another value than their default.

    For Kafka a struct that has unknown fields is not the default.
    """
    values: Fields = {}
    for _ in range(count):
        tag, size = reader.count(), reader.count()
        if tag not in known:
            reader.take(size)
            reader.skipped_fields += 1
            continue
        (field, read), skipped_before = known[tag], reader.skipped_fields
        value = read(reader)
        values.pop(field.name, None)
        if value != field.default or reader.skipped_fields > skipped_before:
            values[field.name] = value
    return values


def _value_reader(
    kind: Primitive | Array | Struct, version: int, flexible: bool, name: str, *, nullable: bool
) -> _ReadValue:
    """Return what reads one value. `nullable` is whether the schema allows null; `name` is for the error's message."""
    if isinstance(kind, Struct):
        read_fields = _struct_reader(kind, version, flexible)
        return (lambda reader: None if reader.integer(1) < 0 else read_fields(reader)) if nullable else read_fields

    if isinstance(kind, Array):
        return _array_reader(kind.element, version, flexible, name, nullable=nullable)
    if kind is STRING:
        return _string_reader(flexible, name, nullable=nullable)
    return _bytes_reader(flexible, name, nullable=nullable) if kind is BYTES else _fixed_reader(kind)


def _null(name: str, *, nullable: bool) -> Value:
    if nullable:
        return None
    raise ValueError(f"{name} is null")


def _fixed_reader(kind: Primitive) -> _ReadValue:
    layout = _layout(kind.value)
    if kind is UUID:
        return lambda reader: _uuid_text(reader.take(layout.size))
    return lambda reader: reader.unpack(layout, (layout.size,))[0]


def _array_reader(
    element: Primitive | Struct, version: int, flexible: bool, name: str, *, nullable: bool
) -> _ReadValue:
    read_element = _value_reader(element, version, flexible, name, nullable=False)
    number = element.value if _is_fixed(element) and element is not UUID else ""
    size = _layout(number).size

    def read(reader: FieldReader) -> Value:
        count = reader.count() - 1 if flexible else reader.integer(4)
        if count > reader.remaining:
            raise ValueError(f"{name} has {count} elements, but only {reader.remaining} bytes are left")
        if count < 0:
            return _null(name, nullable=nullable)
        if number:
            return list(reader.unpack(_layout(f"{count}{number}"), (size,) * count))
        return [read_element(reader) for _ in range(count)]

    return read


def _string_reader(flexible: bool, name: str, *, nullable: bool) -> _ReadValue:
    def read(reader: FieldReader) -> Value:
        size = reader.count() - 1 if flexible else reader.integer(2)
        if size > _MAX_STRING_BYTES:
            raise ValueError(f"{name} is a string of {size} bytes, longer than any")
        return _null(name, nullable=nullable) if size < 0 else reader.text(size)

    return read


def _bytes_reader(flexible: bool, name: str, *, nullable: bool) -> _ReadValue:
    def read(reader: FieldReader) -> Value:
        size = reader.count() - 1 if flexible else reader.integer(4)
        return _null(name, nullable=nullable) if size < 0 else base64.b64encode(reader.take(size)).decode()

    return read
