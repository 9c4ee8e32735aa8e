"""JSON that kcompact writes for a later run, and that decides what is renamed and deleted.

A document is one JSON object on one line. Its last field, `crc32c`, is the CRC-32C of all bytes before the comma in
front of it. A field that occurs twice is an error. A `SealedDocument` declares the fields of a dataclass once, for
writing and for reading:

    _FILE = Document(StagedFile, name=TEXT, size_bytes=NUMBER.called("size"))

The reader is strict: exactly these fields, each of its type. Everything else raises ValueError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kcompact.format.checksum import crc32c
from kcompact.values import dataclass

_CHECKSUM = re.compile(rb',"crc32c":(0|[1-9][0-9]{0,9})\}\n')
"""The end of a document."""
_CHECKSUM_BYTES = len(b',"crc32c":4294967295}\n')


def sealed(document: Mapping[str, object]) -> bytes:
    """Return a document with its checksum. The document has at least one field."""
    content = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return content + b',"crc32c":%d}\n' % crc32c(content)


def unsealed(content: bytes) -> object:
    """Return a document without its checksum.

    Raises ValueError for a wrong checksum, for anything but JSON, and for a field that occurs twice.
    """
    end = _CHECKSUM.search(content, max(0, len(content) - _CHECKSUM_BYTES))
    if end is None or end.end() != len(content):
        raise ValueError("there is no checksum at the end")
    if int(end[1]) != crc32c(content[: end.start()]):
        raise ValueError("the checksum is wrong")
    return json.loads(content[: end.start()] + b"}", object_pairs_hook=_object)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


# --- The fields -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """How a value is read, with its checks, and written. `key` names its field if the attribute has another name."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value
    key: str = ""

    def called(self, key: str) -> Value:
        """Return the same value under another name."""
        return replace(self, key=key)


def _text(field: object) -> str:
    if not isinstance(field, str):
        raise ValueError("expected a text")
    return field


def _whole_number(least: int) -> Value:
    def read(field: object) -> int:
        if type(field) is not int or not least <= field < 2**64:
            raise ValueError("expected a whole number")
        return field

    return Value(read)


def _flag(field: object) -> bool:
    if not isinstance(field, bool):
        raise ValueError("expected true or false")
    return field


def _mapping(field: object) -> dict[str, Any]:
    if not isinstance(field, dict):
        raise ValueError("expected an object")
    return field


TEXT = Value(_text)
FLAG = Value(_flag)
OBJECT = Value(_mapping)
"""An object whose values its user checks."""
NUMBER = _whole_number(0)
"""A whole number from 0 to 2**64 - 1."""
TIME = _whole_number(-(2**63))
"""A time, which may lie before 1970."""
ANYTHING = Value(lambda field: field)
"""A value that is only compared, or that its user checks."""


def optional(value: Value) -> Value:
    """Return a value that may be null."""
    return Value(
        lambda field: None if field is None else value.read(field),
        lambda kept: None if kept is None else value.write(kept),
    )


def listed(each: Value | SealedDocument[Any]) -> Value:
    """Return a list of values, which is read as a tuple."""

    def read(field: object) -> tuple[Any, ...]:
        if not isinstance(field, list):
            raise ValueError("expected a list")
        return tuple(map(each.read, field))

    return Value(read, lambda kept: list(map(each.write, kept)))


def mapped(each: Value) -> Value:
    """Return an object with any names."""
    return Value(
        lambda field: {name: each.read(value) for name, value in _mapping(field).items()},
        lambda kept: {name: each.write(value) for name, value in kept.items()},
    )


Kept = TypeVar("Kept")


class SealedDocument(Generic[Kept]):
    """The fields of a dataclass in a document, in the order in which they are written.

    `make` gets the attributes by their names. A `SealedDocument` among the values has its fields beside the others.
    With `version` the first field is the version of the document; `other_version` is the problem with any other.
    """

    def __init__(
        self,
        make: Callable[..., Kept],
        *,
        version: int | None = None,
        other_version: str = "version {}",
        **values: Value | SealedDocument[Any],
    ) -> None:
        self._make = make
        self._version = version
        self._other_version = other_version
        self._values = values
        self.names: tuple[str, ...] = () if version is None else ("version",)
        for name, value in values.items():
            self.names += value.names if isinstance(value, SealedDocument) else (value.key or name,)

    def write(self, kept: Kept) -> dict[str, Any]:
        """Return the object with these fields."""
        document: dict[str, Any] = {} if self._version is None else {"version": self._version}
        for name, value in self._values.items():
            written = value.write(getattr(kept, name))
            document |= written if isinstance(value, SealedDocument) else {value.key or name: written}
        return document

    def read(self, document: object) -> Kept:
        """Return what an object with exactly these fields says. Raises ValueError for anything else."""
        fields = document if isinstance(document, dict) else {}
        if self._version is not None and "version" in fields and NUMBER.read(fields["version"]) != self._version:
            raise ValueError(self._other_version.format(fields["version"]))
        if fields.keys() != set(self.names):
            raise ValueError(f"expected an object of {', '.join(self.names)}")
        attributes = {}
        for name, value in self._values.items():
            if isinstance(value, SealedDocument):
                attributes[name] = value.read({each: fields[each] for each in value.names})
            else:
                attributes[name] = value.read(fields[value.key or name])
        return self._make(**attributes)
