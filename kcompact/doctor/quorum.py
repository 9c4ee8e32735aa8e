"""The files of a KRaft quorum: what a broker or a controller does with its metadata log when it starts.

It reads `quorum-state`, recovers the whole log as after an unclean shutdown, and loads the newest snapshot, then the
records after it. A log that begins above offset 0 must have a snapshot.
Rules: `SharedServer.start`, `KafkaRaftLog.createLog`, `KafkaRaftLog.recoverSnapshots`, `MetadataLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kcompact.config.brokers import Broker
from kcompact.config.metadata_log import METADATA_DIRECTORY, newest_snapshot, read_topic_id
from kcompact.doctor.damage import of_error
from kcompact.doctor.findings import Finding
from kcompact.doctor.names import file_findings
from kcompact.doctor.recovery import recovery_findings
from kcompact.errors import CorruptDataError, CorruptIndexError, KcompactError, RefusedError, UnsupportedError
from kcompact.format.names import (
    BOOTSTRAP_CHECKPOINT,
    MetadataSnapshotName,
    Suffix,
    is_raft_file,
    log_bases,
    log_name,
)
from kcompact.format.properties import PARTITION_METADATA
from kcompact.format.quorum_state import QUORUM_STATE, verify_quorum_state
from kcompact.log.batch_headers import end_by_headers
from kcompact.log.directory import LogDir, PartitionLog, read_log
from kcompact.log.files import LogFile, files_in
from kcompact.log.segment_reader import batches
from kcompact.questions.verify.small_files import small_file_findings
from kcompact.remarks import RemarkCode, Severity

_METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Rule: Uuid.METADATA_TOPIC_ID."""


def quorum_findings(log_dir: Path, broker: Broker) -> Iterator[Finding]:
    """Yield what is wrong with the metadata log in a log directory. Raises RefusedError, StorageError."""
    yield from _bootstrap_findings(log_dir)
    directory = log_dir / METADATA_DIRECTORY
    yield from _quorum_state_findings(directory)
    yield from _topic_id_findings(directory)
    yield from _lost_log_findings(directory)
    log = None
    try:
        log = read_log(directory, log_dir=LogDir(path=log_dir, is_log_dir=True), as_recovered=True)
    except RefusedError as refused:
        if Path(refused.path).parent == directory:  # A link in place of a file. Without segments nothing is recovered.
            yield of_error(refused, directory)
    except KcompactError:
        pass
    snapshot = broker.metadata.snapshot if broker.metadata else None
    if log is not None:
        with suppress(KcompactError):
            # kcompact reads no metadata log that is damaged below its snapshot. A broker loads the snapshot.
            snapshot = snapshot or newest_snapshot(directory)
            yield from _log_findings(log, snapshot)
    damage = broker.problem if broker.metadata is None else broker.metadata.damage
    if not isinstance(damage, CorruptDataError) or Path(damage.file).parent != directory:
        return
    is_passed_over = log is not None and (log.is_cut_off(damage) or _is_below_snapshot(damage, snapshot))
    if not is_passed_over:
        yield _metadata_finding(damage)
    elif broker.metadata is None:  # A broker starts. kcompact does not know the settings of topics.
        yield of_error(damage, directory)


def _log_findings(log: PartitionLog, snapshot: MetadataSnapshotName | None) -> Iterator[Finding]:
    """Yield what is wrong with a metadata log that can be recovered, and with its files."""
    directory = log.directory
    yield from recovery_findings(log, log.damage, snapshot_offset=snapshot.end_offset if snapshot else 0)
    yield from file_findings(log)
    for problem in filter(None, (each.error for each in small_file_findings(log))):
        finding = of_error(problem, directory)
        if finding.severity is Severity.BROKER:
            yield replace(finding, code=RemarkCode.BAD_QUORUM_FILE)
        elif not isinstance(problem, UnsupportedError):  # Any version of a `partition.metadata` is read.
            yield finding
    # A broker builds them at each start; kcompact believes them.
    as_left = read_log(directory, log_dir=LogDir(path=directory.parent, is_log_dir=True, is_clean_shutdown=True))
    yield from (of_error(each, directory) for each in as_left.damage if isinstance(each, CorruptIndexError))


