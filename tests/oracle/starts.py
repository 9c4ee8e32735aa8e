"""What a broker makes of damaged log directories, and what `doctor` says of them.

    python -m tests.oracle.starts --seed 1 --directories 500
    python -m tests.oracle.starts --seed 17 --directories 1 --verbose
    python -m tests.oracle.starts --sound --kafka 3.9.2 --directories 500

Each directory is written by the real Kafka, and one of its files is damaged. Then Kafka's own `LogManager` loads it, a
consumer reads it, the old segments are deleted, and the cleaner takes each log. `doctor --verify` is asked before. They
have to agree on whether the broker serves the logs, which records are lost, and what the cleaner gives up.

With `--sound` nothing is damaged, and some brokers are killed: `doctor` must find nothing that is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kcompact.config.settings import Override
from kcompact.doctor.examination import examine
from kcompact.doctor.findings import Finding
from kcompact.plan.options import PlanOptions
from kcompact.remarks import RemarkCode, Severity
from tests.oracle.driver import NEWEST
from tests.oracle.real_kafka import Json, RealKafka, append, copy_log_dir, marker, record, roll, start_offset
from tests.oracle.run import scratch_directory
from tests.support.file_damage import DAMAGES, damage, files_of

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SEGMENTS = {"segment.bytes": "2000", "segment.index.bytes": "4000", "index.interval.bytes": "200"}
CONFIGS = {
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"} | SEGMENTS,
    "deleted": {"cleanup.policy": "delete", "retention.ms": str(48 * HOUR_MS)} | SEGMENTS,
}
MEMORY_BYTES = 64 << 20
EACH_JVM = 300
USUAL = (
    RemarkCode.UNCLEAN_SHUTDOWN,
    RemarkCode.HANGING_TRANSACTION,
    RemarkCode.NO_META_PROPERTIES,
    RemarkCode.NO_HIGH_WATERMARK,
)
"""What a sound directory may have. One that was written and killed at once has no `meta.properties`."""
NEW_RECORDS = 12
"""So many records are added to each log after the start, as `Starting` has it."""
ONLY_WRITTEN = ("Invalid negative", "Cannot write transactional messages")
"""What a cleaner says of a damaged header if it keeps a part of the records, and only then."""
ATTRIBUTES_AT, TRANSACTIONAL_BIT = 21, 0x10


@dataclass(slots=True)
class Comparison:
    """One damaged directory: what was done, what Kafka made of it, what `doctor` says, and where they differ."""

    kind: str
    done: str
    started: Json
    findings: list[Finding]
    differences: list[str] = field(default_factory=list)


def write(kafka: RealKafka, log_dir: Path, rng: random.Random, *, kills: bool = False) -> int:
    """Write the log directory of a stopped broker, or of one that was killed; return the time."""
    now_ms = START_MS
    for topic, config in CONFIGS.items():
        writer = _Writer(rng)
        kafka.write(
            log_dir,
            topic,
            config=config | {"retention.ms": "-1"},
            now_ms=START_MS,
            actions=list(writer.actions(rng.randint(8, 40), compacted=topic == "compacted")),
            topic_id=None,
            lenient=True,
        )
        now_ms = max(now_ms, writer.now_ms)
        if topic == "compacted" and rng.random() < 0.5:
            kafka.clean(log_dir, config=config, now_ms=now_ms, only="compacted-0")
    if kills:
        writer = _Writer(rng, now_ms=now_ms + HOUR_MS, producers=(17, 18), leader_epoch=1000)
        actions = list(writer.actions(rng.randint(1, 9), compacted=True))
        topic = rng.choice(sorted(CONFIGS))
        config = CONFIGS[topic] | {"retention.ms": "-1"}
        kafka.write(log_dir, topic, config=config, now_ms=now_ms, actions=actions, lenient=True, stop="kill")
        return now_ms + 10 * HOUR_MS
    # A broker that starts and stops tidies up.
    kafka.load(log_dir, config={}, topics=CONFIGS, now_ms=now_ms, in_place=True, records=False)
    if rng.random() < 0.25:
        (log_dir / ".kafka_cleanshutdown").unlink()
    return now_ms


class _Writer:
    def __init__(
        self,
        rng: random.Random,
        *,
        now_ms: int = START_MS,
        producers: tuple[int, ...] = (7, 8),
        leader_epoch: int = 0,
    ) -> None:
        self.rng = rng
        self.producers = producers
        self.now_ms = now_ms
        self.leader_epoch = leader_epoch
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.written = 0

    def actions(self, count: int, *, compacted: bool) -> Iterator[Json]:
        rng = self.rng
        for _ in range(count):
            self.now_ms += rng.randint(0, HOUR_MS)
            self.leader_epoch += rng.random() < 0.1
            yield self._append()
            if self.open and rng.random() < 0.5:
                producer = rng.choice(sorted(self.open))
                self.open.discard(producer)
                kind = rng.choice(["commit", "abort"])
                yield marker(kind, producer, 0, now_ms=self.now_ms, leader_epoch=self.leader_epoch)
            if rng.random() < 0.15:
                yield roll(now_ms=self.now_ms)
        if not compacted and rng.random() < 0.2:
            yield start_offset(rng.randint(0, self.written // 2), now_ms=self.now_ms)

    def _append(self) -> Json:
        rng = self.rng
        timestamp_ms = self.now_ms - rng.choice([0, 0, 1000, HOUR_MS])
        rows = [
            record(timestamp_ms, b"k%d" % rng.randrange(12), None if rng.random() < 0.1 else rng.randbytes(40))
            for _ in range(rng.randint(1, 9))
        ]
        self.written += len(rows)
        fields: Json = {"leader_epoch": self.leader_epoch, "codec": rng.choice(["none", "none", "none", "zstd"])}
        if self.open or rng.random() < 0.3:
            producer = rng.choice(self.producers)
            sequence = self.sequences.get(producer, 0)
            fields |= {"producer": [producer, 0, sequence], "transactional": True}
            self.open.add(producer)
            self.sequences[producer] = sequence + len(rows)
        return append(rows, now_ms=self.now_ms, **fields)


def compare(kafka: RealKafka, seed: int, scratch: Path, *, only: str = "") -> Comparison:
    """Damage one file of one random directory, and compare. `only` names the kinds of files that are damaged."""
    rng = random.Random(f"start {seed}")
    log_dir = scratch / "kafka-logs"
    now_ms = write(kafka, log_dir, rng)
    before = started(kafka, copy_log_dir(log_dir, scratch / "sound"), now_ms)
    kinds = {kind: paths for kind, paths in files_of(log_dir).items() if kind != "meta.properties" and only in kind}
    kind, way = rng.choice(sorted(kinds)), rng.choice(sorted(DAMAGES))
    done = damage(rng.choice(kinds[kind]), way, rng)
    found = {reads_all: examined(log_dir, now_ms, reads_all=reads_all) for reads_all in (True, False)}
    damaged = started(kafka, copy_log_dir(log_dir, scratch / "damaged"), now_ms)
    comparison = Comparison(kind=f"{kind} {way}", done=done, started=damaged, findings=found[True])
    comparison.differences += differences(before, damaged, found[True], is_of_log=kind == ".log")
    comparison.differences += [f"without --verify: {each}" for each in false_alarms(before, damaged, found[False])]
    return comparison


def sound(kafka: RealKafka, seed: int, scratch: Path) -> Comparison:
    """Write one random directory, of which the last broker may have been killed, and return the false alarms."""
    rng = random.Random(f"sound {seed}")
    log_dir = scratch / "kafka-logs"
    now_ms = write(kafka, log_dir, rng, kills=rng.random() < 0.4)
    found = {reads_all: examined(log_dir, now_ms, reads_all=reads_all) for reads_all in (True, False)}
    alarms = {each.code.value for those in found.values() for each in those if each.stops and each.code not in USUAL}
    wrong = [f"wrong: {each}" for each in sorted(alarms)]
    return Comparison(kind="sound", done="nothing", started={}, findings=found[True], differences=wrong)


def started(kafka: RealKafka, log_dir: Path, now_ms: int) -> Json:
    """Start on one log directory. A segment takes what is added: what follows is behind the damage."""
    roomy = {topic: config | {"segment.bytes": "100000"} for topic, config in CONFIGS.items()}
    return kafka.start([log_dir], config={}, topics=roomy, now_ms=now_ms)


def examined(log_dir: Path, now_ms: int, *, reads_all: bool) -> list[Finding]:
    """Return what `doctor` finds."""
    overrides = tuple(
        Override(name=name, value=value, topic=topic) for topic, each in CONFIGS.items() for name, value in each.items()
    )
    options = PlanOptions(now_ms=now_ms, overrides=overrides)
    return examine([log_dir], options, reads_all=reads_all, memory_bytes=MEMORY_BYTES).findings


def stops(reply: Json) -> bool:
    """Return whether the broker ends, takes the log directory offline, or takes no records for a partition."""
    if "ends" in reply or "is_offline" in reply["log_dirs"][0]:
        return True
    return any("write_error" in each for each in reply["log_dirs"][0]["partitions"].values())


def differences(sound: Json, damaged: Json, found: list[Finding], *, is_of_log: bool) -> list[str]:
    """Return what `doctor --verify` leaves unsaid, and what it says wrongly. `is_of_log`: a `.log` is damaged."""
    severities, kinds = {each.severity for each in found}, {each.code for each in found}
    wrong = false_alarms(sound, damaged, found)
    if stops(damaged):
        is_said = Severity.BROKER in severities or (Severity.RECORDS in severities and "log_dirs" in damaged)
        return [*wrong, *([] if is_said else ["unsaid: the broker stops"])]
    # An offset is in no checksum. Only the index says that a batch had another one, unless it is the index that lies.
    lossy = {
        RemarkCode.DAMAGED_BATCH,
        RemarkCode.UNCLEANABLE_BATCH,
        *([RemarkCode.LYING_INDEX] if is_of_log else []),
    }
    if Severity.RECORDS not in severities and not kinds & lossy:
        wrong += [f"unsaid: {each}" for each in losses(sound, damaged)]
    # What else the cleaner gives up for the same damage is not told again.
    # With wrong entries, or with offsets of another segment, its new index may take no falling ones.
    may_fail = any(each.path.suffix == ".txnindex" or "offset" in each.problem for each in found if each.stops)
    kinds |= {RemarkCode.UNCLEANABLE_BATCH} if may_fail else set()
    if not kinds & {
        RemarkCode.UNCLEANABLE_BATCH,
        RemarkCode.CLEANER_ENDS,
        RemarkCode.TORN_END,
        RemarkCode.HIDDEN_RECORDS,
        RemarkCode.LOST_END,
    }:
        wrong += [f"unsaid: uncleanable {each}" for each in given_up(sound, damaged)]
    return wrong


def false_alarms(sound: Json, damaged: Json, found: list[Finding]) -> list[str]:
    """Return what is said and not so."""
    # Whether an entry behind the end of a log is wrong, or the log, nothing tells.
    found = [each for each in found if each.code is not RemarkCode.LOST_END or "its last entry leads" in each.problem]
    if not stops(damaged):  # The added records may have jumped over the offsets that no entry can be added for.
        found = [
            each for each in found if each.code is not RemarkCode.UNWRITABLE_INDEX or not _is_passed(each, damaged)
        ]
        # With the batches of another log a log gets a hole where it had nothing.
        found = [each for each in found if each.code is not RemarkCode.OFFSET_GAP or not _is_served(each, damaged)]
    kinds = {each.severity: each.code for each in found}
    wrong = []
    if Severity.BROKER in kinds and not stops(damaged):
        wrong.append(f"wrong: stops a broker, {kinds[Severity.BROKER].value}")
    if stops(damaged):
        return wrong
    if Severity.RECORDS in kinds and not list(losses(sound, damaged)):
        wrong.append(f"wrong: loses records, {kinds[Severity.RECORDS].value}")
    for each in found:
        cleaned_to = damaged["log_dirs"][0]["cleaned"].get(each.directory.name, 0)
        if (
            each.code is RemarkCode.UNCLEANABLE_BATCH
            and int(each.path.stem) < cleaned_to
            and not _is_transactional(each)
        ):
            wrong.append("wrong: uncleanable")
        if each.code is RemarkCode.CLEANER_ENDS and "cleaner_ends" not in damaged["log_dirs"][0]:
            wrong.append("wrong: the cleaner does not end")
    return wrong


def _is_served(found: Finding, damaged: Json) -> bool:
    """Return whether the broker serves the log with the gap."""
    offsets = damaged["log_dirs"][0]["partitions"].get(found.directory.name, {}).get("offsets", [])
    return found.offset is not None and found.offset not in offsets and max(offsets, default=-1) > found.offset


def _is_passed(found: Finding, damaged: Json) -> bool:
    """Return whether the log has come to an offset by the records that were added."""
    served = damaged["log_dirs"][0]["partitions"][found.directory.name]
    return found.offset is not None and found.offset < served["log_end_offset"] + NEW_RECORDS


def _is_transactional(found: Finding) -> bool:
    """Return whether a batch is one of a transaction: a cleaner drops those of an aborted one unread."""
    with found.path.open("rb") as log:
        log.seek((found.position or 0) + ATTRIBUTES_AT)
        return bool(int.from_bytes(log.read(2)) & TRANSACTIONAL_BIT)


def losses(sound: Json, damaged: Json) -> Iterator[str]:
    """Yield what the damage costs: records that are not served, or deleted earlier."""
    for name, before in sound["log_dirs"][0]["partitions"].items():
        after = damaged["log_dirs"][0]["partitions"].get(name)
        if after is None:
            yield f"{name} is not served"
            continue
        lost = sorted(set(before["offsets"]) - set(after["offsets"]))
        if lost and after.get("start_after_retention") == before["start_after_retention"]:
            yield f"{name} lacks {len(lost)} records from {lost[0]} on, {after.get('read_error', {}).get('error')}"
        if after["log_end_offset"] == before["start_after_retention"]:
            continue  # Nothing is left to be lost.
        deleted = [each for each in before["offsets"] if each < after.get("start_after_retention", 0)]
        if deleted:
            yield f"{name} begins at {after.get('start_after_retention')} after retention"
        if not after["reads_new"]:
            yield f"{name} does not serve new records, {after.get('read_error', {}).get('error')}"


def given_up(sound: Json, damaged: Json) -> list[str]:
    """Return the partitions that the cleaner gives up only after the damage."""
    before, after = (reply["log_dirs"][0]["uncleanable"] for reply in (sound, damaged))
    after = [name for name, error in after.items() if not error["message"].startswith(ONLY_WRITTEN)]
    gone = ["everything"] if "cleaner_ends" in damaged["log_dirs"][0] else []
    return gone + sorted(set(after) - set(before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="that of the first directory")
    parser.add_argument("--directories", type=int, default=100)
    parser.add_argument("--only", default="", help="a part of the names of the files that are damaged")
    parser.add_argument("--sound", action="store_true", help="damage nothing")
    parser.add_argument("--kafka", default=NEWEST, help="with --sound: the version that writes")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong = 0
    with scratch_directory() as directory, contextlib.ExitStack() as stack:
        for number, seed in enumerate(range(arguments.seed, arguments.seed + arguments.directories)):
            if number % EACH_JVM == 0:  # A broker that ends keeps its files open.
                stack.close()
                kafka = stack.enter_context(RealKafka(arguments.kafka if arguments.sound else NEWEST))
            with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as scratch:
                path, only = Path(scratch), arguments.only
                comparison = sound(kafka, seed, path) if arguments.sound else compare(kafka, seed, path, only=only)
            counts[comparison.kind] += 1
            wrong += bool(comparison.differences)
            if comparison.differences or arguments.verbose:
                print(f"seed {seed}: {comparison.done}", *comparison.differences, sep="\n    ")
                found = [f"{each.code.value}: {each.problem}" for each in comparison.findings if each.stops]
                print("   ", "\n    ".join(found))
                if arguments.verbose:
                    print("    kafka:", str(comparison.started)[:600])
                sys.stdout.flush()
    print(f"{arguments.directories} directories, {len(counts)} kinds of damage, {wrong} differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
