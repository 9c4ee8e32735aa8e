"""Batches, records and single files, in the words of Kafka's `DumpLogSegments`: as its lines, or as JSON Lines.

A dump goes on as far as the bytes can be read; the error that ends it is raised after everything before it is out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kcompact.cli.output.text import safe
from kcompact.errors import CorruptBatchError, RefusedError
from kcompact.format import index
from kcompact.format.batch import Batch, Record, read_records, verify_crc
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kcompact.format.codec import Codec
from kcompact.format.names import FileName, Suffix, Temporary, parse_file_name
from kcompact.format.producer_snapshot import parse_snapshot
from kcompact.format.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.log.batch_headers import ABORT, COMMIT, read_marker
from kcompact.log.files import read_file
from kcompact.log.segment_reader import batches

_OFFSET_CHECKPOINTS = (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)


# Batches and records


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
    """Return a record under the names that `DumpLogSegments` prints; its key and payload only if asked for."""
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
    try:
        verify_crc(batch, file="")
    except CorruptBatchError:
        return False
    return True


def _timestamp_type(batch: Batch) -> str:
    return "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"


def _content(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a key or a payload: `name` for text, `nameBase64` for bytes that are none."""
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
    path: Path, label: str, *, with_batches: bool, with_records: bool, print_data: bool, as_json: bool
) -> Iterator[str]:
    """Yield the lines of one log file. `label` names the file in them. Raises CorruptDataError at the damage."""
    name = parse_file_name(path.name)
    if not as_json:
        yield f"Dumping {safe(label)}"
        yield f"Log starting offset: {name.base_offset if name else 0}"
    for batch in batches(path):
        fields = batch_fields(batch)
        if with_batches:
            yield json.dumps({"file": label, **fields}) if as_json else line(fields)
        if not with_records:
            continue
        if not fields["isvalid"]:
            raise CorruptBatchError(
                file=label, position=batch.position, offset=batch.header.base_offset, problem="the checksum is wrong"
            )
        for record in read_records(batch, file=label):
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
        return "[" + ",".join(safe(str(each)) for each in value) + "]"
    return safe(str(value))


# Single files


def kind_of(path: Path) -> str:
    """Return what a single file is: `log`, `index`, ..., or the name of a checkpoint. Raises RefusedError."""
    if path.name in (*_OFFSET_CHECKPOINTS, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, META_PROPERTIES):
        return path.name
    parsed = _parsed(path)
    if parsed is None:
        raise RefusedError(
            path=path,
            problem="no file of Kafka's, by its name",
            hint="inspect reads .log, .index, .timeindex, .txnindex, .snapshot and the checkpoint files.",
        )
    return parsed.suffix.removeprefix(".")


def base_offset_of(path: Path) -> int:
    """Return the number in a file's name."""
    parsed = _parsed(path)
    return parsed.base_offset if parsed else 0


def is_aside(path: Path) -> bool:
    """Whether the file carries a second suffix, `.cleaned`, `.swap` or `.deleted`."""
    parsed = _parsed(path)
    return parsed is not None and parsed.temporary is not Temporary.NO


def _parsed(path: Path) -> FileName | None:
    return parse_file_name(path.name)


def entries_of(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a single file other than a log, under Kafka's names. Raises CorruptDataError."""
    data, file, base = read_file(path), str(path), base_offset_of(path)
    readers: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "index": lambda: _offset_entries(data, base, file),
        "timeindex": lambda: _time_entries(data, base, file),
        "txnindex": lambda: _txn_entries(data, base, file),
        "snapshot": lambda: _producer_entries(data, file),
        LEADER_EPOCH_CHECKPOINT: lambda: [
            {"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in parse_leader_epochs(data, file=file)
        ],
        PARTITION_METADATA: lambda: [asdict(parse_partition_metadata(data, file=file))],
        META_PROPERTIES: lambda: [asdict(parse_meta_properties(data, file=file))],
    } | dict.fromkeys(_OFFSET_CHECKPOINTS, lambda: _checkpoint_entries(data, file))
    return readers[kind_of(path)]()


def _offset_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    entries = index.parse_offset_index(data, base_offset=base, file=file)
    return [{"offset": base + relative, "position": position} for relative, position in entries]


def _time_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    entries = index.parse_time_index(data, base_offset=base, file=file)
    return [{"timestamp": timestamp, "offset": base + relative} for timestamp, relative in entries]


def _txn_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    return [
        {
            "version": index.ABORTED_TXN_VERSION,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        for entry in index.parse_txn_index(data, base_offset=base, file=file)
    ]


def _producer_entries(data: bytes, file: str) -> list[dict[str, Any]]:
    return [
        {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.current_txn_first_offset,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        for entry in parse_snapshot(data, file=file)
    ]


def _checkpoint_entries(data: bytes, file: str) -> list[dict[str, Any]]:
    return [
        {"topic": key.topic, "partition": key.partition, "offset": offset}
        for key, offset in parse_offset_checkpoint(data, file=file).items()
    ]


def is_log(path: Path) -> bool:
    """Whether the file is a segment's log."""
    return kind_of(path) == Suffix.LOG.removeprefix(".")
