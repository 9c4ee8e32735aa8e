"""What `doctor` says of a log directory happens: a real broker does not start, or its cleaner gives a partition up.

A broker writes the log directory once. Each case gets a copy, in which one thing is wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from fixtures.broker import CLUSTER_ID, Broker, create_topics
from kcompact.format.properties import parse_meta_properties
from kcompact.remarks import RemarkCode
from tests.oracle.driver import NEWEST
from tests.oracle.real_kafka import copy_log_dir, java
from tests.support.broker_files import build_meta_properties
from tests.support.command_line import flip, kcompact, rewrite, running_broker, server_properties
from tests.support.disk_in_memory import disk_in_memory
from tests.support.patience import PATIENCE_S, becomes
from tests.support.sick_log_dirs import orders

pytestmark = pytest.mark.oracle

TOPIC = {"cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01"}
START_MS = 1_700_000_000_000
CLEANER = "log.cleaner.backoff.ms=100\nlog.initial.task.delay.ms=100\n"
NOBODY = 65534
NEVER = "log.cleaner.enable=false\n"
CLOSED = "00000000000000000020.log"
"""A closed segment of the topic."""


BEFORE_4_4 = "4.3.1"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that was stopped cleanly: a topic of four closed segments."""
    home = tmp_path_factory.mktemp("broker")
    with Broker(home, properties=NEVER) as broker:
        create_topics(broker.address, {"orders": TOPIC})
        # Nothing is sent before `flush`: each segment has one batch.
        producer = KafkaProducer(bootstrap_servers=broker.address, compression_type="gzip", linger_ms=60_000)
        for segment in range(5):
            for number in range(20):
                time_ms = START_MS + 120_000 * segment + number
                key, value = b"key-%d" % number, b"%d" % segment
                producer.send("orders", key=key, value=value, partition=0, timestamp_ms=time_ms)
            producer.flush()
        producer.close()
    names = sorted(path.name for path in (home / "log-dir" / "orders-0").glob("*.log"))
    assert len(names) == 5, names
    assert CLOSED in names
    return home / "log-dir"


@pytest.fixture
def log_dir(stopped: Path, tmp_path: Path) -> Path:
    return copy_log_dir(stopped, tmp_path / "log-dir")


