"""Batches and records as `kafka-dump-log.sh` (Kafka's `DumpLogSegments`) prints them, or as JSON Lines.

Each line is defined here, from the fields of a batch or a record. `record_lines` writes the lines of records by kernel.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.format import legacy
from kcompact.format.batch import Header, Record
from kcompact.format.codec import Codec
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.messages.control_records import decode_quorum_record
from kcompact.format.names import BOOTSTRAP_CHECKPOINT, parse_file_name, parse_metadata_snapshot_name
from kcompact.kernels import ABORT
from kcompact.log.files import LogFile
from kcompact.log.markers import marker_of
from kcompact.log.past_damage import Unreadable
from kcompact.log.segment_reader import batches
from kcompact.readable import safe
from kcompact.values import dataclass


class Decoder(Protocol):
    """Turns the key and the value of a record into fields of its line."""

    def content(self, record: Record) -> dict[str, Any]:
        """Return the fields. Raises ValueError for a record that cannot be decoded."""
        ...

    def left_undecoded(self, record: Record, problem: str) -> None:
        """Count a control record that could not be decoded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """What the lines of a log look like. `label` names its file in them."""

    label: str
    file: LogFile
    with_batches: bool = True
    print_data: bool = False
    as_json: bool = False
    decoder: Decoder | None = None

    def heading(self) -> str:
        """Return the lines before the first batch, with their ends."""
        return "" if self.as_json else f"Dumping {safe(self.label)}\n{_first_line(self.file.name)}\n"

    def batch_line(self, header: Header, position: int, *, is_valid: bool) -> str:
        """Return the line of a batch at a position of the file, with its end."""
        return self.printed(header_fields(header, position, is_valid=is_valid), is_record=False)

    def record_line(self, header: Header, position: int, record: Record) -> str:
        """Return the line of a record of such a batch, with its end."""
        return self.printed(self.record_fields(header, position, record), is_record=True)

    def record_fields(self, header: Header, position: int, record: Record) -> dict[str, Any]:
        """Return a record under the names that `DumpLogSegments` prints.

        Key and payload only with `print_data` or a decoder. A record that cannot be decoded has them as they are.
        """
        fields = _record_facts(header, record)
        if header.magic < 2:
            # A wrong checksum inside a wrapper makes the whole batch unreadable.
            fields |= {"isValid": True, "crc": _legacy_checksum(self.file, header, position, record.offset)}
        if header.is_control:
            fields |= self._control_fields(header, position, record)
        elif self.decoder is not None:
            try:
                fields |= self.decoder.content(record)
            except ValueError as problem:
                fields |= _contents(record) | {"decodeError": str(problem)}
        elif self.print_data:
            fields |= _contents(record)
        return fields

    def _control_fields(self, header: Header, position: int, record: Record) -> dict[str, Any]:
        """Return what a control record says: the end of a transaction, or a record of a KRaft quorum.

        Where keys and values are shown, one of an unknown type or version has them as they are.
        """
        try:
            marker = marker_of(record, header, position, file=self.label)
            if marker.ends_transaction:
                kind = "ABORT" if marker.kind == ABORT else "COMMIT"
                return {"endTxnMarker": kind, "coordinatorEpoch": marker.coordinator_epoch}
            quorum = decode_quorum_record(marker.kind, record.value)
        except CorruptBatchError as problem:
            return self._undecoded(record, problem.problem, {"decodeError": problem.problem})
        except ValueError as problem:
            return self._undecoded(record, str(problem), {"decodeError": str(problem)})
        if quorum is None:
            unknown = f"control record type {marker.kind} is unknown"
            return self._undecoded(record, unknown, {"controlType": marker.kind})
        name, content = quorum
        return {name: content if self.as_json else compact(content)}

    def _undecoded(self, record: Record, problem: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a control record that could not be decoded."""
        if self.decoder is not None:
            self.decoder.left_undecoded(record, problem)
        return (_contents(record) if self.print_data or self.decoder is not None else {}) | fields

    def unreadable_lines(self, part: Unreadable) -> str:
        """Return the lines of a part that cannot be read, with their ends: of its batch if it is one, and what it is.

        An incomplete batch at the end has the line of `DumpLogSegments`.
        """
        lines = ""
        if self.with_batches and part.header is not None:
            lines = self.batch_line(part.header, part.position, is_valid=part.has_right_checksum)
        if not self.as_json and part.is_at_end and part.header is None:
            return f"{lines}Found {part.size_bytes} invalid bytes at the end of {safe(self.file.name)}\n"
        problem = part.problem.size if isinstance(part.problem, BatchTooLargeError) else part.problem.problem
        fields = {
            "unreadable": problem,
            "position": part.position,
            "endPosition": part.end_position,
            "size": part.size_bytes,
            "afterOffset": None if part.after_offset < 0 else part.after_offset,
        }
        return lines + self.printed(fields, is_record=False)

    def printed(self, fields: Mapping[str, Any], *, is_record: bool) -> str:
        """Return fields as a line, with its end."""
        if self.as_json:
            return json.dumps({"file": self.label, **fields}) + "\n"
        return f"{'| ' if is_record else ''}{line(fields)}\n"


def _first_line(name: str) -> str:
    """Return what the name of a log says: a segment, or a snapshot of a KRaft metadata log."""
    snapshot = parse_metadata_snapshot_name(name)
    if snapshot is not None:
        return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    parsed = parse_file_name(name)
    return f"Log starting offset: {parsed.base_offset if parsed else 0}"


# Fields


def header_fields(header: Header, position: int, *, is_valid: bool) -> dict[str, Any]:
    """Return the header of a batch at a position of its file under the names that `DumpLogSegments` prints."""
    end = {
        "position": position,
        _timestamp_type(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": Codec(header.codec_id).name.lower(),
        "crc": header.crc,
        "isvalid": is_valid,
    }
    if header.magic < 2:
        return {"offset": header.last_offset, **end}
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        **end,
    }


def _record_facts(header: Header, record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "offset": record.offset,
        _timestamp_type(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.magic < 2:
        return fields
    sequence = (
        -1 if header.base_sequence < 0 else (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    )
    return fields | {
        "sequence": sequence,
        "headerKeys": [name.decode("utf-8", "backslashreplace") for name, _ in record.headers],
    }


def _legacy_checksum(file: LogFile, header: Header, position: int, offset: int) -> int | None:
    """Return the checksum of a record in a batch of magic 0 or 1."""
    if not header.codec_id:
        return header.crc
    return _checksums_inside(file, position, header.size_bytes).get(offset)


@lru_cache(maxsize=1)
def _checksums_inside(file: LogFile, position: int, size_bytes: int) -> dict[int, int]:
    """Return the checksums of the records in a wrapper, by offset."""
    try:
        (batch,) = batches(file, start_position=position, end_position=position + size_bytes)
        entries = legacy.read_entries(batch.data, max_bytes=DEFAULT_MEMORY_BYTES, file=str(file), position=position)
    except (ValueError, CorruptBatchError):
        return {}  # The file has changed since the record was read.
    offsets = (message.offset for message in legacy.messages_of(entries))
    return dict(zip(offsets, legacy.checksums_of(entries), strict=True))


def _timestamp_type(header: Header) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _contents(record: Record) -> dict[str, str | None]:
    return raw_field("key", record.key) | raw_field("payload", record.value)


def raw_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a key or a payload: under `name` if it is printable text, else in base64 under `nameBase64`."""
    if data is None:
        return {name: None}
    try:
        content = data.decode()
    except UnicodeDecodeError:
        content = None
    if content is not None and _is_printable(content):
        return {name: content}
    return {f"{name}Base64": base64.b64encode(data).decode()}


def _is_printable(content: str) -> bool:
    return content.isprintable() or all(char.isprintable() or char in "\t\r\n" for char in content)


def compact(content: object) -> str:
    """Return fields, or a single value, as JSON in the way of Kafka's tools."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def line(fields: Mapping[str, Any]) -> str:
    """Return fields as a line of `DumpLogSegments`."""
    return " ".join(
        f"{safe(name)}: {_printed(name, value)}" for name, value in fields.items() if _is_printed(name, value)
    )


def _is_printed(name: str, value: object) -> bool:
    return value is not None or name == "deleteHorizonMs"  # A null key or payload is not printed.


def _printed(name: str, value: object) -> str:
    if name == "deleteHorizonMs":
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(safe(str(element)) for element in value) + "]"
    return safe(str(value))
