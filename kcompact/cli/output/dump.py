"""Batches and records as `kafka-dump-log.sh` (Kafka's `DumpLogSegments`) prints them, or as JSON Lines.

A dump continues as far as the bytes can be read. The error that ends a dump is raised after all lines before it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kcompact.cli.output.text import safe
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Record, read_records, verify_crc
from kcompact.format.codec import Codec
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import parse_file_name
from kcompact.kernels import ABORT, COMMIT
from kcompact.log.batch_headers import read_marker
from kcompact.log.segment_reader import batches


def batch_fields(batch: Batch) -> dict[str, Any]:
    """Return a batch under the names that `DumpLogSegments` prints, in its order."""
    header = batch.header
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
        "position": batch.position,
        _timestamp_type(batch): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": Codec(header.codec_id).name.lower(),
        "crc": header.crc,
        "isvalid": _is_valid(batch),
    }


def record_fields(batch: Batch, record: Record, *, file: str, print_data: bool) -> dict[str, Any]:
    """Return a record under the names that `DumpLogSegments` prints; its key and payload only with `print_data`."""
    header = batch.header
    sequence = (
        -1 if header.base_sequence < 0 else (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    )
    fields: dict[str, Any] = {
        "offset": record.offset,
        _timestamp_type(batch): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name.decode("utf-8", "backslashreplace") for name, _ in record.headers],
    }
    if header.is_control:
        marker = read_marker(batch, file=file)
        if marker is not None and marker.kind in (ABORT, COMMIT):
            fields["endTxnMarker"] = "ABORT" if marker.kind == ABORT else "COMMIT"
            fields["coordinatorEpoch"] = marker.coordinator_epoch
    elif print_data:
        fields |= _content("key", record.key) | _content("payload", record.value)
    return fields


def _is_valid(batch: Batch) -> bool:
    """Return whether the checksum of a batch is right."""
    try:
        verify_crc(batch, file="")
    except CorruptBatchError:
        return False
    return True


def _timestamp_type(batch: Batch) -> str:
    return "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"


def _content(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a key or a payload: under `name` if it is printable text, else in base64 under `nameBase64`."""
    if data is None:
        return {name: None}
    try:
        content = data.decode()
    except UnicodeDecodeError:
        content = None
    if content is not None and all(char.isprintable() or char in "\t\r\n" for char in content):
        return {name: content}
    return {f"{name}Base64": base64.b64encode(data).decode()}


def dump_log(
    path: Path,
    label: str,
    *,
    with_batches: bool,
    with_records: bool,
    print_data: bool,
    as_json: bool,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[str]:
    """Yield the lines of one log file. `label` names the file in them.

    Raises CorruptDataError at the damage, BatchTooLargeError for a batch that needs more than `memory_bytes`.
    """
    name = parse_file_name(path.name)
    if not as_json:
        yield f"Dumping {safe(label)}"
        yield f"Log starting offset: {name.base_offset if name else 0}"
    for batch in batches(path, memory_bytes=memory_bytes):
        fields = batch_fields(batch)
        if with_batches:
            yield json.dumps({"file": label, **fields}) if as_json else line(fields)
        if not with_records:
            continue
        if not fields["isvalid"]:
            raise CorruptBatchError(
                file=label, position=batch.position, offset=batch.header.base_offset, problem="the checksum is wrong"
            )
        for record in read_records(batch, file=label, memory_bytes=memory_bytes):
            record_line = record_fields(batch, record, file=label, print_data=print_data)
            yield json.dumps({"file": label, **record_line}) if as_json else "| " + line(record_line)


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
