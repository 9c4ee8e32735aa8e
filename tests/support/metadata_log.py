"""Metadata logs and snapshots for tests: records in, the files of a log directory out.

A metadata log has no indexes, and its segments may be damaged here, so its files are given to `log_writer` as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.format import batch
from kcompact.format.batch import Record
from kcompact.format.messages.cluster_metadata import ResourceType
from kcompact.format.messages.control_records import SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from kcompact.format.properties import MetaProperties
from tests.support import log_writer
from tests.support.log_writer import LogSpec
from tests.support.metadata_records import ConfigRecord, MetadataRecord, PartitionRecord, TopicRecord, build_record

NODE_ID = 1
TIME_MS = 1_700_000_000_000
ORDERS, USERS, OTHER = (bytes([number]) * 16 for number in (1, 2, 3))
CLUSTER_ID = "kcompactTestsCluster00"
UNKNOWN = b"\x01\x14\x00\x00"
"""A record of a kind that is not read: NoOpRecord."""


def topic(name: str, topic_id: bytes, **settings: str) -> list[MetadataRecord]:
    """Return the records that make a topic of one partition with settings, written as `cleanup_policy`."""
    configs = [of_topic(name, setting.replace("_", "."), value) for setting, value in settings.items()]
    return [TopicRecord(name, topic_id), *configs, PartitionRecord(0, topic_id, (NODE_ID,))]


def of_topic(name: str, setting: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, name, setting, value)


def of_broker(name: str, setting: str, value: str | None) -> ConfigRecord:
    """Return a dynamic setting of a broker, or with the name "" the default of all."""
    return ConfigRecord(ResourceType.BROKER, name, setting, value)


def batches(records: Sequence[MetadataRecord | bytes], *, start: int = 0, each: int = 3) -> bytes:
    """Return the records in batches of `each`, the first of them with the offset `start`."""
    values = [record if isinstance(record, bytes) else build_record(record) for record in records]
    rows = [Record(start + number, TIME_MS, None, value) for number, value in enumerate(values)]
    return b"".join(batch.build(rows[at : at + each]) for at in range(0, len(rows), each))


def control(kind: int, offset: int, *, log_ends_ms: int = TIME_MS) -> bytes:
    """Return a control batch. The header of a snapshot has the time of the last batch before its end."""
    key = b"\0\0" + kind.to_bytes(2, "big")
    time = log_ends_ms.to_bytes(8, "big") if kind == SNAPSHOT_HEADER else b""
    return batch.build([Record(offset, TIME_MS, key, b"\0\0" + time + b"\0")], control=True)


def snapshot(records: Sequence[MetadataRecord | bytes], *, footer: bool = True, log_ends_ms: int = TIME_MS) -> bytes:
    """Return a whole snapshot, or one whose end was never written."""
    end = control(SNAPSHOT_FOOTER, len(records) + 1) if footer else b""
    return control(SNAPSHOT_HEADER, 0, log_ends_ms=log_ends_ms) + batches(records, start=1) + end


def write(log_dir: Path, files: dict[str, bytes], *, node_id: int = NODE_ID, clean: bool = True) -> Path:
    """Make a log directory of a broker with these files in its metadata log; return it."""
    properties = MetaProperties(version=1, cluster_id=CLUSTER_ID, node_id=node_id, directory_id=None)
    spec = LogSpec(name=METADATA_DIRECTORY, segments=(), files=files, meta_properties=properties, unclean=not clean)
    log_writer.write(spec, log_dir)
    return log_dir


def log(start: int = 0) -> str:
    """Return the name of the segment that starts at an offset."""
    return f"{start:020d}.log"
