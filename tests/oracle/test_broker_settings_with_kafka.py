"""Real brokers with static settings of their own: with their file in sight, kcompact says and does what they do.

Without the file the settings in which kcompact differs from the broker are among those that it says are assumed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from fixtures.broker import Broker, create_topics
from kcompact.format.batch import parse_batches
from kcompact.views.findings import FINE
from tests.oracle.driver import class_path
from tests.oracle.real_kafka import copy_log_dir
from tests.support.command_line import kcompact, note_texts
from tests.support.patience import becomes

pytestmark = pytest.mark.oracle

OFF, READY = "log.cleaner.enable=false\n", "log.cleaner.backoff.ms=100\nlog.initial.task.delay.ms=100\n"
COMPACT = {"cleanup.policy": "compact", "segment.ms": "60000"}
AT_ONCE = {"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
"""A topic with these is cleaned, whatever the broker's own settings are: the cleaner has looked at all topics then."""
TOPICS = {"orders": COMPACT, "control": COMPACT | AT_ONCE}
SEGMENTS, BATCH_BYTES = 5, 400_000


@pytest.fixture(autouse=True)
def _searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_BROKER_SEARCH", "auto")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a stopped broker: two topics, each of four closed segments of 400 kB, with a tombstone."""
    home = tmp_path_factory.mktemp("written")
    with Broker(home, properties=OFF) as broker:
        create_topics(broker.address, TOPICS)
        producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=60_000, batch_size=1 << 20)
        start_ms = int(time.time() * 1000) - 120_000 * SEGMENTS
        for name in TOPICS:
            for number in range(SEGMENTS):
                time_ms = start_ms + 120_000 * number
                for key, value in ((b"gone", None), (b"key-%d" % number, bytes(BATCH_BYTES))):
                    producer.send(name, key=key, value=value, partition=0, timestamp_ms=time_ms)
                producer.flush()
        producer.close()
    for name in TOPICS:
        assert len(list((broker.log_dir / f"{name}-0").glob("*.log"))) == SEGMENTS
    return broker.log_dir


def planned(log_dir: Path, *options: str | Path) -> dict[str, Any]:
    ran = kcompact("plan", "--json", "--topic", "orders", *options, log_dir)
    assert ran.code == 0, ran.err
    return ran.partition


def checkpointed(log_dir: Path) -> dict[str, int]:
    """Return the topics that the broker's cleaner has cleaned, and up to which offset."""
    file = log_dir / "cleaner-offset-checkpoint"
    lines = file.read_text(encoding="utf-8").splitlines()[2:] if file.exists() else []
    return {topic: int(offset) for topic, _, offset in map(str.split, lines)}


def has_cleaner(process: int) -> bool:
    """Return whether a broker has a thread `kafka-log-cleaner-thread-0`, of which the kernel keeps 15 characters."""
    names = (each.read_text(encoding="utf-8") for each in Path(f"/proc/{process}/task").glob("*/comm"))
    return any(name.startswith("kafka-log-clean") for name in names)


LAG, RATIO = "log.cleaner.min.compaction.lag.ms=3600000\n", "log.cleaner.min.cleanable.ratio=1.0\n"
KEPT_OUT = [(LAG, "min-compaction-lag", "min.compaction.lag.ms"), (RATIO, "below-ratio", "min.cleanable.dirty.ratio")]


@pytest.mark.parametrize(("line", "reason", "name"), KEPT_OUT, ids=[name for _, _, name in KEPT_OUT])
def test_a_setting_that_keeps_the_cleaner_out(line: str, reason: str, name: str, written: Path, tmp_path: Path) -> None:
    log_dir = copy_log_dir(written, tmp_path / "log-dir")
    elsewhere = copy_log_dir(written, tmp_path / "in" / "no" / "sight")
    with Broker(tmp_path, properties=READY + line):
        assert becomes(lambda: "control" in checkpointed(log_dir))
        assert planned(log_dir)["reason"] == reason
    assert "orders" not in checkpointed(log_dir)
    stopped = planned(log_dir)
    assert (stopped["reason"], stopped["assumed"]) == (reason, [])
    assert stopped["broker_config"] == str(tmp_path / "server.properties")
    # The same log without the file. Its own broker's file, which is beside it, does not name the copy.
    unknown = planned(elsewhere)
    assert (unknown["reason"], unknown["broker_config"], name in unknown["assumed"]) == ("dirty-ratio", None, True)
    ran = kcompact("plan", "--topic", "orders", elsewhere)
    assert name in ran.err.partition("and decide here, for ")[2]
    moved = ("--broker-config", tmp_path / "server.properties", "--log-dirs-moved")
    assert planned(elsewhere, *moved)["reason"] == reason


def test_a_broker_without_a_cleaner(written: Path, tmp_path: Path) -> None:
    log_dir = copy_log_dir(written, tmp_path / "log-dir")
    for properties, expected in ((READY, True), (READY + OFF, False)):
        with Broker(tmp_path, properties=properties) as broker:
            assert broker._process is not None
            assert has_cleaner(broker._process.pid) == expected
        found = kcompact("doctor", "--json", log_dir)
        kinds = {each["finding"] for each in found.json["findings"]}
        assert ("cleaner-disabled" in kinds, "assumed-settings" in kinds) == (not expected, False), found.out
        assert (found.code == 0) == expected
        assert (FINE in kcompact("doctor", log_dir).out) == expected
    unseen = kcompact("doctor", copy_log_dir(log_dir, tmp_path / "in" / "no" / "sight"))
    assert (unseen.code, FINE in unseen.out, "log.cleaner.enable=true" in unseen.out) == (0, False, True)


