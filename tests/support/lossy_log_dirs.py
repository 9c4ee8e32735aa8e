"""Log directories of which a broker loses records, serves less, or does not start, for files that it believes or needs.

The other sicknesses, and what a healthy directory is, are in `sick_log_dirs`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kcompact.format.index import build_offset_index, build_time_index
from kcompact.format.properties import encode_uuid
from kcompact.remarks import RemarkCode
from tests.support import metadata_log
from tests.support.broker_files import build_partition_metadata
from tests.support.command_line import LOG3, LOG6, rewrite
from tests.support.sick_log_dirs import (
    COMPACT,
    DELETE,
    OTHER,
    Options,
    another_log_dir,
    checkpoint,
    in_a_cluster,
    of,
    orders,
)

INDEX3, TIME_INDEX3 = (LOG3.replace(".log", suffix) for suffix in (".index", ".timeindex"))
INDEX6, TIME_INDEX6 = (LOG6.replace(".log", suffix) for suffix in (".index", ".timeindex"))
TOPIC = metadata_log.topic("orders", metadata_log.ORDERS, cleanup_policy="compact")
FUTURE = f"orders-0.{'0' * 32}-future"


@of(RemarkCode.LOST_END)
def log_shorter_than_its_index(log_dir: Path) -> Options:
    (orders(log_dir) / INDEX3).write_bytes(build_offset_index([(1, 70), (2, 1000)]))
    rewrite(orders(log_dir) / LOG3, (orders(log_dir) / LOG3).read_bytes()[:140])
    return COMPACT


@of(RemarkCode.LOST_END)
def log_below_its_high_watermark_after_a_kill(log_dir: Path) -> Options:
    (log_dir / ".kafka_cleanshutdown").unlink()
    rewrite(orders(log_dir) / LOG6, b"")
    return (*COMPACT, "--verify")


@of(RemarkCode.TORN_END)
def torn_segment(log_dir: Path) -> Options:
    rewrite(orders(log_dir) / LOG3, (orders(log_dir) / LOG3).read_bytes()[:-3])
    return COMPACT


@of(RemarkCode.TORN_END)
def more_than_the_end_is_torn(log_dir: Path) -> Options:
    (log_dir / ".kafka_cleanshutdown").unlink()
    checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, 3)
    data = bytearray((orders(log_dir) / LOG3).read_bytes())
    data[40] ^= 1
    rewrite(orders(log_dir) / LOG3, bytes(data))
    return (*COMPACT, "--verify")


@of(RemarkCode.HIDDEN_RECORDS)
def index_that_leads_too_far(log_dir: Path) -> Options:
    (orders(log_dir) / INDEX3).write_bytes(build_offset_index([(1, 140)]))
    return (*COMPACT, "--verify")


@of(RemarkCode.EARLY_DELETION)
def padded_time_index(log_dir: Path) -> Options:
    path = orders(log_dir) / LOG3.replace("3.log", "0.timeindex")
    rewrite(path, path.read_bytes() + bytes(1200))
    return DELETE


@of(RemarkCode.UNWRITABLE_INDEX)
def time_index_above_the_log_end(log_dir: Path) -> Options:
    (orders(log_dir) / TIME_INDEX6).write_bytes(build_time_index([(1_704_100_000_000, 90)]))
    checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, 7)
    return COMPACT


@of(RemarkCode.MISSING_TOPIC_ID)
def partition_without_its_topic_id(log_dir: Path) -> Options:
    in_a_cluster(log_dir, *TOPIC)
    (orders(log_dir) / "partition.metadata").unlink()
    return ()


@of(RemarkCode.OTHER_TOPIC)
def id_of_another_topic(log_dir: Path) -> Options:
    in_a_cluster(log_dir, *TOPIC, *metadata_log.topic("users", metadata_log.USERS), topic_id=metadata_log.USERS)
    return COMPACT


@of(RemarkCode.PAUSED_BY_MOVE)
def move_that_has_not_ended(log_dir: Path) -> Options:
    other = another_log_dir(log_dir, OTHER)
    moving(log_dir, other / FUTURE)
    return (*COMPACT, str(other))


def moving(log_dir: Path, future: Path) -> None:
    """Write a replica that is on its way to another log directory."""
    shutil.copytree(orders(log_dir), future)
    (future / "partition.metadata").write_bytes(build_partition_metadata(encode_uuid(metadata_log.ORDERS)))


@of(RemarkCode.FUTURE_DIRECTORY)
def moving_replica(log_dir: Path) -> Options:
    moving(log_dir, log_dir / f"users-0.{'0' * 32}-future")
    return COMPACT


@of(RemarkCode.UNUSABLE_FUTURE)
def future_beside_its_current_replica(log_dir: Path) -> Options:
    moving(log_dir, log_dir / FUTURE)
    return COMPACT


@of(RemarkCode.UNUSABLE_FUTURE)
def future_without_a_topic_id(log_dir: Path) -> Options:
    other = another_log_dir(log_dir, OTHER)
    shutil.copytree(orders(log_dir), other / FUTURE)
    (other / FUTURE / "partition.metadata").unlink(missing_ok=True)
    return (*COMPACT, str(other))


@of(RemarkCode.BAD_QUORUM_FILE)
def empty_quorum_state(log_dir: Path) -> Options:
    in_a_cluster(log_dir, *TOPIC)
    (log_dir / METADATA_DIRECTORY / "quorum-state").write_bytes(b"")
    return ()


@of(RemarkCode.BAD_QUORUM_FILE)
def empty_snapshot(log_dir: Path) -> Options:
    in_a_cluster(log_dir, *TOPIC)
    (log_dir / METADATA_DIRECTORY / "00000000000000000003-0000000001.checkpoint").write_bytes(b"")
    return ()


@of(RemarkCode.OTHER_TOPIC)
def metadata_log_with_the_id_of_a_topic(log_dir: Path) -> Options:
    in_a_cluster(log_dir, *TOPIC)
    file = log_dir / METADATA_DIRECTORY / "partition.metadata"
    file.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n", encoding="utf-8")
    return ()


@of(RemarkCode.CLEANER_ENDS)
def cleaner_checkpoint_with_a_letter(log_dir: Path) -> Options:
    (log_dir / CLEANER_OFFSET_CHECKPOINT).write_text("0\n1\norders 0 x\n", encoding="utf-8")
    return COMPACT


@of(RemarkCode.IGNORED_CHECKPOINT)
def recovery_point_with_a_letter(log_dir: Path) -> Options:
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\norders 0 x\n", encoding="utf-8")
    return COMPACT
