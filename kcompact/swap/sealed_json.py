"""JSON that kcompact writes for a later run, and that decides what is renamed and deleted.

A document is one JSON object on one line. Its last field, `crc32c`, is the CRC-32C of all bytes before that field. A
field that occurs twice is an error. `fields_of` and the functions after it also check names and types, and raise
ValueError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kcompact.format.checksum import crc32c

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


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """Return an object that has exactly these fields."""
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError(f"expected an object of {', '.join(names)}")
    return value


def list_of(value: object) -> list[object]:
    """Return a list."""
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def text_of(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def integer_of(value: object, *, least: int = 0) -> int:
    """Return a whole number from `least` to 2**64 - 1."""
    if type(value) is not int or not least <= value < 2**64:
        raise ValueError("expected a whole number")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields
