"""The log directories of three brokers, small, with replicas that agree and replicas that differ in every way.

`write` makes them. The metadata log of the first one says who leads `carts-0`: the first broker, with the second one in
sync. It names all three as replicas of `alone-0`, which only the first one has.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.engine.in_process import InProcess
from kcompact.format.batch import Record, build
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, MetaProperties, encode_uuid
from kcompact.log.directory import partition_of, read_log_dir
from kcompact.questions.compare.answer import ComparedPartition, compare_partition
from kcompact.questions.compare.pairs import PairedPartition, Side
from tests.support import examples, log_dsl, log_writer, metadata_log
from tests.support.command_line import LOG0, flip
from tests.support.metadata_records import MetadataRecord, PartitionRecord, TopicRecord

NODES = (1, 2, 3)
CARTS, OTHER = (letter * 16 for letter in (b"c", b"o"))

LOGS = {
    # The same records, compressed another way.
    "rebuilt-0": ("0: [a=1 b=2](lz4)\n2: c=3", "0: [a=1 b=2](gzip)\n2: c=3"),
    # The second one was elected without all records of the first one.
    "forked-0": ("0: a=1(leader=1) b=2@1(leader=1)\n2:", "0: a=1(leader=1) c=9@1(leader=2)\n2:"),
    # The second one is behind.
    "behind-0": ("0: a=1 b=2\n2: c=3", "0: a=1 b=2"),
    # The first one has missed the marker: by the snapshot of the other the transaction has ended.
    "hanging-0": (
        "0: [a=1](pid=7 txn) b=2@1 c=3@3\n4:\nsnapshot 4: pid=7 seq=0 last=0 open=0 at=09:00",
        "0: b=2@1 [abort@2]@2(pid=7) c=3@3\n4:\nsnapshot 4: pid=7 at=09:00",
    ),
    # Only the first one has it.
    "alone-0": ("0: a=1", None),
    # Of a topic that was deleted and created again.
    "recreated-0": ("0: a=1", "0: b=1"),
    # A batch is damaged in the second one.
    "damaged-0": ("0: a=1 b=2 c=3\n3: d=1", "0: a=1 b=2 c=3\n3: d=1"),
}
"""The logs of the first and the second broker."""


def write(home: Path, *, name: str = "broker") -> list[Path]:
    """Write the three log directories into a new directory, and return them."""
    brokers = [examples.build(f"broker-{node}", home / f"{name}-{node}") for node in NODES]
    for directory, texts in LOGS.items():
        for node, text in zip(NODES, texts, strict=False):
            if text is not None:
                spec = log_dsl.parse(f"log name={directory} now=10:00\n{text}")
                topic_id = bytes([node if directory == "recreated-0" else 9]) * 16
                log_writer.write(replace(spec, topic_id=encode_uuid(topic_id)), brokers[node - 1])
    # The key is no text, and the second broker has lost it.
    binary = Record(0, log_writer.DEFAULT_TIME, b"\xff\xfe", b"1")
    for broker, content in ((brokers[0], build([binary])), (brokers[1], b"")):
        log = log_writer.write(log_dsl.parse("log name=binary-0\n0: a=1@1"), broker) / LOG0
        log.write_bytes(content + log.read_bytes())
    flip(brokers[1] / "damaged-0" / LOG0, 70)
    for node, broker in zip(NODES, brokers, strict=True):
        properties = MetaProperties(version=1, cluster_id=metadata_log.CLUSTER_ID, node_id=node, directory_id=None)
        log_writer.write(replace(log_dsl.parse("log name=gone-0\n0: a=1"), meta_properties=properties), broker)
        shutil.rmtree(broker / "gone-0")
    records: list[MetadataRecord] = [
        TopicRecord("carts", CARTS),
        PartitionRecord(0, CARTS, NODES, in_sync=(1, 2), leader=1),
        TopicRecord("alone", b"\t" * 16),
        PartitionRecord(0, b"\t" * 16, NODES, in_sync=(1,), leader=1),
    ]
    metadata_log.write(brokers[0], {metadata_log.log(): metadata_log.batches(records)}, node_id=1)
    assert (brokers[0] / METADATA_DIRECTORY).is_dir()
    return brokers


def answer(directories: Sequence[Path]) -> ComparedPartition:
    """Compare directories of one partition, each in the log directory of its broker. The brokers are 1, 2 and so on."""
    partition = partition_of(directories[0])
    sides = [
        Side(path=each.parent, partitions={partition: each}, node_id=number)
        for number, each in enumerate(directories, start=1)
    ]
    paired = PairedPartition(topic_partition=partition, replicas=tuple(enumerate(directories)))
    log_dirs = [read_log_dir(each.parent) for each in directories]
    return compare_partition(paired, sides, log_dirs, InProcess(parallelism=1), problems=[None] * len(directories))


def written(home: Path, *texts: str) -> list[Path]:
    """Write a log directory for each text, of a broker that was shut down cleanly; return those of the partition."""
    directories = []
    for number, text in enumerate(texts):
        spec = log_dsl.parse(text if text.startswith("log ") else f"log\n{text}")
        directories.append(log_writer.write(spec, home / str(number)))
        (home / str(number) / CLEAN_SHUTDOWN_FILE).touch()
    return directories
