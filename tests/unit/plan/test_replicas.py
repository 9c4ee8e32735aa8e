"""`plan.replicas`: where replicas on other brokers' disks and moved ones begin to fetch, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.held_back import HeldBack, held_back_at_most
from kcompact.config.settings import Setting, Source, parse_override
from kcompact.errors import ConfigError, RefusedError
from kcompact.format.batch import Record, build
from kcompact.format.checkpoint import EpochEntry
from kcompact.log.directory import read_log
from kcompact.plan.options import PlanOptions
from kcompact.plan.replicas import (
    Epochs,
    OtherReplica,
    Replicas,
    Truncation,
    loaded_epochs,
    replica_notes,
    truncated_to,
)
from kcompact.plan.run_notes import hints
from kcompact.plan.walk import PlannedPartition, plan_partitions
from kcompact.remarks import RemarkCode
from tests.support import log_dsl, log_writer
from tests.support.command_line import flip
from tests.support.log_writer import BROKER, DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.mutants import legacy_entry

OWN = log_dsl.parse("log now=10:00\n0: a=1 b=1 c=1\n3: a=~ b=~\n5: d=1")
BARE = log_dsl.parse("log now=10:00\n0: a=1 b=1 c=1\n3: a=~")
"""A replica without leader epochs."""
OTHER = replace(BARE, leader_epochs=(EpochEntry(epoch=0, start_offset=0),))
FUTURE = f"orders-0.{'0123456789abcdef' * 2}-future"
TOPIC_ID, ANOTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def epochs(*entries: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch=epoch, start_offset=offset) for epoch, offset in entries)


LEADER_END, FOLLOWER_END, HIGH_WATERMARK = 200, 120, 30
SAME = ((1, 0),)
LATE = ((0, 10), (1, 85), (2, 90))
"""Of a follower that has fetched epoch 1 when its first batches had been compacted away."""


@pytest.mark.parametrize(
    ("leader", "follower", "expected", "of_future"),
    [
        # Without leader epochs the high watermark decides.
        ((), (), 30, 30),
        (SAME, (), 30, 30),
        # Without leader epochs of its own a leader answers with that of its election; another replica has no answer.
        ((), SAME, 120, 30),
        (SAME, SAME, 120, 120),
        (((1, 0), (2, 130)), SAME, 120, 120),
        (((1, 0), (2, 120)), SAME, 120, 120),
        (((1, 0), (2, 100)), SAME, 100, 100),  # the leader of epoch 2 has begun below the follower's end
        (((1, 0), (3, 100)), ((1, 0), (2, 90)), 90, 90),  # nobody else has the follower's epoch 2
        (((1, 0), (3, 80)), ((1, 0), (2, 90)), 80, 80),
        (SAME, ((1, 0), (2, 90)), 90, 30),  # the leader has none that is newer, but for the one of its election
        (SAME, ((1, 0), (2, 20)), 20, 20),
        (((1, 0), (3, 100)), ((0, 0), (2, 90)), 0, 0),  # asked again for epoch 0, which ends where 1 starts
        (((5, 70),), SAME, 70, 70),  # all epochs of the leader are newer
        (((0, 0), (1, 20), (6, 100)), ((4, 50),), 50, 50),  # all epochs of the follower are newer than the answer
        # With each fetch a follower asks again; a `-future` replica only if it has not had the epoch of the answer.
        (((0, 10), (1, 20), (3, 80)), LATE, 20, 80),
    ],
)
def test_where_a_replica_begins_to_fetch(
    leader: tuple[tuple[int, int], ...], follower: tuple[tuple[int, int], ...], expected: int, of_future: int
) -> None:
    for is_future, offset in ((False, expected), (True, of_future)):
        its = Epochs(epochs(*follower), FOLLOWER_END)
        found = truncated_to(Epochs(epochs(*leader), LEADER_END), its, HIGH_WATERMARK, is_future=is_future)
        is_watermark = offset == HIGH_WATERMARK
        assert found == (offset, Truncation.HIGH_WATERMARK if is_watermark else Truncation.COMMON_EPOCH)


@pytest.mark.parametrize(
    ("leader", "follower", "expected"),
    [
        (((0, 0), (1, 30), (3, 90)), ((0, 0), (2, 40), (3, 110)), 30),  # the leader has lost a part of epoch 3
        (((2, 10),), ((1, 100), (3, 105), (4, 110)), 10),  # truncated to 105 first: it has epoch 1, but not 2
    ],
)
def test_a_replica_that_is_longer_can_lag(
    leader: tuple[tuple[int, int], ...], follower: tuple[tuple[int, int], ...], expected: int
) -> None:
    its = Epochs(epochs(*follower), FOLLOWER_END)
    assert truncated_to(Epochs(epochs(*leader), 100), its, 0) == (expected, Truncation.COMMON_EPOCH)


def test_a_high_watermark_at_the_end_truncates_nothing() -> None:
    assert truncated_to(Epochs((), 200), Epochs((), 120), 120) == (120, Truncation.COMMON_EPOCH)


OF_EPOCHS = "\n0: a=1(leader=1) b=1(leader=1)\n2: c=1(leader=3) d=1(leader=4)"


@pytest.mark.parametrize(
    ("text", "written", "expected"),
    [
        ("log", (), ()),
        ("log", ((1, 0), (3, 2)), ((1, 0), (3, 2))),
        ("log", ((1, 0), (5, 4)), ((1, 0),)),  # a leader has written nothing in epoch 5
        ("log", ((5, 4), (6, 9)), ()),
        ("log", ((1, 0), (3, 2), (5, 3)), ((1, 0), (3, 2), (5, 3))),
        ("log start=2", ((1, 0), (3, 2)), ((3, 2),)),
        ("log start=1", ((1, 0), (3, 2)), ((1, 1), (3, 2))),
        ("log start=3", ((1, 0),), ((1, 3),)),
        ("log start=4", ((1, 0), (3, 4)), ((1, 4),)),  # first those at the end go, then the others become one
        # What is recovered adds the epochs of its batches.
        ("log unclean", (), ((1, 0), (3, 2), (4, 3))),
        ("log unclean recovery=2", (), ((3, 2), (4, 3))),
        ("log unclean recovery=2", ((3, 1),), ((3, 1), (4, 3))),
        ("log unclean", ((2, 1),), ((2, 1), (3, 2), (4, 3))),
        ("log unclean", ((2, 3),), ((3, 2), (4, 3))),
        ("log unclean", ((2, 2),), ((3, 2), (4, 3))),
        ("log unclean", ((5, 9),), ()),  # newer than those of the batches, and then dropped
    ],
)
def test_the_epochs_of_a_log_that_was_loaded(
    tmp_path: Path, text: str, written: tuple[tuple[int, int], ...], expected: tuple[tuple[int, int], ...]
) -> None:
    spec = replace(log_dsl.parse(text + OF_EPOCHS), leader_epochs=epochs(*written))
    log = read_log(log_writer.write(spec, tmp_path), as_recovered=True)
    assert loaded_epochs(log) == Epochs(epochs(*expected), 4)


def test_without_a_checkpoint_of_the_log_start_old_epochs_stay(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse("log\n2: c=1(leader=3)"), leader_epochs=epochs((1, 0), (3, 2)))
    assert loaded_epochs(read_log(log_writer.write(spec, tmp_path))).entries == epochs((1, 0), (3, 2))


@pytest.mark.parametrize(("suffix", "expected"), [(".index", ((1, 0),)), (".timeindex", ())])
def test_a_broker_recovers_a_segment_without_an_index(
    tmp_path: Path, suffix: str, expected: tuple[tuple[int, int], ...]
) -> None:
    directory = log_writer.write(log_dsl.parse("log" + OF_EPOCHS), tmp_path)
    (directory / f"{0:020d}{suffix}").unlink()
    assert loaded_epochs(read_log(directory)).entries == epochs(*expected)


def test_old_batches_and_converted_ones_have_no_epochs(tmp_path: Path) -> None:
    data = legacy_entry(0, b"a", b"1", magic=1, timestamp=DEFAULT_TIME)
    converted = build([Record(1, DEFAULT_TIME, b"b", b"1")], partition_leader_epoch=-1)
    spec = LogSpec(segments=(SegmentSpec(base_offset=0, batches=(data, converted)),), unclean=True)
    assert loaded_epochs(read_log(log_writer.write(spec, tmp_path), as_recovered=True)) == Epochs((), 2)


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n0\n"])
def test_an_empty_file_of_epochs(tmp_path: Path, content: bytes) -> None:
    (replica,) = found(tmp_path, other=replace(BARE, high_watermark=3, files={"leader-epoch-checkpoint": content}))
    assert (replica.end_offset, replica.fetches_from_offset) == (4, 3)


def found(tmp_path: Path, own: LogSpec = OWN, other: LogSpec = OTHER) -> tuple[OtherReplica, ...]:
    directory = log_writer.write(own, tmp_path / "own")
    log_writer.write(other, tmp_path / "other")
    return Replicas([tmp_path / "other"], [directory]).of(directory)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (OWN, OTHER),
        (replace(OWN, topic_id=TOPIC_ID), OTHER),
        (replace(OWN, topic_id=TOPIC_ID), replace(OTHER, topic_id=TOPIC_ID)),
        (OWN, replace(OTHER, lone=True)),
        (OWN, replace(OTHER, meta_properties=replace(BROKER, cluster_id="c", node_id=2))),
    ],
)
def test_the_end_of_a_replica(tmp_path: Path, own: LogSpec, other: LogSpec) -> None:
    (replica,) = found(tmp_path, own, other)
    assert replica == OtherReplica(path=tmp_path / "other" / "orders-0", end_offset=4, fetches_from_offset=4)
    assert [replica.lags_behind(end) for end in (3, 4, 5)] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "offset", "said"),
    [
        ({"high_watermark": 4}, 4, "ends at offset 4, so it still has to fetch 2 offsets"),
        ({"high_watermark": 3}, 3, "and is truncated to its high watermark 3, so it still has to fetch 3 offsets"),
        ({"high_watermark": 0}, 0, "and is truncated to its high watermark 0, so"),
        ({"high_watermark": 1, "start": 2}, 2, "and is truncated to its high watermark 2, so"),
        ({"high_watermark": 3, "unclean": True}, 4, "ends at offset 4, so"),  # it gets the epochs of its batches
        ({}, 0, "and is truncated to its log start 0, because its high watermark is not known, so"),
        ({"start": 2}, 2, "and is truncated to its log start 2, because its high watermark is not known, so"),
        ({"lone": True}, 0, "and is truncated to its log start 0, because its high watermark is not known, so"),
    ],
)
def test_a_replica_without_epochs_fetches_from_its_high_watermark(
    tmp_path: Path, change: dict[str, Any], offset: int, said: str
) -> None:
    (replica,) = found(tmp_path, other=replace(BARE, **change))
    assert (replica.end_offset, replica.fetches_from_offset) == (4, offset)
    (note,) = replica_notes([replica], 6)
    assert said in note.text


def test_a_high_watermark_of_another_partition_only(tmp_path: Path) -> None:
    other = log_writer.write(BARE, tmp_path / "other")
    log_writer.write(replace(BARE, name="orders-1", high_watermark=4), tmp_path / "other")
    directory = log_writer.write(OWN, tmp_path / "own")
    (replica,) = Replicas([other], [directory]).of(directory)
    assert (replica.fetches_from_offset, replica.truncation) == (0, Truncation.LOG_START)


def test_a_replica_that_is_truncated_first_fetches_from_there(tmp_path: Path) -> None:
    own = replace(OWN, leader_epochs=epochs((0, 0), (2, 3)))
    (replica,) = found(tmp_path, own, replace(OTHER, leader_epochs=epochs((0, 0))))
    assert (replica.end_offset, replica.fetches_from_offset) == (4, 3)


def test_after_an_unclean_shutdown_the_end_is_that_of_the_recovered_log(tmp_path: Path) -> None:
    log_writer.write(OTHER, tmp_path / "other")
    torn = log_writer.write(replace(OTHER, unclean=True), tmp_path / "torn") / f"{3:020d}.log"
    torn.write_bytes(torn.read_bytes()[:-1])
    directory = log_writer.write(OWN, tmp_path / "own")
    (replica,) = Replicas([tmp_path / "torn"], [directory]).of(directory)
    assert (replica.end_offset, replica.fetches_from_offset) == (3, 3)


@pytest.mark.parametrize(
    ("own", "other", "problem"),
    [
        (replace(OWN, topic_id=TOPIC_ID), replace(OTHER, topic_id=ANOTHER_ID), "another one of the same name"),
        (
            replace(OWN, meta_properties=replace(BROKER, cluster_id="one")),
            replace(OTHER, meta_properties=replace(BROKER, cluster_id="two")),
            "of the cluster two, but",
        ),
        (OWN, replace(OTHER, high_watermark=9), "the end of this replica is not known: .*high watermark"),
    ],
)
def test_another_topic_another_cluster_and_an_unknown_end(
    tmp_path: Path, own: LogSpec, other: LogSpec, problem: str
) -> None:
    with pytest.raises(RefusedError, match=problem):
        found(tmp_path, own, other)


def test_damage_hides_the_end_but_a_damaged_index_does_not(tmp_path: Path) -> None:
    directory = log_writer.write(OWN, tmp_path / "own")
    other = log_writer.write(OTHER, tmp_path / "other")
    for base in (0, 3):
        (other / f"{base:020d}.index").write_bytes(b"\xff" * 8)
    assert Replicas([other], [directory]).of(directory)[0].end_offset == 4
    flip(other / f"{3:020d}.log", -1)
    with pytest.raises(RefusedError, match="the end of this replica is not known"):
        Replicas([other], [directory]).of(directory)


@pytest.mark.parametrize(
    "file", ["replication-offset-checkpoint", "orders-0/leader-epoch-checkpoint", "orders-0/partition.metadata"]
)
def test_a_damaged_checkpoint_of_a_replica_is_no_damage_here(tmp_path: Path, file: str) -> None:
    other = log_writer.write(OTHER, tmp_path / "other")
    (tmp_path / "other" / file).write_text("damaged")
    entry = planned(tmp_path, COMPACT, other)
    assert type(entry.error) is RefusedError
    assert f"the end of this replica is not known: {tmp_path / 'other' / file}" in str(entry.error)
    assert (entry.is_partition, entry.reason) == (True, None)


def test_no_replica_of_the_partition(tmp_path: Path) -> None:
    assert found(tmp_path, other=replace(OTHER, name="orders-1")) == (OtherReplica(path=tmp_path / "other"),)


def test_the_metadata_log_has_no_replicas(tmp_path: Path) -> None:
    assert found(tmp_path, replace(OWN, name="__cluster_metadata-0"), replace(OTHER, name="__cluster_metadata-0")) == ()


@pytest.mark.parametrize("what", ["own", "own/orders-0", "link", "link/orders-0"])
def test_the_partition_itself_is_a_mistake(tmp_path: Path, what: str) -> None:
    directory = log_writer.write(OWN, tmp_path / "own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    with pytest.raises(ConfigError, match="which is to be cleaned"):
        Replicas([tmp_path / what], [directory])


def test_the_directory_of_another_partition_is_refused(tmp_path: Path) -> None:
    other = log_writer.write(replace(OTHER, name="orders-1"), tmp_path / "other")
    with pytest.raises(RefusedError, match="a replica of another partition"):
        Replicas([other], [log_writer.write(OWN, tmp_path / "own")])


# A replica on its way from another log directory


def moved(tmp_path: Path, spec: LogSpec, name: str = FUTURE) -> Path:
    """Write a log into a second log directory of the broker, under the name that it has while it is moved."""
    log_writer.write(replace(OTHER, name="payments-0", high_watermark=1), tmp_path / "second")
    directory = log_writer.write(spec, tmp_path / "second")
    return directory.rename(directory.with_name(name))


@pytest.mark.parametrize(
    ("spec", "end_offset", "offset"),
    [
        (OTHER, 4, 4),
        (BARE, 4, 0),
        (replace(BARE, high_watermark=3), 4, 3),
        (log_dsl.parse("log\n0:"), 0, 0),  # it has just been made
        (replace(OTHER, leader_epochs=epochs((0, 0), (2, 3)), high_watermark=2), 4, 2),  # this replica has no epoch 2
    ],
)
def test_a_future_replica_fetches_from_its_end(tmp_path: Path, spec: LogSpec, end_offset: int, offset: int) -> None:
    directory = log_writer.write(replace(OWN, leader_epochs=epochs((0, 0))), tmp_path / "own")
    future = moved(tmp_path, spec)
    (replica,) = Replicas([future], [directory]).of(directory)
    assert (replica.path, replica.end_offset, replica.fetches_from_offset) == (future, end_offset, offset)
    (note,) = replica_notes([replica], 6)
    assert f"the replica {future} ends at offset {end_offset}" in note.text
    assert note.text.endswith(f"drops no tombstone and no marker from offset {offset} on")


def test_after_an_unclean_shutdown_a_future_replica_is_recovered(tmp_path: Path) -> None:
    directory = log_writer.write(OWN, tmp_path / "own")
    future = moved(tmp_path, replace(OTHER, high_watermark=4))
    (tmp_path / "second" / ".kafka_cleanshutdown").unlink()
    torn = future / f"{3:020d}.log"
    torn.write_bytes(torn.read_bytes()[:-1])
    (replica,) = Replicas([future], [directory]).of(directory)
    assert (replica.end_offset, replica.fetches_from_offset) == (3, 3)


def test_what_is_being_moved_is_named_by_itself(tmp_path: Path) -> None:
    directory, future = log_writer.write(OWN, tmp_path / "own"), moved(tmp_path, OTHER)
    (tmp_path / "link").symlink_to(tmp_path / "second")
    by_log_dir, by_link = (
        Replicas([tmp_path / "second"], [directory]),
        Replicas([tmp_path / "link" / FUTURE], [directory]),
    )
    assert by_log_dir.of(directory) == (OtherReplica(path=tmp_path / "second"),)
    assert [each.names(future) for each in (by_log_dir, by_link, Replicas([], [directory]))] == [False, True, False]
    assert by_link.names(tmp_path / "link" / FUTURE)
    assert not by_link.names(tmp_path / "second")
    assert by_link.of(directory)[0].end_offset == 4


def test_a_future_replica_of_another_partition_is_refused(tmp_path: Path) -> None:
    future = moved(tmp_path, replace(OTHER, name="orders-1"), FUTURE.replace("-0.", "-1."))
    with pytest.raises(RefusedError, match="a replica of another partition"):
        Replicas([future], [log_writer.write(OWN, tmp_path / "own")])


def test_a_future_replica_of_another_topic_of_the_name_is_refused(tmp_path: Path) -> None:
    directory = log_writer.write(replace(OWN, topic_id=TOPIC_ID), tmp_path / "own")
    future = moved(tmp_path, replace(OTHER, topic_id=ANOTHER_ID))
    with pytest.raises(RefusedError, match="another one of the same name"):
        Replicas([future], [directory]).of(directory)


@pytest.mark.parametrize("kind", ["delete", "stray"])
def test_what_a_broker_deletes_or_has_found_is_refused(tmp_path: Path, kind: str) -> None:
    directory = log_writer.write(OWN, tmp_path / "own")
    other = moved(tmp_path, OTHER, FUTURE.replace("future", kind))
    with pytest.raises(RefusedError, match=f"a broker's -{kind} directory"):
        Replicas([other], [directory]).of(directory)


def test_a_link_to_a_future_replica_is_refused(tmp_path: Path) -> None:
    directory, future = log_writer.write(OWN, tmp_path / "own"), moved(tmp_path, OTHER)
    (tmp_path / FUTURE).symlink_to(future)
    assert Replicas([tmp_path / FUTURE], [directory]).names(future)
    with pytest.raises(RefusedError, match="a symbolic link"):
        Replicas([tmp_path / FUTURE], [directory]).of(directory)


def test_a_future_directory_is_read_as_a_replica_only(tmp_path: Path) -> None:
    future = moved(tmp_path, OTHER)
    with pytest.raises(RefusedError, match="a broker's -future directory"):
        read_log(future)
    assert str(read_log(future, accepts_future=True).topic_partition) == "orders-0"


def planned(
    tmp_path: Path, settings: Mapping[str, str], *others: Path, own: LogSpec = OWN, now_ms: int = OWN.now_ms
) -> PlannedPartition:
    directory = log_writer.write(own, tmp_path / "own")
    overrides = [parse_override(f"{name}={value}") for name, value in settings.items()]
    (entry,) = plan_partitions([directory], PlanOptions(now_ms=now_ms, overrides=(*overrides,), replicas=others))
    return entry


def codes(entry: PlannedPartition) -> set[RemarkCode]:
    return {note.code for note in entry.notes}


COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def test_a_plan_has_its_replicas_and_says_what_they_need(tmp_path: Path) -> None:
    other = log_writer.write(OTHER, tmp_path / "other")
    entry = planned(tmp_path, COMPACT, other)
    assert entry.plan is not None
    assert entry.plan.held_back_from_offset == 4
    assert RemarkCode.REPLICA_LAGS in codes(entry)
    assert "--add-config min.cleanable.dirty.ratio=1" in hints([entry])[0]
    assert "--delete-config min.cleanable.dirty.ratio" in hints([entry])[1]


@pytest.mark.parametrize(
    ("ends", "expected"), [((3, 9), 3), ((0, 3, 9), 0), ((4, 3), 3), ((9,), None), ((6,), None), ((5,), 5)]
)
def test_the_shortest_of_several_replicas_decides(tmp_path: Path, ends: tuple[int, ...], expected: int | None) -> None:
    others = [
        log_writer.write(
            log_dsl.parse(f"log hw={end}\n0: {' '.join(f'k{n}=1' for n in range(end))}"), tmp_path / str(end)
        )
        for end in ends
    ]
    plan = planned(tmp_path, COMPACT, *others).plan
    assert plan is not None
    assert plan.held_back_from_offset == expected


def test_of_a_topic_that_is_not_compacted_nothing_is_said(tmp_path: Path) -> None:
    entry = planned(tmp_path, {"cleanup.policy": "delete"}, log_writer.write(OTHER, tmp_path / "other"))
    assert RemarkCode.REPLICA_LAGS not in codes(entry)
    assert not [hint for hint in hints([entry]) if "kafka-configs" in hint]


def test_an_unknown_end_is_the_error_of_its_partition_only(tmp_path: Path) -> None:
    others = [log_writer.write(replace(OTHER, name=f"orders-{n}"), tmp_path / "other") for n in range(2)]
    flip(others[0] / f"{3:020d}.log", -1)
    own = [log_writer.write(replace(OWN, name=f"orders-{n}"), tmp_path / "own") for n in range(2)]
    options = PlanOptions(
        now_ms=OWN.now_ms, overrides=(parse_override("cleanup.policy=compact"),), replicas=(tmp_path / "other",)
    )
    first, second = plan_partitions(own, options)
    assert isinstance(first.error, RefusedError)
    assert (first.is_partition, second.error) == (True, None)


TOPIC = {"min.cleanable.dirty.ratio": Setting(source=Source.TOPIC_OVERRIDE)}


@pytest.mark.parametrize(
    ("change", "sets", "takes_back"),
    [
        ({}, "--add-config min.cleanable.dirty.ratio=1", "--delete-config min.cleanable.dirty.ratio"),
        (
            {"settings": TOPIC, "min_cleanable_dirty_ratio": 0.2},
            "--add-config min.cleanable.dirty.ratio=1",
            "--add-config min.cleanable.dirty.ratio=0.2",
        ),
        (
            {"settings": TOPIC, "min_cleanable_dirty_ratio": 0.2, "max_compaction_lag_ms": 5},
            "--add-config min.cleanable.dirty.ratio=1,max.compaction.lag.ms=9223372036854775807",
            "--add-config min.cleanable.dirty.ratio=0.2 --delete-config max.compaction.lag.ms",
        ),
    ],
)
def test_how_a_brokers_cleaner_is_stopped_and_started_again(
    tmp_path: Path, change: dict[str, Any], sets: str, takes_back: str
) -> None:
    entry = planned(tmp_path, COMPACT, log_writer.write(OTHER, tmp_path / "other"))
    assert entry.plan is not None
    plan = replace(entry.plan, config=replace(entry.plan.config, **{"settings": {}, **change}))
    first, second = hints([replace(entry, plan=plan)])
    assert first.endswith(f" --entity-name orders {sets}")
    assert second.endswith(f" --entity-name orders {takes_back}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0: a=~(horizon=09:00) b=~\n9: z=1", HeldBack()),  # below the end, and without a horizon
        ("0: a=1 b=1\n4: a=~(horizon=10:00:00.001) b=~(horizon=10:00)\n9: z=1", HeldBack(tombstones=1)),
        ("0: a=1\n3: [a=~ b=~]@3..4(horizon=10:00) [~=~ c=1](horizon=10:00)\n9: z=1", HeldBack(tombstones=2)),
        ("0: a=1\n4: [a=1](horizon=10:00 gzip) [b=~](horizon=10:00 zstd)\n9: z=1", HeldBack(tombstones=1)),
        ("0: a=1\n4: commit(pid=7 horizon=10:00) abort(pid=8)\n9: z=1", HeldBack(markers=1)),
        ("0: a=1\n4: z=1 c=~(horizon=10:00)", HeldBack()),  # in the active segment
    ],
)
def test_what_is_held_back_at_most(tmp_path: Path, text: str, expected: HeldBack) -> None:
    own = log_dsl.parse(f"log now=10:00\n{text}")
    entry = planned(tmp_path, COMPACT, log_writer.write(OTHER, tmp_path / "other"), own=own)
    assert entry.plan is not None
    assert entry.plan.eligible
    assert held_back_at_most(entry.plan) == expected
    assert held_back_at_most(replace(entry.plan, replicas=())) == HeldBack()
