"""The topics of Kafka's coordinators, from a real broker: cleaned, and the broker and its clients go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.broker import Broker
from kcompact.format.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, Suffix
from tests.oracle.clients import ABOUT_LOGS, COORDINATORS, loaded, size_of
from tests.oracle.real_kafka import Json, RealKafka, copy_log_dir
from tests.support.command_line import kcompact

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

TOPIC_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0"}
CLEANED = [f"{CONSUMER_OFFSETS}-0", "__transaction_state-0"]
GROUPS = {
    "classic-group": "classic",
    "consumer-group": "consumer",
    "sharers": "share",
    "simple-group": "simple",
    "transactional-group": "simple",
    "deleted-classic": "deleted",
    "deleted-consumer": "deleted",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    """A process of its own: it holds the clients."""
    with RealKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def used(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Broker, Json]:
    """A stopped broker whose clients are still there, and what the admin API said."""
    broker = Broker(tmp_path_factory.mktemp("broker"), properties=COORDINATORS)
    with broker:
        kafka.use_cluster(broker.address)
        described = kafka.describe_cluster(broker.address)
    assert {name: members(described, name) for name in ("classic-group", "consumer-group", "sharers")} == {
        "classic-group": 2,
        "consumer-group": 2,
        "sharers": 1,
    }
    assert {each[0] for each in described["transactions"].values()} == {"CompleteAbort", "Ongoing"}
    return broker, described


def members(described: Json, group: str) -> int:
    return len(described["descriptions"][group]["members"])


def groups_of(log_dir: Path) -> Json:
    """Return type, members, live and pending offsets of each group, by `groups`."""
    entry = kcompact("groups", "--json", log_dir).partition
    assert (entry["error"], entry["undecoded_records"]) == (None, 0)
    assert sum(group["size_bytes"] for group in entry["groups"]) + entry["other_bytes"] == size_of(log_dir / CLEANED[0])
    return {
        group["group"]: (group["type"], group["members"], group["offsets"], group["pending_offsets"])
        for group in entry["groups"]
    }


def check_decoded(log_dir: Path) -> None:
    """All records of all three topics are decoded."""
    ran = kcompact("records", "--decode", "--json", *sorted(log_dir.glob("__[cst]*-0")))
    assert (ran.code, ran.err) == (0, "")
    assert all(f'"{topic}-0/' in ran.out for topic in INTERNAL_TOPICS)
    assert not [line for line in ran.lines if "decodeError" in line]


def cleaned_by_kafka(kafka: RealKafka, log_dir: Path, now_ms: int) -> dict[str, bytes]:
    """Let Kafka's own cleaner clean the topics, and return their files."""
    for name in CLEANED:
        kafka.clean(log_dir, config=TOPIC_CONFIG, now_ms=now_ms, only=name, high_watermark="leo")
    return files_of(log_dir)


def files_of(log_dir: Path) -> dict[str, bytes]:
    """The segments of the topics with their indexes."""
    kinds = {Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX}
    paths = [path for name in CLEANED for path in (log_dir / name).iterdir() if path.suffix in kinds]
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in paths}


def test_a_broker_and_its_clients_go_on_after_a_cleaning(
    kafka: RealKafka, used: tuple[Broker, Json], tmp_path: Path
) -> None:
    broker, before = used
    log_dir = broker.log_dir
    check_decoded(log_dir)
    groups = groups_of(log_dir)
    check_groups(groups, before)
    sizes = {name: size_of(log_dir / name) for name in CLEANED}
    hint = kcompact("plan", log_dir)
    assert "Not cleaned: 2 partitions of Kafka's internal topics. Pass --include-internal" in hint.out + hint.err
    now_ms = int(time.time() * 1000)
    by_kafka = cleaned_by_kafka(kafka, copy_log_dir(log_dir, tmp_path / "copy"), now_ms)
    options = ("--force", "--include-internal", "--now", str(now_ms), "--yes", "--json")
    ran = kcompact("clean", "--engine", "in-process", *options, log_dir)
    statuses = {Path(entry["directory"]).name: entry["status"] for entry in ran.json["partitions"]}
    assert ran.code == 0
    assert {name: statuses[name] for name in CLEANED} == dict.fromkeys(CLEANED, "cleaned")
    assert all(size_of(log_dir / name) < sizes[name] / 2 for name in CLEANED)
    assert files_of(log_dir) == by_kafka
    check_decoded(log_dir)
    cleaned = groups_of(log_dir)
    assert {name: group for name, group in cleaned.items() if group[0] != "deleted"} == {
        name: group for name, group in groups.items() if group[0] != "deleted"
    }
    assert kcompact("verify", log_dir).code == 0
    with broker:
        assert loaded(kafka, broker) == before
        assert groups_of(log_dir) == cleaned  # Beside the running broker.
        check_that_clients_go_on(kafka, broker, before)
        kafka.leave_cluster()
    assert ABOUT_LOGS.findall(broker.logged) == []


def check_groups(groups: Json, described: Json) -> None:
    """What `groups` says is what the admin API says."""
    assert {name: group[0] for name, group in groups.items()} == GROUPS
    for name, offsets in described["offsets"].items():
        assert groups[name][2] == len(offsets), name
    for name in described["descriptions"]:
        assert groups[name][1] == members(described, name), name
    assert groups["transactional-group"][3] == 1


def check_that_clients_go_on(kafka: RealKafka, broker: Broker, before: Json) -> None:
    """The members are the same and commit, the open transaction commits, and records are shared."""
    assert kafka.go_on(broker.address, offset=77) >= 30
    after = kafka.describe_cluster(broker.address)
    assert after["descriptions"] == before["descriptions"]
    for group in ("classic-group", "consumer-group"):
        assert {offset for offset, *_ in after["offsets"][group].values()} == {77}
        assert len(after["offsets"][group]) == 3
    assert after["offsets"]["transactional-group"]["orders-0"][0] == 1000
    states = sorted(each[0] for each in after["transactions"].values())
    assert states == ["CompleteAbort", "CompleteAbort", "CompleteCommit"]
