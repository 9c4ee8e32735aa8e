"""`config.metadata_log`: the snapshot that is used, the replay, what is ignored at the end, damage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures import checkout
from kcompact.config.metadata_log import (
    METADATA_DIRECTORY,
    ClusterMetadata,
    check_topic_id,
    dynamic_config,
    read_cluster_metadata,
)
from kcompact.config.settings import Source
from kcompact.errors import CorruptDataError, RefusedError, StaleReplicaError, UnsupportedError
from kcompact.format.names import MetadataSnapshotName, TopicPartition
from kcompact.format.properties import encode_uuid
from kcompact.remarks import RemarkCode
from tests.support.metadata_log import (
    ORDERS,
    OTHER,
    TIME_MS,
    UNKNOWN,
    USERS,
    batches,
    control,
    log,
    of_broker,
    of_topic,
    snapshot,
    topic,
    write,
)
from tests.support.metadata_records import (
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChangeRecord,
    EndTransaction,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

Rows = Sequence[MetadataRecord | bytes]
MADE = topic("orders", ORDERS, cleanup_policy="compact")
EARLY, LATE = str(MetadataSnapshotName(3, 1)), str(MetadataSnapshotName(6, 2))


def read(log_dir: Path, files: dict[str, bytes], *, clean: bool = True) -> ClusterMetadata:
    metadata = read_cluster_metadata(write(log_dir, files, clean=clean))
    assert metadata is not None
    return metadata


def overrides(metadata: ClusterMetadata) -> dict[str, dict[str, str]]:
    return {name: dict(found.overrides) for name, found in metadata.topics.items()}


POLICY = {"cleanup.policy": "compact"}
REPLAYS: list[tuple[str, Rows, dict[str, dict[str, str]]]] = [
    ("nothing", [UNKNOWN], {}),
    ("a topic", MADE, {"orders": POLICY}),
    ("without settings", topic("orders", ORDERS), {"orders": {}}),
    ("changed", [*MADE, of_topic("orders", "cleanup.policy", "delete")], {"orders": {"cleanup.policy": "delete"}}),
    ("taken back", [*MADE, of_topic("orders", "cleanup.policy", None)], {"orders": {}}),
    ("taken back twice", [*MADE, *[of_topic("orders", "cleanup.policy", None) for _ in range(2)]], {"orders": {}}),
    (
        "another topic",
        [*MADE, *topic("users", USERS, segment_ms="1")],
        {"orders": POLICY, "users": {"segment.ms": "1"}},
    ),
    ("removed", [*MADE, RemoveTopicRecord(ORDERS)], {}),
    ("created again", [*MADE, RemoveTopicRecord(ORDERS), *topic("orders", OTHER)], {"orders": {}}),
    ("removal of another", [*MADE, TopicRecord("gone", OTHER), RemoveTopicRecord(OTHER)], {"orders": POLICY}),
    (
        "settings before the topic",
        [of_topic("orders", "cleanup.policy", "compact"), *topic("orders", ORDERS)],
        {"orders": POLICY},
    ),
    ("settings of no topic", [of_topic("gone", "cleanup.policy", "compact")], {}),
    ("committed", [BeginTransaction(), *MADE, EndTransaction()], {"orders": POLICY}),
    ("aborted", [BeginTransaction(), *MADE, AbortTransaction()], {}),
    ("not ended", [BeginTransaction(), *MADE], {}),
    ("after an abort", [BeginTransaction(), *MADE, AbortTransaction(), *topic("users", USERS)], {"users": {}}),
    ("other kinds", [UNKNOWN, FeatureLevelRecord("metadata.version", 30), *MADE, UNKNOWN], {"orders": POLICY}),
]


@pytest.mark.parametrize(("name", "rows", "expected"), REPLAYS, ids=[row[0] for row in REPLAYS])
@pytest.mark.parametrize("each", [1, 3, 100])
def test_replaying(name: str, rows: Rows, expected: dict[str, dict[str, str]], each: int, tmp_path: Path) -> None:
    metadata = read(tmp_path / "log-dir", {log(): batches(rows, each=each)})
    assert overrides(metadata) == expected
    assert metadata.end_offset == len(rows)
    assert bool(metadata.notes) == (name == "not ended")


def test_topics_have_ids_and_partitions(tmp_path: Path) -> None:
    metadata = read(
        tmp_path / "log-dir",
        {log(): batches([*MADE, PartitionRecord(1, ORDERS, (1,)), PartitionRecord(4, USERS, (1,))])},
    )
    assert metadata.topics["orders"].topic_id == encode_uuid(ORDERS)
    assert metadata.topics["orders"].partitions == {0: (1,), 1: (1,)}


def test_brokers(tmp_path: Path) -> None:
    rows = [
        of_broker("", "log.cleanup.policy", "compact"),
        of_broker("1", "log.segment.bytes", "2000000"),
        of_broker("2", "log.segment.bytes", "3000000"),
        of_broker("2", "log.segment.bytes", None),
        *topic("orders", ORDERS),
    ]
    metadata = read(tmp_path / "log-dir", {log(): batches(rows)})
    assert metadata.cluster_defaults == {"log.cleanup.policy": "compact"}
    assert metadata.broker_configs == {1: {"log.segment.bytes": "2000000"}}
    defaults = {Source.CLUSTER_DEFAULT: {"log.cleanup.policy": "compact"}}
    own = {Source.BROKER_OVERRIDE: {"log.segment.bytes": "2000000"}}
    assert dict(dynamic_config(metadata, node_id=1).layers) == defaults | own
    assert dict(dynamic_config(metadata, node_id=None).layers) == defaults


def test_the_log_directories_of_brokers(tmp_path: Path) -> None:
    one, other = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    rows: Rows = [
        RegisterBrokerRecord(1, (), (one,)),
        RegisterBrokerRecord(2, (), (one, other)),
        RegisterBrokerRecord(3, (), (other,)),
        BrokerRegistrationChangeRecord(1, (one, other)),
        BrokerRegistrationChangeRecord(1, (one,)),  # The other disk went offline while the broker ran.
        BrokerRegistrationChangeRecord(2),
        UnregisterBrokerRecord(3),
    ]
    metadata = read(tmp_path / "log-dir", {log(): batches(rows)})
    assert metadata.log_dirs == {1: (one, other), 2: (one, other)}


# Snapshots

TAIL: Rows = [of_topic("orders", "segment.ms", "6"), UNKNOWN]
ROWS: Rows = [*MADE, UNKNOWN, UNKNOWN, of_topic("orders", "segment.ms", "5"), *TAIL]
ALL = {"orders": POLICY | {"segment.ms": "6"}}
HEAD = snapshot(MADE)
WHOLE = snapshot([*MADE, of_topic("orders", "segment.ms", "5")])
ENTIRE_LOG = {log(): batches(ROWS, each=1)}
WHOLE_LATER = snapshot([*MADE, of_topic("orders", "segment.ms", "5")], log_ends_ms=TIME_MS + 1)
NO_FOOTER = len(WHOLE) - len(control(4, 0))
LATER_LOG = {log(3): batches(ROWS[3:], start=3, each=1)}


@pytest.mark.parametrize(
    ("files", "used", "notes"),
    [
        (ENTIRE_LOG, None, 0),
        ({EARLY: HEAD, **ENTIRE_LOG}, EARLY, 0),
        ({EARLY: HEAD, **LATER_LOG}, EARLY, 0),
        ({EARLY: HEAD, LATE: WHOLE, **LATER_LOG}, LATE, 0),
        ({LATE: WHOLE, log(6): batches(ROWS[6:], start=6)}, LATE, 0),
        ({EARLY: HEAD, LATE: WHOLE_LATER, log(6): batches(ROWS[6:], start=6)}, LATE, 0),  # No batch to compare it with.
        # A log of something else up to there is not looked at, by a broker either.
        ({LATE: WHOLE_LATER, log(): batches([b"else"] * 6, each=6) + batches(ROWS[6:], start=6)}, LATE, 0),
        ({LATE: WHOLE_LATER, log(4): batches(ROWS[4:], start=4)}, LATE, 0),
        ({LATE: WHOLE, log(5): batches(ROWS[5:], start=5)}, LATE, 0),
        ({EARLY: HEAD, f"{LATE}.part": b"", f"{LATE}.deleted": b"", **LATER_LOG}, EARLY, 0),
        ({EARLY: HEAD, LATE: snapshot(MADE, footer=False), **LATER_LOG}, EARLY, 1),
        # A broker takes what is torn for the end. A torn control batch is the footer.
        ({EARLY: HEAD, LATE: WHOLE[:-1], **LATER_LOG}, LATE, 0),
        ({EARLY: HEAD, LATE: WHOLE[: NO_FOOTER + 23], **LATER_LOG}, LATE, 0),
        ({EARLY: HEAD, LATE: WHOLE[: NO_FOOTER + 22], **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: WHOLE[: NO_FOOTER + 11], **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: WHOLE[: NO_FOOTER - 1], **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: WHOLE[:23], **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: WHOLE + bytes(11), **LATER_LOG}, LATE, 0),
        ({EARLY: HEAD, LATE: WHOLE + bytes(12), **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: b"", **LATER_LOG}, EARLY, 1),
        ({EARLY: HEAD, LATE: WHOLE[:300] + b"x" + WHOLE[301:], **LATER_LOG}, EARLY, 1),
        ({LATE: WHOLE[:-100], **ENTIRE_LOG}, None, 1),
        ({LATE: b"", EARLY: b"", **ENTIRE_LOG}, None, 2),
    ],
)
def test_snapshot_and_log(files: dict[str, bytes], used: str | None, notes: int, tmp_path: Path) -> None:
    metadata = read(tmp_path / "log-dir", files)
    assert overrides(metadata) == ALL
    assert metadata.end_offset == len(ROWS)
    assert (str(metadata.snapshot) if metadata.snapshot else None) == used
    assert len(metadata.notes) == notes


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (LATER_LOG, "offset 3: the metadata log starts here"),
        ({LATE: WHOLE[:-100]}, "no footer"),
        ({LATE: WHOLE + bytes(12)}, "12 bytes where a batch should start"),
        ({LATE: snapshot(MADE, footer=False), **LATER_LOG}, "no footer"),
        ({LATE: snapshot(MADE, footer=False), log(): batches(ROWS[:2])}, "no footer"),
        ({EARLY: batches(MADE)}, "header first"),
        ({EARLY: HEAD + control(4, 9)}, "footer last"),
        ({log(): batches(ROWS[:3]), log(4): batches(ROWS[4:], start=4)}, "nothing from offset 3 to 4"),
        ({log(): batches(ROWS[:3]) + batches(ROWS[4:], start=4)}, "base offset 4, but the previous batch ends at 3"),
        ({log(): batches([EndTransaction()])}, "none has begun"),
        ({log(): batches([AbortTransaction()])}, "none has begun"),
        ({log(): batches([BeginTransaction(), BeginTransaction()])}, "begins inside the transaction of offset 0"),
        ({log(): batches([b"\x01\x02\x00"])}, "metadata record: a field"),
        ({log(): batches([of_broker("one", "a", "b")])}, "a broker whose id is 'one'"),
        # The snapshot of another offset under this name.
        ({LATE: snapshot(MADE, log_ends_ms=TIME_MS - 1), **ENTIRE_LOG}, "ends at .*19.999Z, here at .*20Z"),
        ({LATE: HEAD, log(6): batches([BrokerRegistrationChangeRecord(1)], start=6)}, "offset 6: changes broker 1, wh"),
        ({LATE: HEAD, log(6): batches([PartitionChangeRecord(0, USERS, ())], start=6)}, "changes topic AgIC"),
        ({LATE: HEAD, log(6): batches([RemoveTopicRecord(USERS)], start=6)}, "changes topic AgIC"),
    ],
)
def test_damaged_metadata_logs_are_errors(files: dict[str, bytes], problem: str, tmp_path: Path) -> None:
    log_dir = write(tmp_path / "log-dir", files)
    with pytest.raises(CorruptDataError, match=problem) as refused:
        read_cluster_metadata(log_dir)
    assert METADATA_DIRECTORY in refused.value.file
    assert refused.value.exit_code == 3


# Records of a newer Kafka

NEWER = b"\x01\x1e\x00rest"
"""A record of a type that no known release has."""


def test_unknown_records_that_decide_nothing_are_counted(tmp_path: Path) -> None:
    rows: Rows = [NEWER, *MADE, b"\x01\x0e\x07", b"\x01\x05\x09"]
    metadata = read(tmp_path / "log-dir", {log(): batches(rows)})
    assert overrides(metadata) == {"orders": POLICY}
    (note,) = metadata.notes
    assert note.code is RemarkCode.UNKNOWN_METADATA_RECORDS
    assert note.text.startswith("the metadata log has 3 records of a type or version that")
    assert note.text.endswith("the first: record type 30, at offset 0")
    of_snapshot = read(tmp_path / "another", {EARLY: snapshot([NEWER, *MADE])})
    assert [note.code for note in of_snapshot.notes] == [RemarkCode.UNKNOWN_METADATA_RECORDS]


LATER_TOPIC = b"\x01\x02\x01rest"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({log(): batches([*MADE, LATER_TOPIC])}, r"offset 3: metadata record: version 1 of record type 2 \(TOPIC_REC"),
        ({log(): batches([b"\x02\x02\x00"])}, "offset 0: metadata record: frame version 2 is unknown"),
        ({log(): batches(MADE) + control(7, 3)}, "offset 3: control record type 7 is unknown"),
        # An older snapshot is no way around it: the log has the record too, or one like it.
        ({EARLY: HEAD, LATE: snapshot([*MADE, LATER_TOPIC]), **ENTIRE_LOG}, "offset 4: metadata record: version 1"),
        ({EARLY: HEAD, LATE: snapshot(MADE, footer=False) + control(7, 4), **ENTIRE_LOG}, "control record type 7"),
    ],
)
def test_unknown_records_that_decide_are_refused(files: dict[str, bytes], problem: str, tmp_path: Path) -> None:
    log_dir = write(tmp_path / "log-dir", files)
    with pytest.raises(UnsupportedError, match=problem) as refused:
        read_cluster_metadata(log_dir)
    assert METADATA_DIRECTORY in refused.value.path
    assert refused.value.exit_code == 4
    assert "newer kcompact" in refused.value.hint


def test_a_snapshot_beyond_the_log(tmp_path: Path) -> None:
    metadata = read(tmp_path / "log-dir", {LATE: WHOLE, log(): batches(ROWS[:2])})
    assert overrides(metadata) == {"orders": POLICY | {"segment.ms": "5"}}
    assert metadata.end_offset == 6


# Damage and torn ends

WRITTEN = batches(MADE) + batches([of_topic("orders", "cleanup.policy", None)], start=3)
FIRST_BATCH = len(batches(MADE))


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(length, marks=pytest.mark.slow if length % 4 and abs(length - FIRST_BATCH) > 2 else ())
        for length in range(len(WRITTEN))
    ],
)
def test_truncated_at_every_byte(length: int, tmp_path: Path) -> None:
    files = {log(): WRITTEN[:length]}
    metadata = read(tmp_path / "running", files, clean=False)
    whole = 3 if length >= FIRST_BATCH else 0
    assert metadata.end_offset == whole
    assert overrides(metadata) == ({"orders": POLICY} if whole else {})
    torn = length not in (0, FIRST_BATCH)
    assert bool(metadata.notes) == torn
    log_dir = write(tmp_path / "stopped", files)
    if not torn:
        assert read_cluster_metadata(log_dir) is not None
        return
    with pytest.raises(CorruptDataError) as refused:
        read_cluster_metadata(log_dir)
    assert refused.value.position == (FIRST_BATCH if length > FIRST_BATCH else 0)


@pytest.mark.parametrize("zeros", [1, 11, 12, 61, 5000])
def test_zeros_at_the_end(zeros: int, tmp_path: Path) -> None:
    assert read(tmp_path / "running", {log(): WRITTEN + bytes(zeros)}, clean=False).end_offset == 4
    with pytest.raises(CorruptDataError):
        read_cluster_metadata(write(tmp_path / "stopped", {log(): WRITTEN + bytes(zeros)}))


def test_zeros_inside(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="zeros"):
        read(tmp_path / "log-dir", {log(): batches(MADE) + bytes(61) + b"x"}, clean=False)


def test_only_the_last_segment_may_be_torn(tmp_path: Path) -> None:
    files = {log(): WRITTEN[:-1], log(4): batches([UNKNOWN], start=4)}
    with pytest.raises(CorruptDataError):
        read(tmp_path / "log-dir", files, clean=False)


@pytest.mark.parametrize("position", range(0, len(WRITTEN), 7))
@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_byte_is_detected(position: int, clean: bool, tmp_path: Path) -> None:
    flipped = bytearray(WRITTEN)
    flipped[position] ^= 0xFF
    in_epoch = position % FIRST_BATCH in range(12, 16)  # Outside the checksum, and not used here.
    try:
        metadata = read(tmp_path / "log-dir", {log(): bytes(flipped)}, clean=clean)
    except CorruptDataError:
        assert not in_epoch
    else:
        # A length field that is too large looks like a partial batch.
        assert in_epoch or (not clean and metadata.notes)


# Files


def test_no_metadata_log(tmp_path: Path) -> None:
    assert read_cluster_metadata(tmp_path) is None
    (tmp_path / METADATA_DIRECTORY).mkdir()
    assert read_cluster_metadata(tmp_path) is None


def test_links_are_refused(tmp_path: Path) -> None:
    log_dir = write(tmp_path / "one", {log(): batches(MADE)})
    link = tmp_path / METADATA_DIRECTORY
    link.symlink_to(log_dir / METADATA_DIRECTORY)
    with pytest.raises(RefusedError, match="symbolic link"):
        read_cluster_metadata(tmp_path)
    file = log_dir / METADATA_DIRECTORY / log()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="symbolic link"):
        read_cluster_metadata(log_dir)


def test_the_bootstrap_checkpoint(tmp_path: Path) -> None:
    log_dir = write(tmp_path / "log-dir", {log(): batches([UNKNOWN])})
    (log_dir / "bootstrap.checkpoint").write_bytes(snapshot([of_broker("", "log.cleanup.policy", "compact")]))
    metadata = read_cluster_metadata(log_dir)
    assert metadata is not None
    assert metadata.cluster_defaults == {"log.cleanup.policy": "compact"}
    (log_dir / "bootstrap.checkpoint").write_bytes(b"rubbish")
    metadata = read_cluster_metadata(log_dir)
    assert metadata is not None
    assert metadata.cluster_defaults == {}
    assert "bootstrap.checkpoint is not used" in metadata.notes[0].text


def test_the_metadata_log_of_a_real_broker() -> None:
    metadata = read_cluster_metadata(checkout.LOGS / "broker" / "before")
    assert metadata is not None
    assert overrides(metadata) == {
        "inventory": {
            "cleanup.policy": "compact",
            "segment.ms": "1800000",
            "min.cleanable.dirty.ratio": "0.5",
            "delete.retention.ms": "3600000",
        }
    }
    assert metadata.cluster_defaults == {"min.insync.replicas": "1"}
    assert (metadata.end_offset, metadata.notes) == (29, ())
    directory = checkout.LOGS / "broker" / "before" / "inventory-0"
    check_topic_id(directory, TopicPartition("inventory", 0), metadata.topics["inventory"].topic_id, where="it")
    with pytest.raises(StaleReplicaError, match="mThPBCHrTdmmHrY8fWJ_sg"):
        check_topic_id(directory, TopicPartition("inventory", 0), encode_uuid(OTHER), where="it")
