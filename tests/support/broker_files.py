"""Small files that only a broker writes, for tests: values to bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable

from kcompact.format.checksum import crc32c
from kcompact.format.producer_snapshot import PRODUCER_ENTRY_STRUCT, SNAPSHOT_VERSION, ProducerEntry
from kcompact.format.properties import MetaProperties

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: f"\\{char}" for char in "\\:=#! "}


def build_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a `.snapshot`. Rule: ProducerStateManager.writeSnapshot."""
    packed = [PRODUCER_ENTRY_STRUCT.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def build_meta_properties(properties: MetaProperties) -> bytes:
    """Return the bytes of a `meta.properties`, without the two comment lines that Java writes first."""
    named = {
        "cluster.id": properties.cluster_id,
        "version": properties.version,
        "directory.id": properties.directory_id,
        "broker.id" if properties.version == 0 else "node.id": properties.node_id,
    }
    lines = (f"{name}={_escaped(str(value))}\n" for name, value in named.items() if value is not None)
    return "".join(lines).encode("iso-8859-1")


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(char, char) for char in text)


def build_partition_metadata(topic_id: str) -> bytes:
    """Return the bytes of a `partition.metadata`; its last line has no line end. Rule: PartitionMetadata.encode."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def build_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the bytes of a `.kafka_cleanshutdown`. Rule: CleanShutdownFileHandler.write; KIP-966."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