def _lost_log_findings(directory: Path) -> Iterator[Finding]:
    """Yield a finding if neither a segment nor a snapshot is left of a metadata log that was in use."""
    names = [] if not directory.is_dir() else files_in(directory).names()
    # The one at offset 0 has what the directory was formatted with.
    snapshots = [name for name in names if name.endswith(".checkpoint") and is_raft_file(name) and int(name[:20])]
    was_in_use = any(name == QUORUM_STATE or name.endswith(Suffix.INDEX) for name in names)
    if was_in_use and not log_bases(names) and not snapshots:
        yield Finding(
            code=RemarkCode.MISSING_LOG,
            directory=directory,
            file=directory / log_name(0),
            offset=0,
            problem="is missing, and there is no snapshot: a broker that is the only controller starts with no topic, "
            "and sets the directories of all partitions aside (-stray). One with other controllers asks them",
        )


def _quorum_state_findings(directory: Path) -> Iterator[Finding]:
    file = files_in(directory).file(QUORUM_STATE)
    if not file.exists():
        return
    try:
        verify_quorum_state(file.read(), file=str(file))
    except CorruptDataError as damage:
        yield Finding(
            code=RemarkCode.BAD_QUORUM_FILE,
            directory=directory,
            file=file.path,
            problem=f"{damage.problem}. The file only has the vote of this node: a single controller, and a broker "
            "that is no controller, start without it",
            broker_says=f"Error while reading the Quorum status from the file {file}",
        )


def _topic_id_findings(directory: Path) -> Iterator[Finding]:
    """Yield a finding if the metadata log has the id of another topic. Rule: UnifiedLog.assignTopicId."""
    topic_id = None
    with suppress(CorruptDataError, UnsupportedError):  # It is reported with the small files.
        topic_id = read_topic_id(directory)
    if topic_id not in (None, _METADATA_TOPIC_ID):
        yield Finding(
            code=RemarkCode.OTHER_TOPIC,
            directory=directory,
            file=directory / PARTITION_METADATA,
            problem=f"has the topic id {topic_id}; that of {METADATA_DIRECTORY} is always {_METADATA_TOPIC_ID}",
            broker_says="InconsistentTopicIdException: Tried to assign topic ID",
        )


def _is_below_snapshot(damage: CorruptDataError, snapshot: MetadataSnapshotName | None) -> bool:
    """Return whether no broker reads what is damaged: a batch below the newest snapshot, where the one before ends.

    So its offsets are right, and it has been kept: its checksum is right too, which does not cover the magic.
    """
    if snapshot is None or not damage.file.endswith(Suffix.LOG) or damage.position is None:
        return False
    file = LogFile.at(damage.file)
    begins_at = end_by_headers(file, file.base_offset, end_position=damage.position)
    return damage.offset == begins_at < snapshot.end_offset


def _metadata_finding(damage: CorruptDataError) -> Finding:
    """Return the damage of the newest snapshot, of the log, or a log without a snapshot."""
    finding = replace(of_error(damage, Path(damage.file).parent), code=RemarkCode.BAD_QUORUM_FILE)
    if damage.file.endswith(Suffix.LOG):
        says = "Inconsistent snapshot state: there must be a snapshot at an offset larger"
        return finding if damage.position is not None else replace(finding, broker_says=says)
    without = "If an older snapshot or the log has all records, it can start without this file"
    if damage.position is None:  # It is incomplete. Kafka does not look for the footer.
        takes = (
            "takes what it has for all records: if more than the footer is missing, it ends, or forgets topics and "
            "sets their directories aside (-stray)"
        )
        return replace(finding, problem=f"{damage.problem}. A broker loads the newest snapshot, and {takes}. {without}")
    problem = f"{damage.problem}. A broker loads the newest snapshot first. {without}"
    return replace(finding, problem=problem, broker_says="Unhandled fault in MetadataLoader#handleLoadSnapshot")


def _bootstrap_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield damage of `bootstrap.checkpoint`, which is read at each start. Rule: BootstrapDirectory.read."""
    file = files_in(log_dir).file(BOOTSTRAP_CHECKPOINT)
    if not file.exists():
        return
    problem = ""
    try:
        if not any(True for _ in batches(file)):
            problem = "the file is empty"
    except CorruptDataError as damage:
        problem = damage.problem
    if problem:
        yield Finding(code=RemarkCode.BAD_QUORUM_FILE, directory=log_dir, file=file.path, problem=problem)
