"""One record of a coordinator: key and value to fields.

The key begins with the record's type, a number of two bytes; the value begins with the version of its fields. A
record without a value is a tombstone: it removes what an earlier record with the same key has said.

    key      type i16, then the fields of the type's key, never flexible
    value    version i16, then the fields of the type's value in this version

Rules: `CoordinatorRecordSerde`; `DumpLogSegments` for the members of a classic group.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcompact.format.coordinator.schema import Fields, Struct, read_struct
from kcompact.format.field_reader import FieldReader

_SHORT_BYTES = 2


@dataclass(frozen=True, slots=True)
class RecordType:
    """A type of record, with the schemas of its key and its value."""

    number: int
    name: str
    key: Struct
    value: Struct
    last_version: int = 0
    flexible_since: int = 0
    """The versions of the value: 0 to `last_version`. Those from `flexible_since` on are flexible."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of one record. A tombstone has no version and no value."""

    type: RecordType
    key: Fields
    version: int | None = None
    value: Fields | None = None


def decode_record(types: dict[int, RecordType], key: bytes | None, value: bytes | None) -> Decoded:
    """Return the fields of a record. `types` are the types of its topic by number.

    Raises ValueError for a type or version that Kafka does not have, and where bytes contradict the schema.
    """
    if key is None:
        raise ValueError("no key")
    key_reader = FieldReader(key)
    kind = types.get(number := key_reader.integer(_SHORT_BYTES))
    if kind is None:
        raise ValueError(f"record type {number} is unknown")
    key_fields = read_struct(key_reader, kind.key, 0, flexible=False)
    if value is None:
        return Decoded(kind, key_fields)
    version, fields = decode_value(kind, value)
    return Decoded(kind, key_fields, version, fields)


def decode_value(kind: RecordType, value: bytes) -> tuple[int, Fields]:
    """Return the version and the fields of a value. Raises ValueError as `decode_record`."""
    reader = FieldReader(value)
    version = reader.integer(_SHORT_BYTES)
    if not 0 <= version <= kind.last_version:
        raise ValueError(f"version {version} of record type {kind.number} ({kind.name}) is unknown")
    return version, read_struct(reader, kind.value, version, flexible=version >= kind.flexible_since)
