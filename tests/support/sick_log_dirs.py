"""Log directories with something wrong, one for each kind of finding of `doctor`.

`HEALTHY` has nothing wrong. Each function of `SICKNESSES` changes such a directory, and returns the options with which
`doctor` then finds its kind; the paths that are examined are the log directory and those beside it that it has made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kcompact.format.properties import MetaProperties, encode_uuid
from kcompact.kernels import libraries
from kcompact.remarks import RemarkCode
from tests.support import log_dsl, log_writer, metadata_log
from tests.support.broker_files import build_meta_properties, build_partition_metadata
from tests.support.command_line import LOG0, LOG3, LOG6, flip, rewrite, running_broker, server_properties
from tests.support.index_entries import ABORTED_TXN
from tests.support.machine_code import without_machine_code
from tests.support.metadata_records import MetadataRecord

BROKER = MetaProperties(version=1, cluster_id="kcompactFixtureBroker0", node_id=1, directory_id="A" * 21 + "Q")
OTHER = replace(BROKER, directory_id="A" * 21 + "g")
HEALTHY = """\
log now=10:00 hw=7
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6
snapshot 3:
snapshot 6:
snapshot 7:
"""
NOW = "2024-01-01T10:00:00Z"
TOPICS = "topics.json"
"""The file beside a log directory that says what its topics have of their own: nothing."""
COMPACT = ("--config", "cleanup.policy=compact")
DELETE = ("--config", "cleanup.policy=delete")

Options = tuple[str, ...]
Sickness = Callable[[Path], "Options | contextlib.AbstractContextManager[Options]"]
SICKNESSES: dict[RemarkCode, list[Sickness]] = {}


def healthy(log_dir: Path, text: str = HEALTHY) -> Path:
    """Write a partition with nothing wrong, the file of its broker and one of its topics; return its directory."""
    if not log_dir.with_name("server.properties").exists():
        properties_file(log_dir)
    spec, topics = replace(log_dsl.parse(text), meta_properties=BROKER), log_dir.with_name(TOPICS)
    known = json.loads(topics.read_text()) if topics.exists() else {}
    topics.write_text(json.dumps(known | {spec.topic_partition.topic: {}}), encoding="utf-8")
    return log_writer.write(spec, log_dir)


def of(kind: RemarkCode) -> Callable[[Sickness], Sickness]:
    def add(sickness: Sickness) -> Sickness:
        SICKNESSES.setdefault(kind, []).append(sickness)
        return sickness

    return add


def orders(log_dir: Path) -> Path:
    return log_dir / "orders-0"


def checkpoint(log_dir: Path, name: str, offset: int, partition: str = "orders 0") -> None:
    (log_dir / name).write_text(f"0\n1\n{partition} {offset}\n", encoding="utf-8")


def another_log_dir(log_dir: Path, properties: MetaProperties) -> Path:
    """Write a second log directory of the broker, with another topic."""
    other = log_dir.with_name("other")
    healthy(other, HEALTHY.replace("log ", "log name=users-0 "))
    properties_file(log_dir)
    (other / "meta.properties").write_bytes(build_meta_properties(properties))
    return other


# Loses records


@of(RemarkCode.LOG_START_ABOVE_END)
def log_start_above_the_end(log_dir: Path) -> Options:
    checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT, 90)
    return COMPACT


@of(RemarkCode.MISSING_LOG)
def log_without_a_segment(log_dir: Path) -> Options:
    (orders(log_dir) / LOG3).unlink()
    return COMPACT


@of(RemarkCode.MISSING_LOG)
def log_without_all_files_of_a_segment(log_dir: Path) -> Options:
    checkpoint(log_dir, CLEANER_OFFSET_CHECKPOINT, 0)
    for path in orders(log_dir).glob("*3.*[xg]"):  # All but the snapshot.
        path.unlink()
    return COMPACT


@of(RemarkCode.ONLY_COPY)
def copy_that_lacks_a_replacement(log_dir: Path) -> Options:
    set_aside(log_dir, LOG3)
    return COMPACT


@of(RemarkCode.ONLY_COPY)
def replaced_by_a_torn_segment(log_dir: Path) -> Options:
    shutil.copy(orders(log_dir) / LOG3, orders(log_dir) / f"{LOG3}.deleted")
    rewrite(orders(log_dir) / LOG3, (orders(log_dir) / LOG3).read_bytes()[:-3])
    return COMPACT


@of(RemarkCode.ONLY_COPY)
def copy_that_lacks_every_replacement(log_dir: Path) -> Options:
    set_aside(log_dir, LOG0, LOG3, LOG6)
    return COMPACT


def set_aside(log_dir: Path, *logs: str) -> None:
    """Give all files of the segments the suffix of a broker."""
    for log in logs:
        for path in [*orders(log_dir).glob(log.replace("log", "*"))]:
            path.rename(f"{path}.deleted")


@of(RemarkCode.OFFSET_GAP)
def log_with_a_gap(log_dir: Path) -> Options:
    for path in orders(log_dir).glob("*3.*"):
        path.unlink()
    return DELETE


@of(RemarkCode.OFFSET_GAP)
def offset_that_no_checksum_covers(log_dir: Path) -> Options:
    """In the last segment of a log that the next broker recovers, so nothing else contradicts the offset."""
    flip(orders(log_dir) / LOG6, 5)
    killed_broker(log_dir)
    return (*DELETE, "--verify")


@of(RemarkCode.INTERNAL_POLICY)
def offsets_that_are_deleted(log_dir: Path) -> Options:
    healthy(log_dir, HEALTHY.replace("log ", "log name=__consumer_offsets-0 "))
    return (*COMPACT, "--config", "__consumer_offsets:cleanup.policy=delete")


def in_a_cluster(log_dir: Path, *records: MetadataRecord, topic_id: bytes = metadata_log.ORDERS) -> Options:
    """Give the log directory a metadata log with these records, and its topic an id."""
    log_dir.with_name(TOPICS).unlink(missing_ok=True)
    metadata_log.write(log_dir, {metadata_log.log(): metadata_log.batches(records)})
    (orders(log_dir) / "partition.metadata").write_bytes(build_partition_metadata(encode_uuid(topic_id)))
    return ()


# Stops a broker


@of(RemarkCode.LOCKED)
@contextlib.contextmanager
def held_lock(log_dir: Path) -> Iterator[Options]:
    with running_broker(log_dir):
        yield COMPACT


@of(RemarkCode.LOCKED)
@contextlib.contextmanager
def suspended_broker(log_dir: Path) -> Iterator[Options]:
    with running_broker(log_dir, "kafka.Kafka") as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        yield COMPACT
        os.kill(pid, signal.SIGCONT)


@of(RemarkCode.MACHINE_CODE)
@contextlib.contextmanager
def no_machine_code(log_dir: Path) -> Iterator[Options]:
    with without_machine_code(log_dir.with_name("machine_code")):
        yield COMPACT


@of(RemarkCode.RUNNING)
@contextlib.contextmanager
def broker_at_work(log_dir: Path) -> Iterator[Options]:
    with running_broker(log_dir, "kafka.Kafka"):
        yield COMPACT


@of(RemarkCode.NO_ACCESS)
def files_of_root(log_dir: Path) -> Options:
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, 65534, 65534)
    os.chown(orders(log_dir) / LOG0, 0, 0)
    (orders(log_dir) / LOG0).chmod(0o600)
    return COMPACT


@of(RemarkCode.NO_META_PROPERTIES)
def no_meta_properties(log_dir: Path) -> Options:
    (log_dir / "meta.properties").unlink()
    return COMPACT


@of(RemarkCode.BAD_META_PROPERTIES)
def cut_meta_properties(log_dir: Path) -> Options:
    (log_dir / "meta.properties").write_text("version=1\nnode.id=one\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.BAD_META_PROPERTIES)
def meta_properties_without_cluster(log_dir: Path) -> Options:
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.CLUSTER_IDS)
def two_clusters(log_dir: Path) -> Options:
    another_log_dir(log_dir, replace(OTHER, cluster_id="anotherClusterOfSomeon"))
    return COMPACT


@of(RemarkCode.NODE_IDS)
def two_nodes(log_dir: Path) -> Options:
    another_log_dir(log_dir, replace(OTHER, node_id=2))
    return COMPACT


@of(RemarkCode.NODE_IDS)
def node_of_another_file(log_dir: Path) -> Options:
    return (*COMPACT, "--broker-config", properties_file(log_dir, "node.id=7"))


@of(RemarkCode.DIRECTORY_IDS)
def copied_directory(log_dir: Path) -> Options:
    another_log_dir(log_dir, BROKER)
    return COMPACT


@of(RemarkCode.METADATA_LOGS)
def two_metadata_logs(log_dir: Path) -> Options:
    other = another_log_dir(log_dir, OTHER)
    for each in (log_dir, other):
        (each / "__cluster_metadata-0").mkdir()
    return COMPACT


@of(RemarkCode.DUPLICATE_PARTITION)
def partition_twice(log_dir: Path) -> Options:
    other = another_log_dir(log_dir, OTHER)
    shutil.copytree(orders(log_dir), other / "orders-0")
    return COMPACT


@of(RemarkCode.BAD_CHECKPOINT)
def cut_checkpoint(log_dir: Path) -> Options:
    (log_dir / REPLICATION_OFFSET_CHECKPOINT).write_text("0\n2\norders 0 7\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.BAD_CHECKPOINT)
def cut_leader_epochs(log_dir: Path) -> Options:
    (orders(log_dir) / "leader-epoch-checkpoint").write_text("0\n1\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.BAD_CHECKPOINT)
def cut_partition_metadata(log_dir: Path) -> Options:
    (orders(log_dir) / "partition.metadata").write_text("version: 0\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.BAD_TRANSACTION_INDEX)
def transaction_index_of_the_future(log_dir: Path) -> Options:
    return with_new_entry(log_dir)


@of(RemarkCode.BAD_TRANSACTION_INDEX)
def transaction_index_of_the_future_after_a_kill(log_dir: Path) -> Options:
    killed_broker(log_dir)
    return with_new_entry(log_dir)


def with_new_entry(log_dir: Path) -> Options:
    entry = ABORTED_TXN.pack(0x100, 1, 0, 1, 2)
    (orders(log_dir) / LOG0.replace(".log", ".txnindex")).write_bytes(entry)
    return COMPACT


@of(RemarkCode.UNLOADABLE_SEGMENT)
def zeros_at_the_end(log_dir: Path) -> Options:
    rewrite(orders(log_dir) / LOG6, (orders(log_dir) / LOG6).read_bytes() + bytes(100))
    return COMPACT


@of(RemarkCode.UNLOADABLE_SEGMENT)
def swap_of_zeros(log_dir: Path) -> Options:
    (orders(log_dir) / f"{LOG0}.swap").write_bytes(bytes(100))
    return COMPACT


@of(RemarkCode.UNKNOWN_DIRECTORY)
def lost_and_found(log_dir: Path) -> Options:
    (log_dir / "lost+found").mkdir()
    return COMPACT


@of(RemarkCode.UNKNOWN_FILE)
def backup_of_a_log(log_dir: Path) -> Options:
    shutil.copy(orders(log_dir) / LOG0, orders(log_dir) / "backup.log")
    return COMPACT


@of(RemarkCode.BAD_SETTING)
def small_dedupe_buffer(log_dir: Path) -> Options:
    text = "log.cleaner.dedupe.buffer.size=1048576"
    return (*COMPACT, "--broker-config", properties_file(log_dir, text))


@of(RemarkCode.BAD_SETTING)
def lags_in_wrong_order(log_dir: Path) -> Options:
    text = "log.cleaner.min.compaction.lag.ms=2000\nlog.cleaner.max.compaction.lag.ms=1000"
    return (*COMPACT, "--broker-config", properties_file(log_dir, text))


def properties_file(log_dir: Path, text: str = "") -> str:
    """Write the file of the broker, with more lines; `another_log_dir` is one of its directories, if there is one."""
    return str(server_properties(log_dir, *log_dir.parent.glob("other"), text=text))


# Stops its cleaner


@of(RemarkCode.UNCLEANABLE_BATCH)
def zeros_after_a_segment(log_dir: Path) -> Options:
    rewrite(orders(log_dir) / LOG3, (orders(log_dir) / LOG3).read_bytes() + bytes(100))
    return COMPACT


@of(RemarkCode.CLEANER_DISABLED)
def cleaner_switched_off(log_dir: Path) -> Options:
    return (*COMPACT, "--broker-config", properties_file(log_dir, "log.cleaner.enable=false"))


@of(RemarkCode.NEVER_DIRTY_ENOUGH)
def ratio_of_one(log_dir: Path) -> Options:
    return (*COMPACT, "--config", "min.cleanable.dirty.ratio=1.0")


@of(RemarkCode.OFFSET_MAP)
def map_without_keys(log_dir: Path) -> Options:
    return (*COMPACT, "--config", "log.cleaner.io.buffer.load.factor=0.0000000001")


@of(RemarkCode.HANGING_TRANSACTION)
def transaction_of_yesterday(log_dir: Path) -> Options:
    shutil.rmtree(orders(log_dir))
    (log_dir / REPLICATION_OFFSET_CHECKPOINT).unlink()
    healthy(
        log_dir, "log now=10:00 hw=7\n0: [a=1](txn pid=7)\n1: b=2\n6: a=6\nsnapshot 6: pid=7 epoch=0 last=0 open=0\n"
    )
    return COMPACT


# Stops kcompact


@of(RemarkCode.UNCLEAN_SHUTDOWN)
def killed_broker(log_dir: Path) -> Options:
    (log_dir / ".kafka_cleanshutdown").unlink()
    return COMPACT


@of(RemarkCode.STAGING)
def interrupted_run(log_dir: Path) -> Options:
    (orders(log_dir) / ".kcompact-0123456789abcdef").mkdir()
    return COMPACT


@of(RemarkCode.LEFTOVERS)
def interrupted_cleaning(log_dir: Path) -> Options:
    (orders(log_dir) / f"{LOG0}.cleaned").write_bytes(b"")
    return COMPACT


@of(RemarkCode.DAMAGED_BATCH)
def flipped_value(log_dir: Path) -> Options:
    flip(orders(log_dir) / LOG0, -2)
    return (*COMPACT, "--verify")


@of(RemarkCode.TORN_END)
def torn_end(log_dir: Path) -> Options:
    rewrite(orders(log_dir) / LOG6, (orders(log_dir) / LOG6).read_bytes()[:-3])
    return COMPACT


@of(RemarkCode.LYING_INDEX)
def time_index_that_ends_early(log_dir: Path) -> Options:
    path = orders(log_dir) / LOG3.replace(".log", ".timeindex")
    rewrite(path, path.read_bytes() + b"123456789")
    return COMPACT


@of(RemarkCode.BAD_SNAPSHOT)
def cut_snapshot(log_dir: Path) -> Options:
    (orders(log_dir) / "00000000000000000006.snapshot").write_bytes(b"\0\1")
    return (*COMPACT, "--verify")


@of(RemarkCode.CHECKPOINT_ABOVE_END)
def recovery_point_above_the_end(log_dir: Path) -> Options:
    checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, 90)
    return COMPACT


@of(RemarkCode.POLICY_UNKNOWN)
def no_policy(log_dir: Path) -> Options:
    log_dir.with_name(TOPICS).unlink()
    return ()


@of(RemarkCode.NO_HIGH_WATERMARK)
def other_high_watermarks(log_dir: Path) -> Options:
    healthy(log_dir, HEALTHY.replace("log ", "log name=users-0 "))
    checkpoint(log_dir, REPLICATION_OFFSET_CHECKPOINT, 7, "users 0")
    return COMPACT


@of(RemarkCode.REFUSED)
def checkpoint_that_is_a_link(log_dir: Path) -> Options:
    (log_dir / CLEANER_OFFSET_CHECKPOINT).symlink_to("nowhere")
    return COMPACT


@of(RemarkCode.REFUSED)
def partition_that_is_a_link(log_dir: Path) -> Options:
    elsewhere = log_dir.with_name("elsewhere")
    healthy(elsewhere, HEALTHY.replace("log ", "log name=users-0 "))
    (log_dir / "users-0").symlink_to(elsewhere / "users-0")
    return COMPACT


@of(RemarkCode.STALE_REPLICA)
def topic_that_was_created_again(log_dir: Path) -> Options:
    topic = metadata_log.topic("orders", metadata_log.ORDERS, cleanup_policy="compact")
    return (*COMPACT, *in_a_cluster(log_dir, *topic, topic_id=metadata_log.OTHER))


# Notes


@of(RemarkCode.STRAY_REPLICA)
def topic_that_the_cluster_does_not_have(log_dir: Path) -> Options:
    return (*COMPACT, *in_a_cluster(log_dir, *metadata_log.topic("users", metadata_log.USERS)))


@of(RemarkCode.LAG_ORDER)
def lags_in_wrong_order_in_the_cluster(log_dir: Path) -> Options:
    settings = {"cleanup_policy": "compact", "min_compaction_lag_ms": "2000", "max_compaction_lag_ms": "1000"}
    return in_a_cluster(log_dir, *metadata_log.topic("orders", metadata_log.ORDERS, **settings))


@of(RemarkCode.MISSING_LOG_DIR)
def disk_that_is_not_there(log_dir: Path) -> Options:
    server_properties(log_dir, log_dir.with_name("gone"))
    return COMPACT


@of(RemarkCode.NO_META_PROPERTIES)
def metadata_disk_that_is_not_there(log_dir: Path) -> Options:
    server_properties(log_dir, text=f"metadata.log.dir={log_dir.with_name('gone')}")
    return COMPACT


@of(RemarkCode.DELETE_DIRECTORY)
def deleted_topic(log_dir: Path) -> Options:
    shutil.copytree(orders(log_dir), log_dir / f"users-0.{'0' * 32}-delete")
    return COMPACT


@of(RemarkCode.STRAY_DIRECTORY)
def stray_replica(log_dir: Path) -> Options:
    shutil.copytree(orders(log_dir), log_dir / f"users-0.{'0' * 32}-stray")
    return COMPACT


@of(RemarkCode.FOREIGN_NAME)
def readme_file(log_dir: Path) -> Options:
    (orders(log_dir) / "README").write_text("hands off", encoding="utf-8")
    return COMPACT


@of(RemarkCode.FOREIGN_NAME)
def name_that_kafka_does_not_write(log_dir: Path) -> Options:
    (log_dir / "orders-007").mkdir()
    return COMPACT


@of(RemarkCode.DELETED_FILES)
def replaced_segment(log_dir: Path) -> Options:
    (orders(log_dir) / f"{LOG0}.deleted").write_bytes(b"")
    return COMPACT


@of(RemarkCode.DELETED_FILES)
def segments_deleted_from_the_start(log_dir: Path) -> Options:
    set_aside(log_dir, LOG0, LOG3)
    (orders(log_dir) / "leader-epoch-checkpoint").write_text("0\n1\n0 6\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.MISSING_INDEX)
def no_index(log_dir: Path) -> Options:
    (orders(log_dir) / LOG3.replace(".log", ".index")).unlink()
    return COMPACT


@of(RemarkCode.TOPIC_IDS)
def two_ids_of_a_topic(log_dir: Path) -> Options:
    shutil.copytree(orders(log_dir), log_dir / "orders-1")
    for name, topic_id in (("orders-0", "AAAAAAAAAAAAAAAAAAAABQ"), ("orders-1", "AAAAAAAAAAAAAAAAAAAABg")):
        (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}", encoding="utf-8")
    return (*COMPACT, "--high-watermark", "leo")


@of(RemarkCode.TOPIC_IDS)
def two_topics_of_an_id(log_dir: Path) -> Options:
    text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ"
    (orders(log_dir) / "partition.metadata").write_text(text, encoding="utf-8")
    shutil.copytree(orders(log_dir), log_dir / "users-0")
    return (*COMPACT, "--high-watermark", "leo")


@of(RemarkCode.UNKNOWN_ENTRY)
def entry_of_a_deleted_topic(log_dir: Path) -> Options:
    checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, 5, "users 0")
    return COMPACT


@of(RemarkCode.CLEANER_CHECKPOINT)
def cleaned_beyond_the_end(log_dir: Path) -> Options:
    checkpoint(log_dir, CLEANER_OFFSET_CHECKPOINT, 99)
    return COMPACT


@of(RemarkCode.FUTURE_TIME)
def slow_clock(log_dir: Path) -> Options:
    return (*COMPACT, "--now", "2023-12-01T00:00:00Z")


@of(RemarkCode.ASSUMED_SETTINGS)
def no_file_of_the_broker(log_dir: Path) -> Options:
    log_dir.with_name("server.properties").unlink()
    return COMPACT


@of(RemarkCode.BROKER_CONFIG)
@contextlib.contextmanager
def file_above_the_log_directory(log_dir: Path) -> Iterator[Options]:
    (log_dir.parent / "config").mkdir()
    log_dir.with_name("server.properties").rename(log_dir.parent / "config" / "server.properties")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCOMPACT_BROKER_SEARCH", "auto")
        yield COMPACT


@of(RemarkCode.UNUSED_SETTING)
def misspelled_setting(log_dir: Path) -> Options:
    text = "log.cleaner.dedup.buffer.size=1000000000"
    return (*COMPACT, "--broker-config", properties_file(log_dir, text))


@of(RemarkCode.SLOW_CODEC)
@contextlib.contextmanager
def package_without_library(log_dir: Path) -> Iterator[Options]:
    with mock.patch.object(libraries, "_extension", side_effect=ImportError):
        yield (*COMPACT, "--verify")


@of(RemarkCode.RETENTION_FIRST)
def retention_before_compaction(log_dir: Path) -> Options:
    settings = ("cleanup.policy=compact,delete", "retention.ms=1000", "min.compaction.lag.ms=2000")
    return tuple(word for setting in settings for word in ("--config", setting))
