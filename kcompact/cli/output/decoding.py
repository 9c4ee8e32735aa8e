"""The records of Kafka's coordinators and of `__cluster_metadata`, decoded.

Text is that of `kafka-dump-log.sh`, JSON that of `kafka-console-consumer.sh`. The two tools have the same fields. As
text the numbers of type and version are strings, and a tombstone is `<DELETE>`. The records of `__cluster_metadata`
have no key; both forms are those of `kafka-dump-log.sh`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kcompact.cli.output.dump import compact
from kcompact.format.batch import Record
from kcompact.format.messages.cluster_metadata import decode_metadata
from kcompact.format.messages.coordinators import RECORD_TYPES, Decoded, decode
from kcompact.format.messages.schema import Fields
from kcompact.format.names import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_TOPIC, parse_directory

_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
    "PrepareEpochFence",
)
"""Rule: `TransactionState`. Releases up to 4.3 print the number."""

DECODED_TOPICS = frozenset({*RECORD_TYPES, CLUSTER_METADATA_TOPIC})


class RecordDecoder:
    """Decodes the records of one partition, and counts those that it cannot decode."""

    def __init__(self, topic: str, *, as_json: bool) -> None:
        self._topic, self._as_json = topic, as_json
        self.failed = 0
        self.first_failure = ""
        """The offset and the problem of the first record that could not be decoded."""

    def content(self, record: Record) -> dict[str, Any]:
        """Return key and payload of a record under the names of a dump. Raises ValueError, and counts it."""
        try:
            if self._topic == CLUSTER_METADATA_TOPIC:
                return self._metadata(record)
            decoded = decode(self._topic, record.key, record.value)
        except ValueError as problem:
            self.left_undecoded(record, str(problem))
            raise
        return _as_json(decoded) if self._as_json else _as_text(decoded)

    def left_undecoded(self, record: Record, problem: str) -> None:
        """Count a record that could not be decoded."""
        self.failed += 1
        self.first_failure = self.first_failure or f"offset {record.offset}: {problem}"

    def _metadata(self, record: Record) -> dict[str, Any]:
        decoded = decode_metadata(record.value)
        fields = {"type": decoded.type.name, "version": decoded.version, "data": decoded.fields}
        return {"key": None, "payload": fields if self._as_json else compact(fields)}


def decoder_for(log: Path, *, as_json: bool) -> RecordDecoder | None:
    """Return the decoder for a log file by the name of its directory, None for a topic that has none."""
    directory = parse_directory(log.absolute().parent.name)
    topic = directory.topic_partition.topic if directory else ""
    if log.name == BOOTSTRAP_CHECKPOINT:
        topic = CLUSTER_METADATA_TOPIC
    return RecordDecoder(topic, as_json=as_json) if topic in DECODED_TOPICS else None


def _as_json(decoded: Decoded) -> dict[str, Any]:
    key = {"type": decoded.type.number, "data": decoded.key}
    payload = None if decoded.value is None else {"version": decoded.version, "data": _with_state(decoded.value)}
    return {"key": key, "payload": payload}


def _as_text(decoded: Decoded) -> dict[str, Any]:
    key = compact({"type": str(decoded.type.number), "data": decoded.key})
    if decoded.value is None:
        return {"key": key, "payload": "<DELETE>"}
    return {"key": key, "payload": compact({"version": str(decoded.version), "data": _with_state(decoded.value)})}


def _with_state(fields: Fields) -> Fields:
    """Return the fields of a value with the name of a transaction's state; the number of a state that Kafka lacks."""
    number = fields.get("transactionStatus")
    if number is None:
        return fields
    return fields | {"transactionStatus": _STATES[number] if 0 <= number < len(_STATES) else str(number)}
