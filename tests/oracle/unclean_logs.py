"""Logs whose broker died, cut at a random byte above the recovery point: cleaned by kcompact, and by Kafka.

    python -m tests.oracle.unclean_logs --logs 500 --seed 1

Kafka's way: its loader recovers the log, then its cleaner cleans it up to the recovery point. Ours: `clean --unclean`,
then Kafka's loader recovers what is left. Both must give the same files, views and producers.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.engine.in_process import InProcess
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    build_offset_checkpoint,
)
from kcompact.format.names import TopicPartition
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.directory import read_log_dir
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.oracle.generate import LogSpec, Written, random_spec, write_log
from tests.oracle.real_kafka import Json, RealKafka, copy_log_dir
from tests.support.compare import config_of
from tests.support.compare import differences as differences_of_files

TOPIC = "random"
PARTITION = TopicPartition(TOPIC, 0)
RECORDS = (500, 3_000)
COMPARED = ("log_start_offset", "log_end_offset", "records", "committed_records", "producers")


def spec_of(seed: int) -> LogSpec:
    """Return a small random log of several segments."""
    rng = random.Random(f"unclean {seed}")
    spec = random_spec(seed, records=rng.randrange(*RECORDS))
    return replace(
        spec,
        segment_bytes=rng.choice([12_000, 20_000, 40_000]),
        max_batch_records=min(spec.max_batch_records, 20),
        delete_retention_ms=rng.choice([0, 3_600_000]),
    )


def damage_end(log_dir: Path, rng: random.Random, partition: TopicPartition = PARTITION) -> str:
    """Give the directory the state of a dead broker, with a recovery point; damage what is above. Return what was done.

    The tail is cut off, overwritten or altered at a random byte, in the last segments or in one above the recovery
    point; indexes of these segments are as in a running broker, or empty; snapshots may be missing.
    """
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    directory = log_dir / str(partition)
    logs = sorted(directory.glob("*.log"))
    first = rng.randrange(max(0, len(logs) - 4), len(logs))
    recovery_point = int(logs[first].stem)
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(build_offset_checkpoint({partition: recovery_point}))
    target = logs[rng.randrange(first, len(logs))]
    data = target.read_bytes()
    position = rng.randrange(len(data) + 1)
    how = rng.choice(["whole", "cut", "cut", "cut", "zeros", "noise", "flip"])
    if how == "cut":
        target.write_bytes(data[:position])
    elif how in ("zeros", "noise"):
        size = rng.randrange(1, 5_000)
        target.write_bytes(data[:position] + (bytes(size) if how == "zeros" else rng.randbytes(size)))
    elif how == "flip" and position < len(data):
        target.write_bytes(data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :])
    for log in logs[first:]:
        for suffix in (".index", ".timeindex", ".txnindex"):
            file = log.with_suffix(suffix)
            if rng.random() < 0.3 and suffix != ".txnindex":
                file.write_bytes(bytes(rng.choice([0, 24, 10_000 // 24 * 24])))
    for snapshot in directory.glob("*.snapshot"):
        # A broker syncs the snapshot at the recovery point before it moves the recovery point there.
        if int(snapshot.stem) != recovery_point and rng.random() < 0.4:
            snapshot.unlink()
    return f"{how} at {position} of {target.name}, recovery point {recovery_point}"


def differences(kafka: RealKafka, seed: int, scratch: Path) -> tuple[list[str], str]:
    """Return what differs between the two ways for one log, and what kind of log it was."""
    rng = random.Random(f"unclean end {seed}")
    written = write_log(kafka, scratch / "written", spec_of(seed))
    damage = damage_end(written.log_dir, rng)
    ours = copy_log_dir(written.log_dir, scratch / "ours")
    plan = planned(ours, written)
    if plan.log.damage:
        return [], "refused"
    theirs = copy_log_dir(written.log_dir, scratch / "theirs")
    assert plan.log.recovered_from is not None
    bound = min(plan.log.recovered_from, plan.last_stable_offset)
    turns = kafka.clean(
        theirs, config=written.config, now_ms=written.now_ms, clean_shutdown=False, high_watermark=bound
    )["turns"]
    found = []
    if bool(turns) != plan.eligible:
        found.append(f"Kafka cleans: {bool(turns)}; our verdict: {plan}")
    copied = CleanOptions(output=scratch / "copy")
    cleaner.clean_partition(planned(ours, written), InProcess(), lock=None, options=copied)
    with log_dir_lock(ours) as lock:
        cleaner.clean_partition(plan, InProcess(), lock=lock)
    if contents(scratch / "copy" / str(PARTITION)) != contents(ours / str(PARTITION)):
        found.append("the copy differs from the cleaning in place")
    if (ours / CLEAN_SHUTDOWN_FILE).exists():
        found.append(f"{CLEAN_SHUTDOWN_FILE} was written")
    mine = viewed(kafka, ours, written, clean_shutdown=False)
    # Only here Kafka's cleaner is bounded by the high watermark. It also writes checkpoints without entries.
    ignored = (REPLICATION_OFFSET_CHECKPOINT, f"{CLEANER_OFFSET_CHECKPOINT}: Kafka leaves it")
    found += [line for line in differences_of_files(ours, theirs) if not line.startswith(ignored)]
    if entries_of(ours) != entries_of(theirs):
        found.append(f"{CLEANER_OFFSET_CHECKPOINT}: {entries_of(ours)} and in Kafka {entries_of(theirs)}")
    other = viewed(kafka, theirs, written, clean_shutdown=True)
    found += [
        f"{name}: {mine[name]!r:.500} and in Kafka {other[name]!r:.500}"
        for name in COMPARED
        if mine[name] != other[name]
    ]
    kind = ("cleaned" if plan.eligible else plan.reason.value) + (", torn" if len(plan.log.notes) > 1 else "")
    return [f"{line} ({damage})" for line in found], kind


def contents(directory: Path) -> dict[str, bytes]:
    """Return the content of each file of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def entries_of(log_dir: Path) -> dict[TopicPartition, int]:
    """Return the entries of the cleaner's checkpoint, none without the file."""
    return read_log_dir(log_dir).cleaner_offsets or {}


def planned(log_dir: Path, written: Written) -> CleanPlan:
    """Return the plan of the partition after an unclean shutdown."""
    config = config_of(TOPIC, written.config)
    return plan_partition(log_dir / str(PARTITION), config, now_ms=written.now_ms, unclean=True)


def viewed(kafka: RealKafka, log_dir: Path, written: Written, *, clean_shutdown: bool) -> Json:
    """Return the partition as a broker loads it and consumers read it."""
    loaded = kafka.load(
        log_dir,
        config=written.config,
        now_ms=written.now_ms,
        isolation="both",
        clean_shutdown=clean_shutdown,
        in_place=True,
    )
    view: Json = loaded["partitions"][str(PARTITION)]
    return view


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="compare clean --unclean with Kafka's recovery and cleaner")
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    arguments = parser.parse_args()
    kinds: dict[str, int] = {}
    failed = 0
    with RealKafka() as kafka:
        for seed in range(arguments.seed, arguments.seed + arguments.logs):
            scratch = Path(tempfile.mkdtemp(prefix="kcompact-unclean-"))
            try:
                found, kind = differences(kafka, seed, scratch)
            finally:
                shutil.rmtree(scratch)
            kinds[kind] = kinds.get(kind, 0) + 1
            failed += bool(found)
            for line in found:
                print(f"seed {seed}: {line}", file=sys.stderr)
    print(f"{arguments.logs} logs, {failed} different; {kinds}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
