"""Decoders of keys and values: `--key-decoder` and `--value-decoder`.

A field that cannot be decoded is shown as without a decoder, and counted. Null is always null.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

from kcompact.cli.output.dump import compact, raw_field
from kcompact.format.batch import Record
from kcompact.readable import counted
from kcompact.remarks import Note, RemarkCode

_CONFLUENT_MAGIC = 0
_CONFLUENT_HEADER = struct.Struct(">bi")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _int(data: bytes) -> int:
    if len(data) not in (4, 8):
        raise ValueError(f"{len(data)} bytes are no int of 4 or 8 bytes")
    return int.from_bytes(data, "big", signed=True)


def _long(data: bytes) -> int:
    if len(data) != 8:
        raise ValueError(f"{len(data)} bytes are no long of 8 bytes")
    return int.from_bytes(data, "big", signed=True)


def _double(data: bytes) -> float | str:
    if len(data) != 8:
        raise ValueError(f"{len(data)} bytes are no double of 8 bytes")
    (number,) = struct.unpack(">d", data)
    if math.isnan(number):
        return "NaN"
    return float(number) if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def _json(data: bytes) -> Any:
    def number(text: str) -> float:
        if not math.isfinite(float(text)):  # Also NaN and Infinity, which are not JSON.
            raise ValueError(f"{text} is no number of JSON, or too large")
        return float(text)

    try:
        content = json.loads(data.decode(), parse_constant=number, parse_float=number)
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no text") from None
    return content


def _confluent(data: bytes) -> dict[str, Any]:
    """Return the schema id and the rest of what a serializer with Confluent's schema registry writes."""
    if len(data) < _CONFLUENT_HEADER.size or data[0] != _CONFLUENT_MAGIC:
        raise ValueError("does not begin with a zero and a schema id")
    _, schema_id = _CONFLUENT_HEADER.unpack_from(data)
    return {"schemaId": schema_id, "base64": _base64(data[_CONFLUENT_HEADER.size :])}


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "utf8": bytes.decode,
    "hex": bytes.hex,
    "base64": _base64,
    "int": _int,
    "long": _long,
    "double": _double,
    "json": _json,
    "confluent": _confluent,
}
"""Each returns what JSON shows, or raises ValueError."""


class FieldDecoder:
    """Decodes the keys and the values of records, each by its decoder or, without one, as they are."""

    def __init__(self, key: str | None, value: str | None, *, as_json: bool) -> None:
        self.names = {"key": key, "payload": value}
        self._as_json = as_json
        self.failed = {"key": 0, "payload": 0}
        self._first: dict[str, str] = {}

    def content(self, record: Record) -> dict[str, Any]:
        """Return key and payload of a record."""
        return self._field("key", record.key, record.offset) | self._field("payload", record.value, record.offset)

    def decoded(self, field: str, data: bytes, offset: int) -> Any:
        """Return the key or the payload of a record, which has a decoder. Raises ValueError, and counts it."""
        try:
            return DECODERS[self.names[field] or ""](data)
        except ValueError as problem:
            self.failed[field] += 1
            self._first.setdefault(field, f"offset {offset}: {problem}")
            raise

    def left_undecoded(self, record: Record, problem: str) -> None:
        """Do nothing: a control record is not decoded by these decoders."""

    def notes(self) -> list[Note]:
        """Return a note for the keys and one for the values that could not be decoded."""
        decoding_notes = []
        for field, noun in (("key", "key"), ("payload", "value")):
            count = self.failed[field]
            if count:
                decoding_notes.append(
                    Note.of(
                        RemarkCode.FIELD_NOT_DECODED,
                        fields=counted(count, noun),
                        decoder=self.names[field],
                        are="is" if count == 1 else "are",
                        first=self._first[field],
                    )
                )
        return decoding_notes

    def _field(self, field: str, data: bytes | None, offset: int) -> dict[str, Any]:
        if data is None or self.names[field] is None:
            return raw_field(field, data)
        try:
            decoded = self.decoded(field, data, offset)
        except ValueError:
            return raw_field(field, data)
        if self._as_json or isinstance(decoded, str):
            return {field: decoded}
        return {field: compact(decoded)}
