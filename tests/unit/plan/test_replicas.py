"""`plan.replicas`: where the replicas on other brokers' disks end, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.held_back import HeldBack, held_back_at_most
from kcompact.config.settings import Setting, Source, parse_override
from kcompact.errors import ConfigError, RefusedError
from kcompact.format.checkpoint import EpochEntry
from kcompact.notes import NoteCode
from kcompact.plan.options import PlanOptions
from kcompact.plan.replicas import OtherReplica, Replicas, truncated_to
from kcompact.plan.run_notes import hints
from kcompact.plan.walk import PlannedPartition, plan_partitions
from tests.support import log_dsl, log_writer
from tests.support.command_line import flip
from tests.support.log_writer import BROKER, LogSpec

OWN = log_dsl.parse("log now=10:00\n0: a=1 b=1 c=1\n3: a=~ b=~\n5: d=1")
OTHER = log_dsl.parse("log now=10:00\n0: a=1 b=1 c=1\n3: a=~")
TOPIC_ID, ANOTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def epochs(*entries: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch=epoch, start_offset=offset) for epoch, offset in entries)


@pytest.mark.parametrize(
    ("leader", "follower", "expected"),
    [
        ((), (), 120),
        (epochs((1, 0)), (), 120),
        ((), epochs((1, 0)), 120),
        (epochs((1, 0)), epochs((1, 0)), 120),
        (epochs((1, 0), (2, 130)), epochs((1, 0)), 120),
        (epochs((1, 0), (2, 120)), epochs((1, 0)), 120),
        (epochs((1, 0), (2, 100)), epochs((1, 0)), 100),  # the leader of epoch 2 has begun below the follower's end
        (epochs((1, 0), (3, 100)), epochs((1, 0), (2, 90)), 90),  # nobody else has the follower's epoch 2
        (epochs((1, 0), (3, 80)), epochs((1, 0), (2, 90)), 80),
        (epochs((1, 0), (3, 100)), epochs((0, 0), (2, 90)), 0),  # asked again for epoch 0, which ends where 1 starts
        (epochs((5, 70)), epochs((1, 0)), 70),  # all epochs of the leader are newer
    ],
)
def test_a_follower_is_truncated_by_the_leaders_epochs(
    leader: tuple[EpochEntry, ...], follower: tuple[EpochEntry, ...], expected: int
) -> None:
    assert truncated_to(leader, follower, 120) == expected


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
    (other / f"{0:020d}.index").write_bytes(b"\xff" * 8)
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


def planned(
    tmp_path: Path, settings: Mapping[str, str], *others: Path, own: LogSpec = OWN, now_ms: int = OWN.now_ms
) -> PlannedPartition:
    directory = log_writer.write(own, tmp_path / "own")
    overrides = [parse_override(f"{name}={value}") for name, value in settings.items()]
    (entry,) = plan_partitions([directory], PlanOptions(now_ms=now_ms, overrides=(*overrides,), replicas=others))
    return entry


def codes(entry: PlannedPartition) -> set[NoteCode]:
    return {note.code for note in entry.notes}


COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def test_a_plan_has_its_replicas_and_says_what_they_need(tmp_path: Path) -> None:
    other = log_writer.write(OTHER, tmp_path / "other")
    entry = planned(tmp_path, COMPACT, other)
    assert entry.plan is not None
    assert entry.plan.held_back_from_offset == 4
    assert NoteCode.REPLICA_LAGS in codes(entry)
    assert "--add-config min.cleanable.dirty.ratio=1" in hints([entry])[0]
    assert "--delete-config min.cleanable.dirty.ratio" in hints([entry])[1]


@pytest.mark.parametrize(
    ("ends", "expected"), [((3, 9), 3), ((0, 3, 9), 0), ((4, 3), 3), ((9,), None), ((6,), None), ((5,), 5)]
)
def test_the_shortest_of_several_replicas_decides(tmp_path: Path, ends: tuple[int, ...], expected: int | None) -> None:
    others = [
        log_writer.write(log_dsl.parse(f"log\n0: {' '.join(f'k{n}=1' for n in range(end))}"), tmp_path / str(end))
        for end in ends
    ]
    plan = planned(tmp_path, COMPACT, *others).plan
    assert plan is not None
    assert plan.held_back_from_offset == expected


def test_of_a_topic_that_is_not_compacted_nothing_is_said(tmp_path: Path) -> None:
    entry = planned(tmp_path, {"cleanup.policy": "delete"}, log_writer.write(OTHER, tmp_path / "other"))
    assert NoteCode.REPLICA_LAGS not in codes(entry)
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