def horizons(directory: Path) -> list[int]:
    """Return the delete horizons of the batches of a partition."""
    batches = (one for file in sorted(directory.glob("*.log")) for one in parse_batches(file.read_bytes(), file=""))
    return [horizon for one in batches if (horizon := one.header.delete_horizon_ms) is not None]


@pytest.fixture
def cleaned(written: Path, tmp_path: Path) -> tuple[Path, tuple[int, int]]:
    """The home of a broker that has cleaned with its own limits on segments and tombstones, and when it was so."""
    copy_log_dir(written, tmp_path / "log-dir")
    began_ms = int(time.time() * 1000)
    own = "log.segment.bytes=1048576\nlog.cleaner.delete.retention.ms=7200000\n"
    with Broker(tmp_path, properties=READY + own) as broker:
        assert becomes(lambda: "orders" in checkpointed(broker.log_dir))
    return tmp_path, (began_ms, int(time.time() * 1000))


def test_the_bytes_and_the_horizons(cleaned: tuple[Path, tuple[int, int]], written: Path) -> None:
    home, (began_ms, ended_ms) = cleaned
    partition = home / "log-dir" / "orders-0"
    assert horizons(partition)
    assert all(began_ms <= horizon - 7_200_000 <= ended_ms for horizon in horizons(partition))
    names = sorted(file.name for file in partition.glob("*.log"))
    for place, knows in ((home / "again", True), (home / "in" / "no" / "sight", False)):
        again = copy_log_dir(written, place)
        given = ("--broker-config", home / "server.properties", "--log-dirs-moved") if knows else ()
        now_ms = int(time.time() * 1000)
        clean = ("clean", "--engine", "in-process", "--json", "--topic", "orders", "--now", str(now_ms))
        assert kcompact(*clean, *given, again).partition["status"] == "cleaned"
        assert (sorted(file.name for file in (again / "orders-0").glob("*.log")) == names) == knows
        assert {horizon - now_ms for horizon in horizons(again / "orders-0")} == {7_200_000 if knows else 86_400_000}


# Where the file is


OWN = """\
log.cleaner.min.cleanable.ratio=0.35
log.cleaner.min.compaction.lag.ms=1234
log.cleaner.delete.retention.ms=4444
log.segment.bytes=3000000
log.retention.hours=5
log.cleanup.policy=compact
"""
VALUES = {
    "min.cleanable.dirty.ratio": 0.35,
    "min.compaction.lag.ms": 1234,
    "delete.retention.ms": 4444,
    "segment.bytes": 3_000_000,
    "retention.ms": 18_000_000,
}


def test_a_running_broker_leads_to_its_file(written: Path, tmp_path: Path) -> None:
    """Its log directory is elsewhere, so its file is in no usual place, and is only found while it runs."""
    log_dir = copy_log_dir(written, tmp_path / "some" / "where")
    home = tmp_path / "home"
    home.mkdir()
    broker = Broker(home, properties=f"{OWN}{READY}log.dirs={log_dir}\n")
    broker.log_dir = log_dir
    with broker:
        assert broker._process is not None
        entry = planned(log_dir)
        notes = note_texts(kcompact("plan", "--json", "--topic", "orders", log_dir).json)
        assert any(f"with which process {broker._process.pid} runs" in note for note in notes)
        live = planned(log_dir, "--bootstrap-server", broker.address)
    assert entry["broker_config"] == str(home / "server.properties")
    assert {name: entry["config"][name]["value"] for name in VALUES} == VALUES
    # The broker itself says the same.
    assert {name: each["value"] for name, each in entry["config"].items()} == {
        name: each["value"] for name, each in live["config"].items()
    }
    assert live["assumed"] == entry["assumed"] == []
    stopped = planned(log_dir)
    assert stopped["broker_config"] is None
    differing = {name for name in VALUES if stopped["config"][name]["value"] != VALUES[name]}
    assert differing == set(VALUES) <= set(stopped["assumed"])


def test_options_and_relative_paths_of_a_running_broker(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = copy_log_dir(written, tmp_path / "log-dir")
    broker = Broker(tmp_path, properties=f"{READY}log.dirs=log-dir\n")
    run = broker.run
    options = ("--override", "log.cleaner.delete.retention.ms=99")
    # The class path is relative to nothing: only the broker's files are.
    assert all(part.startswith("/") for part in class_path().split(":"))
    monkeypatch.chdir(tmp_path)

    def with_options(main: str, *arguments: str) -> Any:
        more = options if main == "kafka.Kafka" else ()
        return run(main, *(Path(each).name if each.endswith(".properties") else each for each in arguments), *more)

    monkeypatch.setattr(broker, "run", with_options)
    with broker:
        monkeypatch.chdir("/")
        entry = planned(log_dir)
    assert entry["broker_config"] == str(tmp_path / "server.properties")
    assert entry["config"]["delete.retention.ms"] == {"value": 99, "source": "broker-config", "origin": None}
    assert planned(log_dir)["broker_config"] is None