def found(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    """Return the findings, without those on settings that are only assumed and on the broker's release."""
    ran = kcompact("doctor", "--json", *arguments)
    always = {RemarkCode.ASSUMED_SETTINGS.value, RemarkCode.BROKER_RELEASE.value}
    return {each["finding"]: each for each in ran.json["findings"] if each["finding"] not in always}


def logged_by_a_broker_that_ends(home: Path, properties: str = "", version: str = NEWEST) -> str:
    """Start a broker that must end by itself; return what it has logged."""
    broker = Broker(home, properties=properties, version=version)
    with contextlib.suppress(RuntimeError):
        broker.start()
        process = broker._process
        assert process is not None
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            broker.stop()
            pytest.fail(f"the broker runs:\n{broker.logged[-3000:]}")
    return broker.logged


def test_a_broker_starts_where_nothing_is_found(log_dir: Path) -> None:
    assert found(log_dir) == {}
    with Broker(log_dir.parent, properties=NEVER) as broker:
        assert "ERROR" not in broker.logged


def meta_properties_without_cluster(log_dir: Path) -> None:
    (log_dir / "meta.properties").write_text("node.id=1\nversion=1\n", encoding="utf-8")


def malformed_meta_properties(log_dir: Path) -> None:
    (log_dir / "meta.properties").write_text("version=1\nnode.id=one\ncluster.id=x\n", encoding="utf-8")


def lost_and_found(log_dir: Path) -> None:
    (log_dir / "lost+found").mkdir()


def backup_of_a_log(log_dir: Path) -> None:
    shutil.copy(orders(log_dir) / CLOSED, orders(log_dir) / "backup.log")


def snapshot_without_a_number(log_dir: Path) -> None:
    (orders(log_dir) / "old.snapshot").write_bytes(b"")


def cut_checkpoint(log_dir: Path) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 7\n", encoding="utf-8")


def cut_leader_epochs(log_dir: Path) -> None:
    (orders(log_dir) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n", encoding="utf-8")


def leader_epochs_of_the_future(log_dir: Path) -> None:
    (orders(log_dir) / "leader-epoch-checkpoint").write_text("1\n1\n0 0\n", encoding="utf-8")


def cut_partition_metadata(log_dir: Path) -> None:
    (orders(log_dir) / "partition.metadata").write_text("version: 0\n", encoding="utf-8")


def malformed_partition_metadata(log_dir: Path) -> None:
    (orders(log_dir) / "partition.metadata").write_text("version: zero\ntopic_id: A\n", encoding="utf-8")


def transaction_index_of_the_future(log_dir: Path) -> None:
    (orders(log_dir) / CLOSED).with_suffix(".txnindex").write_bytes(bytes((1, 0)) + bytes(32))


def zeros_at_the_end(log_dir: Path) -> None:
    active = max(orders(log_dir).glob("*.log"))
    rewrite(active, active.read_bytes() + bytes(100))


def swap_of_zeros(log_dir: Path) -> None:
    (orders(log_dir) / f"{CLOSED}.swap").write_bytes(bytes(100))


STOPS: dict[Callable[[Path], None], RemarkCode] = {
    meta_properties_without_cluster: RemarkCode.BAD_META_PROPERTIES,
    malformed_meta_properties: RemarkCode.BAD_META_PROPERTIES,
    zeros_at_the_end: RemarkCode.UNLOADABLE_SEGMENT,
    swap_of_zeros: RemarkCode.UNLOADABLE_SEGMENT,
    lost_and_found: RemarkCode.UNKNOWN_DIRECTORY,
    backup_of_a_log: RemarkCode.UNKNOWN_FILE,
    snapshot_without_a_number: RemarkCode.UNKNOWN_FILE,
    cut_checkpoint: RemarkCode.BAD_CHECKPOINT,
    cut_leader_epochs: RemarkCode.BAD_CHECKPOINT,
    leader_epochs_of_the_future: RemarkCode.BAD_CHECKPOINT,
    cut_partition_metadata: RemarkCode.BAD_CHECKPOINT,
    malformed_partition_metadata: RemarkCode.BAD_CHECKPOINT,
    transaction_index_of_the_future: RemarkCode.BAD_TRANSACTION_INDEX,
}


@pytest.mark.parametrize("damage", STOPS, ids=[damage.__name__ for damage in STOPS])
def test_a_broker_does_not_start(damage: Callable[[Path], None], log_dir: Path) -> None:
    damage(log_dir)
    finding = found(log_dir)[STOPS[damage].value]
    assert finding["severity"] == "stops a broker"
    logged = logged_by_a_broker_that_ends(log_dir.parent)
    assert any(says in logged for says in finding["broker_says"].split(", or: ")), logged[-3000:]


def test_a_broker_does_not_start_on_a_locked_directory(log_dir: Path) -> None:
    with running_broker(log_dir):
        finding = found(log_dir)["locked"]
        assert finding["next"].startswith("ps -fp ")
        assert finding["broker_says"] in logged_by_a_broker_that_ends(log_dir.parent)


SETTINGS = (
    "log.cleaner.dedupe.buffer.size=1048576",
    "log.cleaner.min.compaction.lag.ms=2000\nlog.cleaner.max.compaction.lag.ms=1000",
)


@pytest.mark.parametrize("text", SETTINGS, ids=["dedupe-buffer", "lags"])
def test_a_broker_does_not_start_with_settings_that_fight(text: str, log_dir: Path, tmp_path: Path) -> None:
    finding = found("--broker-config", server_properties(log_dir, text=text), log_dir)["bad-setting"]
    assert finding["broker_says"]
    assert finding["broker_says"] in logged_by_a_broker_that_ends(log_dir.parent, properties=text + "\n")


# Two log directories


def other_cluster(other: Path) -> None:
    _with_meta_properties(other, cluster_id="anotherClusterOfSomeon")


def other_node(other: Path) -> None:
    _with_meta_properties(other, node_id=2)


def same_directory(other: Path) -> None:
    shutil.copy(other.parent / "log-dir" / "meta.properties", other)


def same_partition(other: Path) -> None:
    copy_log_dir(other.parent / "log-dir" / "orders-0", other / "orders-0")


def metadata_log(other: Path) -> None:
    copy_log_dir(other.parent / "log-dir" / "__cluster_metadata-0", other / "__cluster_metadata-0")


def _with_meta_properties(log_dir: Path, **fields: Any) -> None:
    first = parse_meta_properties((log_dir.parent / "log-dir" / "meta.properties").read_bytes(), file="")
    assert first.cluster_id == CLUSTER_ID
    known: dict[str, Any] = {
        name: getattr(first, name) for name in ("version", "cluster_id", "node_id", "directory_id")
    }
    known["directory_id"] = "B" * 20 + "BQ"
    (log_dir / "meta.properties").write_bytes(build_meta_properties(type(first)(**(known | fields))))


def never_formatted(other: Path) -> None:
    (other / "meta.properties").unlink()


TOGETHER: dict[Callable[[Path], None], RemarkCode] = {
    never_formatted: RemarkCode.NO_META_PROPERTIES,
    other_cluster: RemarkCode.CLUSTER_IDS,
    other_node: RemarkCode.NODE_IDS,
    same_directory: RemarkCode.DIRECTORY_IDS,
    same_partition: RemarkCode.DUPLICATE_PARTITION,
    metadata_log: RemarkCode.METADATA_LOGS,
}


@pytest.mark.parametrize("make", TOGETHER, ids=[make.__name__ for make in TOGETHER])
def test_a_broker_does_not_start_on_directories_that_contradict_each_other(
    make: Callable[[Path], None], log_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _with_meta_properties(other)
    make(other)
    finding = found(log_dir, other)[TOGETHER[make].value]
    assert finding["severity"] == "stops a broker"
    logged = logged_by_a_broker_that_ends(tmp_path, properties=f"log.dirs={log_dir},{other}\n")
    expected = finding["broker_says"].partition(", or: ")[0]
    assert any(says in logged for says in either_order(expected, log_dir, other)), logged[-3000:]


def either_order(says: str, one: Path, two: Path) -> Iterator[str]:
    """Yield what is said, and that with the two directories in the other order: a broker loads them side by side."""
    yield says
    yield says.replace(str(one), "\0").replace(str(two), str(one)).replace("\0", str(two))


# The cleaner


def torn_segment(file: Path) -> None:
    rewrite(file, file.read_bytes()[:-3])


def few_bytes_of_a_header(file: Path) -> None:
    rewrite(file, file.read_bytes() + b"\0\0\0\0\0")


def zeros(file: Path) -> None:
    rewrite(file, file.read_bytes() + bytes(100))


def unknown_magic(file: Path) -> None:
    flip(file, 16, 0x07)


def broken_compression(file: Path) -> None:
    flip(file, 61)


UNCLEANABLE = (torn_segment, few_bytes_of_a_header, zeros, unknown_magic, broken_compression)


@pytest.mark.parametrize("damage", UNCLEANABLE, ids=[damage.__name__ for damage in UNCLEANABLE])
def test_the_cleaner_gives_up_a_partition(damage: Callable[[Path], None], log_dir: Path) -> None:
    damage(orders(log_dir) / CLOSED)
    kinds = found("--verify", log_dir)
    # A part of a batch at the end of a closed segment is lost, too.
    finding = kinds["torn-end" if damage is torn_segment else "uncleanable-batch"]
    assert finding["severity"] == ("loses records" if damage is torn_segment else "stops its cleaner")
    marked, exception = finding["broker_says"].split(": ", 1)
    with Broker(log_dir.parent, properties=CLEANER) as broker:
        wait_for(broker, "uncleanable")
        logged = broker.logged
    assert marked in logged
    if exception != "KafkaException or InvalidRecordException":
        assert exception.split(": ", 1)[0] in logged
        assert exception.split(": ", 1)[1] in logged


def wrong_checksum(file: Path) -> None:
    flip(file, 17)


def test_the_cleaner_does_not_notice_a_wrong_checksum(log_dir: Path) -> None:
    wrong_checksum(orders(log_dir) / CLOSED)
    kinds = found("--verify", log_dir)
    assert "damaged-batch" in kinds
    assert "uncleanable-batch" not in kinds
    with Broker(log_dir.parent, properties=CLEANER) as broker:
        assert becomes(lambda: not (orders(log_dir) / CLOSED).exists())  # It was cleaned into the segment before.
        assert "uncleanable" not in broker.logged


def test_a_missing_segment_is_not_noticed_by_a_broker(log_dir: Path) -> None:
    (orders(log_dir) / CLOSED).unlink()
    assert found(log_dir)["missing-log"]["severity"] == "loses records"
    with Broker(log_dir.parent, properties=NEVER) as broker:
        wait_for(broker, "Found an orphaned index file")


def wait_for(broker: Broker, text: str) -> None:
    assert becomes(lambda: text in broker.logged), broker.logged[-3000:]


def test_a_broker_deletes_a_log_that_ends_below_its_start(log_dir: Path) -> None:
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 500\n", encoding="utf-8")
    finding = found(log_dir)["log-start-above-end"]
    assert finding["severity"] == "loses records"
    with Broker(log_dir.parent, properties=NEVER) as broker:
        wait_for(broker, finding["broker_says"])
    assert [path.name for path in orders(log_dir).glob("*.log")] == ["00000000000000000500.log"]


def test_a_running_broker_is_healthy_and_a_suspended_one_is_not(log_dir: Path) -> None:
    with Broker(log_dir.parent, properties=NEVER):
        kinds = found(log_dir)
        assert list(kinds) == ["running"]
        (pid,) = map(int, re.findall(r"^java \(process (\d+)\) is a running broker", kinds["running"]["problem"]))
        os.kill(pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            kinds = found(log_dir)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert list(kinds) == ["locked"]
        assert kinds["locked"]["problem"].startswith(f"java (process {pid}, suspended) holds the lock")


def test_a_broker_does_not_start_on_a_full_disk(tmp_path: Path) -> None:
    """Since 4.4 a quorum's log keeps the whole size of its indexes: too much for a disk as small as this one."""
    (tmp_path / "old").mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk in memory")
    with disk_in_memory(tmp_path / "disk", "1m") as disk:
        with Broker(tmp_path / "old", version=BEFORE_4_4) as broker:
            pass
        small = copy_log_dir(broker.log_dir, disk / "log-dir")
        with (disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        finding = found(small)["disk-full"]
        logged = logged_by_a_broker_that_ends(tmp_path, properties=f"log.dirs={small}\n", version=BEFORE_4_4)
        assert finding["broker_says"] in logged


def test_a_broker_of_another_user_does_not_start_on_files_of_root(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to another user needs root")
    with tempfile.TemporaryDirectory(prefix="kcompact-oracle-") as home:  # Nobody else may enter `tmp_path`.
        log_dir = copy_log_dir(stopped, Path(home) / "log-dir")
        as_nobody = Path(home) / "java" / "bin" / "java"
        as_nobody.parent.mkdir(parents=True)
        as_nobody.write_text(
            f'#!/bin/sh\nexec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {java()} "$@"\n'
        )
        for path in (Path(home), as_nobody.parent, as_nobody):
            path.chmod(0o755)
        for path in (log_dir, *log_dir.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        closed = orders(log_dir) / CLOSED
        os.chown(closed, 0, 0)
        closed.chmod(0o600)
        finding = found(log_dir)["no-access"]
        assert finding["next"] == f"chown nobody {closed}"
        monkeypatch.setenv("JAVA_HOME", str(as_nobody.parents[1]))
        assert "Could not read file" in logged_by_a_broker_that_ends(Path(home))
        os.chown(closed, NOBODY, NOBODY)
        assert found(log_dir).keys() <= {"unclean-shutdown"}
        with Broker(Path(home), properties=NEVER):
            pass


@pytest.mark.parametrize("lost_bytes", [0, 3])
def test_no_consumer_gets_past_a_torn_end(lost_bytes: int, log_dir: Path) -> None:
    active = max(orders(log_dir).glob("*.log"))
    rewrite(active, active.read_bytes()[: active.stat().st_size - lost_bytes])
    assert ("torn-end" in found(log_dir)) == bool(lost_bytes)
    with Broker(log_dir.parent, properties=NEVER) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.address)
        # Not a minute later than the segment's first batch: the record would get a new segment, behind the torn one.
        time_ms = START_MS + 120_000 * 4 + 100
        sent = producer.send("orders", key=b"key", value=b"new", partition=0, timestamp_ms=time_ms).get(
            timeout=PATIENCE_S
        )
        producer.close()
        consumer = KafkaConsumer(
            bootstrap_servers=broker.address, enable_auto_commit=False, group_id=None, consumer_timeout_ms=8_000
        )
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        seen = []
        with contextlib.suppress(KafkaError):
            seen = [each.value for each in consumer]
        consumer.close()
    assert (b"new" in seen) == (lost_bytes == 0)


def test_a_broker_moves_a_replica_without_a_topic_id_aside(log_dir: Path) -> None:
    (orders(log_dir) / "partition.metadata").unlink()
    finding = found(log_dir)["missing-topic-id"]
    assert "partition.metadata is missing" in finding["problem"]
    with Broker(log_dir.parent, properties=NEVER) as broker:
        wait_for(broker, finding["broker_says"])
    assert list(log_dir.glob("orders-0.*-stray"))


def test_a_broker_moves_a_stale_replica_aside(log_dir: Path) -> None:
    (orders(log_dir) / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 20 + "BQ", encoding="utf-8")
    finding = found(log_dir)["stale-replica"]
    with Broker(log_dir.parent, properties=NEVER) as broker:
        wait_for(broker, finding["broker_says"])
    assert list(log_dir.glob("orders-0.*-stray"))
