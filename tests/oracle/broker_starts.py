"""What a real broker makes of damaged log directories, and what `doctor` says of them: each kind of file, each damage.

    python -m tests.oracle.broker_starts                        # about 200 starts
    python -m tests.oracle.broker_starts --only quorum-state --verbose

`starts` compares many more directories, without the files that only a whole broker reads: those of the quorum,
`meta.properties`, and the topic ids.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition
from kafka.errors import KafkaError

from fixtures.broker import Broker, create_topics
from kcompact.config.metadata_log import METADATA_DIRECTORY, read_topic_id
from kcompact.config.server_properties import read_broker_config
from kcompact.doctor.examination import examine
from kcompact.doctor.findings import Finding
from kcompact.errors import CorruptDataError
from kcompact.format.names import parse_metadata_snapshot_name
from kcompact.log.segment_reader import batches
from kcompact.plan.options import PlanOptions
from kcompact.remarks import RemarkCode, Severity
from tests.oracle.real_kafka import Json, RealKafka, append, copy_log_dir, marker, record, roll
from tests.oracle.starts import MEMORY_BYTES
from tests.support.file_damage import DAMAGES, damage, files_of

HOUR_MS = 3_600_000
CONFIGS = {
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"},
    "deleted": {"cleanup.policy": "delete", "retention.ms": str(48 * HOUR_MS)},
}
PARTITIONS = [f"{topic}-0" for topic in CONFIGS]
AT_ONCE = (
    "log.initial.task.delay.ms=100\nlog.retention.check.interval.ms=300\nmetadata.log.max.snapshot.interval.ms=200\n"
)
SMALL = {"segment.bytes": "3000", "segment.index.bytes": "4000", "index.interval.bytes": "300"}
LISTENS_S = 40.0
STANDS_STILL_S = 4.0


@dataclass(slots=True)
class Start:
    """What a broker made of a log directory: the records of each partition by offset, or why it ended."""

    ended: bool = False
    offsets: dict[str, set[int]] = field(default_factory=dict)
    goes_on: set[str] = field(default_factory=set)
    """The partitions that took more records and gave them to a consumer: some damage is only then in its way."""
    metadata_offsets: set[int] = field(default_factory=set)
    """The offsets of the metadata log from before this start that it still has, in its segments or below a snapshot."""
    logged: str = ""

    def lost(self, after: Start) -> Iterator[str]:
        """Yield what a later start lacks."""
        for name, offsets in self.offsets.items():
            lost = sorted(offsets - after.offsets.get(name, set()))
            if lost:
                yield f"{name} lacks {len(lost)} records from {lost[0]} on"
        yield from (f"{name} gives no new record" for name in sorted(self.goes_on - after.goes_on))


def write(home: Path) -> int:
    """Write the log directory of a stopped broker, with a snapshot of the cluster's metadata; return the time."""
    home.mkdir()
    with Broker(home, properties=AT_ONCE) as broker:
        create_topics(broker.address, CONFIGS)
        metadata = broker.log_dir / "__cluster_metadata-0"
        deadline = time.monotonic() + LISTENS_S
        while len(list(metadata.glob("*.checkpoint"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
    now_ms = int(time.time() * 1000)
    with RealKafka() as kafka:
        for topic in CONFIGS:
            rows = [
                [record(now_ms - 60_000 * (60 - number), b"k%d" % (number % 7), b"v" * 90) for _ in range(4)]
                for number in range(30)
            ]
            actions = []
            for number, each in enumerate(rows):
                producer = [7, 0, 4 * (number // 3)] if number % 3 == 0 else None
                extra: Json = {} if producer is None else {"producer": producer, "transactional": True}
                actions.append(append(each, leader_epoch=0, **extra))
                if producer is not None:
                    actions.append(marker("abort" if number % 2 else "commit", 7, 0, leader_epoch=0))
                if number % 8 == 7:
                    actions.append(roll())
            log_dir, topic_id = home / "log-dir", read_topic_id(home / "log-dir" / f"{topic}-0")
            config = CONFIGS[topic] | SMALL
            kafka.write(log_dir, topic, config=config, now_ms=now_ms, actions=actions, topic_id=topic_id)
    return now_ms


def started(home: Path) -> Start:
    """Start a broker on `home/log-dir`, read its partitions after the first retention, and stop it."""
    broker = Broker(home, properties=AT_ONCE)
    try:
        broker.start()
    except RuntimeError:
        return Start(ended=True, logged=broker.logged)
    try:
        time.sleep(1.0)
        offsets = {name: _offsets(broker.address, name) for name in PARTITIONS}
        goes_on = {name for name in PARTITIONS if _gives_new_record(broker.address, name)}
        process = broker._process
        ended = process is None or process.poll() is not None
        start = Start(ended=ended, offsets=offsets, goes_on=goes_on, logged=broker.logged)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.stop()
    start.metadata_offsets = _metadata_offsets(home / "log-dir" / METADATA_DIRECTORY)
    return start


def _metadata_offsets(directory: Path) -> set[int]:
    """Return the offsets that a metadata log has of its first leader epoch, in which it was written.

    What is behind a damage that the broker has left is not counted.
    """
    offsets = set()
    for path in directory.iterdir():
        snapshot = parse_metadata_snapshot_name(path.name)
        if snapshot is not None and snapshot.epoch <= 1:
            offsets |= set(range(snapshot.end_offset))
    for path in directory.glob("*.log"):
        with contextlib.suppress(CorruptDataError):
            for batch in batches(path):
                if batch.header.partition_leader_epoch <= 1:
                    offsets |= set(range(batch.header.base_offset, batch.header.next_offset))
    return offsets


def _gives_new_record(address: str, name: str) -> bool:
    """Append records to a partition that need entries of its indexes; return whether a consumer gets all of them.

    It begins with the first one: from a later one on, an index can lead past bytes that no consumer gets past.
    """
    topic, number = name.rsplit("-", 1)
    limit_ms = int(STANDS_STILL_S * 1000)
    try:
        producer = KafkaProducer(
            bootstrap_servers=address,
            max_block_ms=limit_ms,
            request_timeout_ms=limit_ms,
            delivery_timeout_ms=2 * limit_ms,
            enable_idempotence=False,
        )
    except KafkaError:
        return False
    try:
        sent = [  # Each is a batch, and larger than `index.interval.bytes`.
            producer.send(topic, key=b"new", value=bytes(5000), partition=int(number)).get(3 * STANDS_STILL_S).offset
            for _ in range(3)
        ]
    except KafkaError:
        return False
    finally:
        producer.close(timeout=STANDS_STILL_S)
    return set(sent) <= _offsets(address, name, first_offset=sent[0])


def _offsets(address: str, name: str, first_offset: int | None = None) -> set[int]:
    """Return the offsets of the records that a consumer gets until nothing comes any more."""
    topic, number = name.rsplit("-", 1)
    partition = ClientPartition(topic, int(number))
    found: set[int] = set()
    try:
        consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=None)
    except KafkaError:
        return found
    try:
        consumer.assign([partition])
        if first_offset is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, first_offset)
        deadline = time.monotonic() + STANDS_STILL_S
        while time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=300).get(partition, [])
            # With a wrong `leader-epoch-checkpoint` a consumer sees a truncation, and begins again and again.
            is_new = any(each.offset not in found for each in polled)
            found |= {each.offset for each in polled}
            if is_new:
                deadline = time.monotonic() + STANDS_STILL_S / 4
    except (KafkaError, AssertionError):
        pass
    finally:
        consumer.close()
    return found


def examined(home: Path, now_ms: int) -> list[Finding]:
    """Return what `doctor --verify` finds."""
    config = read_broker_config(home / "server.properties", log_dirs_moved=True)
    options = PlanOptions(now_ms=now_ms, broker_config=config)
    return examine([home / "log-dir"], options, reads_all=True, memory_bytes=MEMORY_BYTES).findings


def differences(sound: Start, damaged: Start, found: list[Finding]) -> list[str]:
    """Return what `doctor` leaves unsaid, and what it says wrongly."""
    lost = list(sound.lost(damaged))
    # Whether a snapshot without a footer lacks records too, nothing tells.
    doubtful = [each for each in found if "it has no footer" in each.problem and not (damaged.ended or lost)]
    # A consumer of a small log fetches whole segments, and hardly uses an index.
    severities: Mapping[Severity, RemarkCode] = {
        each.severity: each.code
        for each in reversed(found)
        if each.code is not RemarkCode.HIDDEN_RECORDS and each not in doubtful
    }
    kinds = {each.code for each in found}
    wrong = []
    if damaged.ended and Severity.BROKER not in severities:
        wrong.append("unsaid: the broker ends")
    if not damaged.ended and lost and not (severities.keys() & {Severity.RECORDS, Severity.BROKER}):
        # Of a stale replica doctor says that a broker moves it aside.
        is_said = kinds & {
            RemarkCode.DAMAGED_BATCH,
            RemarkCode.UNCLEANABLE_BATCH,
            RemarkCode.STALE_REPLICA,
            RemarkCode.HIDDEN_RECORDS,
        }
        wrong += [] if is_said else [f"unsaid: {each}" for each in lost]
    if Severity.BROKER in severities and not damaged.ended and not lost:
        wrong.append(f"wrong: stops a broker, {severities[Severity.BROKER].value}")
    # A metadata log that is cut off between two batches looks whole.
    loses_metadata = bool(sound.metadata_offsets - damaged.metadata_offsets)
    if Severity.RECORDS in severities and not (damaged.ended or lost or loses_metadata):
        wrong.append(f"wrong: loses records, {severities[Severity.RECORDS].value}")
    if "uncleanable" in damaged.logged and Severity.CLEANER not in severities and not wrong and not lost:
        wrong.append("unsaid: uncleanable")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the kinds of files that are damaged")
    parser.add_argument("--ways", default="", help="a part of the names of the damages")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    rng = random.Random(f"broker starts {arguments.seed}")
    starts = wrong = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        now_ms = write(Path(scratch) / "written")
        sound = started(_copy(Path(scratch) / "written", Path(scratch) / "sound"))
        assert all(sound.offsets.values()), sound
        assert sound.goes_on == set(PARTITIONS), sound
        for kind, paths in files_of(Path(scratch) / "written" / "log-dir").items():
            for way in DAMAGES:
                if arguments.only not in kind or arguments.ways not in way:
                    continue
                home = _copy(Path(scratch) / "written", Path(scratch) / "damaged")
                path = rng.choice(paths)
                done = damage(home / path.relative_to(Path(scratch) / "written"), way, rng)
                found = examined(home, now_ms)
                damaged = started(home)
                differ = differences(sound, damaged, found)
                starts += 1
                wrong += bool(differ)
                if differ or arguments.verbose:
                    print(
                        done,
                        *differ,
                        *(f"{each.code.value}: {each.problem}" for each in found if each.stops),
                        sep="\n    ",
                    )
                    print("    broker:", "ended" if damaged.ended else list(sound.lost(damaged)))
                    for line in damaged.logged.splitlines() if differ or damaged.ended else ():
                        if "ERROR" in line or "Exception" in line:
                            print("       ", line[:200])
                    sys.stdout.flush()
    print(f"{starts} starts, {wrong} differ")
    sys.exit(1 if wrong else 0)


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    shutil.copy2(source / "server.properties", target)
    copy_log_dir(source / "log-dir", target / "log-dir")
    return target


if __name__ == "__main__":
    main()
