"""What is wrong with snapshots, checkpoints and properties, and which files interrupted work has left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from kcompact.errors import CorruptDataError, UnsupportedError
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    EpochEntry,
    parse_leader_epochs,
)
from kcompact.format.names import Temporary, parse_file_name
from kcompact.format.producer_snapshot import parse_snapshot
from kcompact.format.properties import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    parse_meta_properties,
)
from kcompact.log.directory import LogDir, PartitionLog
from kcompact.log.small_files import small_file_problems
from kcompact.questions.verify.findings import FileFinding, FileSeverity, first_of, of_error

# The small files of a partition


def small_file_findings(log: PartitionLog) -> Iterator[FileFinding]:
    """Yield what is wrong with the snapshots, `leader-epoch-checkpoint` and `partition.metadata` of a partition.

    The entries of the partition in the checkpoints of its log directory are checked too. Raises StorageError.
    """
    yield from _snapshot_findings(log)
    yield from map(of_error, small_file_problems(log))
    yield from _leader_epoch_findings(log)
    yield from _checkpoint_findings(log)


def _snapshot_findings(log: PartitionLog) -> Iterator[FileFinding]:
    for offset, identity in sorted(log.snapshots.items()):
        try:
            parse_snapshot(log.file(identity.name).read(), file=str(log.directory / identity.name))
        except CorruptDataError as problem:
            yield of_error(problem)
        if offset > log.log_end_offset and not log.log_dir.is_running:
            text = f"taken at offset {offset}, above the log end {log.log_end_offset}; a broker would delete it"
            yield FileFinding(severity=FileSeverity.WARNING, file=identity.name, offset=offset, problem=text)


def _leader_epoch_findings(log: PartitionLog) -> Iterator[FileFinding]:
    file = log.file(LEADER_EPOCH_CHECKPOINT)
    epochs: Sequence[EpochEntry] = ()
    with suppress(CorruptDataError, UnsupportedError):
        epochs = parse_leader_epochs(file.read(), file=str(file)) if file.exists() else ()
    if epochs and epochs[-1].start_offset > log.log_end_offset and not log.log_dir.is_running:
        last = epochs[-1]
        text = f"epoch {last.epoch} starts at {last.start_offset}, above the log end {log.log_end_offset}"
        yield FileFinding(severity=FileSeverity.WARNING, file=file.name, problem=text)


def _checkpoint_findings(log: PartitionLog) -> Iterator[FileFinding]:
    """Yield the entries of a partition in the checkpoints of its log directory that contradict the log."""
    start, end, partition = log.log_start_offset, log.log_end_offset, log.topic_partition
    checkpoint = log.checkpoint_offset
    if log.checkpoint_reset:
        text = f"{partition} is clean up to {checkpoint}, outside [{start}, {end}]; a broker would set it to {start}"
        yield FileFinding(
            severity=FileSeverity.WARNING, file=CLEANER_OFFSET_CHECKPOINT, offset=checkpoint, problem=text
        )
    above = {
        RECOVERY_POINT_CHECKPOINT: (log.log_dir.recovery_points or {}).get(partition),
        REPLICATION_OFFSET_CHECKPOINT: (log.log_dir.high_watermarks or {}).get(partition),
    }
    for file, offset in above.items():
        if offset is not None and offset > end and not log.log_dir.is_clean_shutdown:  # Otherwise it is damage.
            text = f"{partition} has {offset}, above the log end {end}: records may be missing"
            yield FileFinding(severity=FileSeverity.WARNING, file=file, offset=offset, problem=text)


def log_dir_findings(log_dir: LogDir) -> tuple[FileFinding, ...]:
    """Return what is wrong with `meta.properties` and the clean shutdown file of a log directory. Raises StorageError.

    The checkpoints of a log directory were read before: `read_log_dir` raises an error for a damaged one.
    """
    file = log_dir.file(META_PROPERTIES)
    findings: list[FileFinding] = []
    if file.exists():
        try:
            parse_meta_properties(file.read(), file=str(file))
        except CorruptDataError as problem:
            findings.append(of_error(problem))
    if log_dir.is_log_dir and not (log_dir.is_clean_shutdown or log_dir.is_running):
        text = "missing: the broker was not shut down cleanly"
        findings.append(FileFinding(severity=FileSeverity.WARNING, file=CLEAN_SHUTDOWN_FILE, problem=text))
    return tuple(findings)


# The names in a partition directory

_MEANINGS = {
    Temporary.CLEANED: "left by an interrupted cleaning, not complete; a broker deletes it when it starts",
    Temporary.SWAP: (
        "complete, not yet renamed to its final name; kcompact recover finishes a swap of kcompact, a broker its own"
    ),
    Temporary.DELETED: "replaced and about to be deleted; a broker deletes it, at the latest when it starts",
}


def name_findings(log: PartitionLog) -> Iterator[FileFinding]:
    """Yield the files that interrupted work left, indexes without a log, and names that are not Kafka's."""
    for names in (log.leftovers, log.deleted):
        yield from first_of(names, _interrupted, what="files")
    staging = "left by an interrupted run of kcompact; kcompact recover finishes or undoes that run"
    foreign = "not a file of Kafka; a broker may refuse to start because of it. kcompact does not change it"
    orphan = "an index without a log; a broker deletes it when it starts"
    orphans = tuple(file.name for file in log.orphans)
    for names, text in ((log.staging, staging), (log.foreign, foreign), (orphans, orphan)):
        yield from first_of(names, partial(_warning, problem=text), what="files")


def _interrupted(name: str) -> FileFinding:
    parsed = parse_file_name(name)
    meaning = _MEANINGS[parsed.temporary] if parsed else ""
    severity = FileSeverity.INFO if parsed and parsed.temporary is Temporary.DELETED else FileSeverity.WARNING
    return FileFinding(severity=severity, file=name, problem=meaning)


def _warning(name: str, problem: str) -> FileFinding:
    return FileFinding(severity=FileSeverity.WARNING, file=name, problem=problem)
