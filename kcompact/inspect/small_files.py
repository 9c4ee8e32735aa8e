"""Findings about snapshots, checkpoints and properties, and about names that interrupted work leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kcompact.errors import CorruptDataError
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kcompact.format.names import Suffix, Temporary, parse_file_name
from kcompact.format.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.inspect.contents import SegmentSurvey
from kcompact.inspect.findings import Finding, Severity, of_error
from kcompact.log.directory import LogDir, PartitionLog, read_snapshot
from kcompact.log.files import read_file

# The small files


def small_file_findings(log: PartitionLog, surveys: list[SegmentSurvey]) -> Iterator[Finding]:
    for offset, identity in sorted(log.snapshots.items()):
        try:
            read_snapshot(log.directory, identity)
        except CorruptDataError as problem:
            yield of_error(problem)
        if offset > log.log_end_offset:
            text = f"taken at offset {offset}, above the log end {log.log_end_offset}; a broker would delete it"
            yield Finding(severity=Severity.WARNING, file=identity.name, offset=offset, problem=text)
    epochs_file = log.directory / LEADER_EPOCH_CHECKPOINT
    if epochs_file.exists():
        try:
            epochs = parse_leader_epochs(read_file(epochs_file), file=epochs_file.name)
            if epochs and epochs[-1].start_offset > log.log_end_offset:
                last = epochs[-1]
                text = f"epoch {last.epoch} starts at {last.start_offset}, above the log end {log.log_end_offset}"
                yield Finding(severity=Severity.WARNING, file=epochs_file.name, problem=text)
        except CorruptDataError as problem:
            yield of_error(problem)
    metadata_file = log.directory / PARTITION_METADATA
    if metadata_file.exists():
        try:
            parse_partition_metadata(read_file(metadata_file), file=metadata_file.name)
        except CorruptDataError as problem:
            yield of_error(problem)
    yield from _checkpoint_findings(log)


def _checkpoint_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield the entries of the log directory's checkpoints that contradict the log."""
    start, end, partition = log.log_start_offset, log.log_end_offset, log.topic_partition
    checkpoint = log.checkpoint_offset
    if checkpoint is not None and not start <= checkpoint <= end:
        text = f"{partition} is clean up to {checkpoint}, outside [{start}, {end}]; a broker would set it to {start}"
        yield Finding(severity=Severity.WARNING, file="cleaner-offset-checkpoint", offset=checkpoint, problem=text)
    above = {
        "recovery-point-offset-checkpoint": (log.log_dir.recovery_points or {}).get(partition),
        "replication-offset-checkpoint": (log.log_dir.high_watermarks or {}).get(partition),
    }
    for file, offset in above.items():
        if offset is not None and offset > end:
            text = f"{partition} has {offset}, above the log end {end}: records may be missing"
            yield Finding(severity=Severity.WARNING, file=file, offset=offset, problem=text)


def log_dir_findings(log_dir: LogDir) -> tuple[Finding, ...]:
    """Return what is wrong with the files that describe a whole log directory, its checkpoints apart."""
    file = log_dir.path / META_PROPERTIES
    found = []
    if file.exists():
        try:
            parse_meta_properties(read_file(file), file=file.name)
        except CorruptDataError as problem:
            found.append(of_error(problem))
    if log_dir.is_log_dir and not log_dir.is_clean_shutdown:
        text = "missing: the broker was not shut down cleanly, or is running"
        found.append(Finding(severity=Severity.WARNING, file=".kafka_cleanshutdown", problem=text))
    return tuple(found)


# Names

_MEANINGS = {
    Temporary.CLEANED: "an interrupted cleaning was still writing it; a broker deletes it when it starts",
    Temporary.SWAP: "complete and about to take its place; whoever wrote it settles it: a broker, or kcompact recover",
    Temporary.DELETED: "replaced and about to be deleted; a broker deletes it when it starts",
}


def name_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield what the names of a partition directory tell: interrupted work, orphans, strangers."""
    for name in (*log.leftovers, *log.deleted):
        parsed = parse_file_name(name)
        meaning = _MEANINGS[parsed.temporary] if parsed else ""
        severity = Severity.INFO if parsed and parsed.temporary is Temporary.DELETED else Severity.WARNING
        yield Finding(severity=severity, file=name, problem=meaning)
    for name in log.staging:
        text = "an interrupted run of kcompact left it; kcompact recover finishes or undoes that run"
        yield Finding(severity=Severity.WARNING, file=name, problem=text)
    for name in log.foreign:
        text = "no file of Kafka's; a broker may refuse to start on it, kcompact leaves it alone"
        yield Finding(severity=Severity.WARNING, file=name, problem=text)
    bases = {segment.base_offset for segment in log.segments}
    for entry in sorted(os.listdir(log.directory)):  # noqa: PTH208 - names are all that is needed
        parsed = parse_file_name(entry)
        if parsed is None or parsed.temporary is not Temporary.NO or parsed.suffix is Suffix.SNAPSHOT:
            continue
        if parsed.base_offset not in bases:
            text = "an index without a log; a broker deletes it when it starts"
            yield Finding(severity=Severity.WARNING, file=entry, problem=text)
