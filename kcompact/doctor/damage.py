"""Damaged batches, indexes and small files of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path

from kcompact.doctor.believed_index import end_look_up, offset_index_findings, time_index_findings, unstable_findings
from kcompact.doctor.broken_batches import broken_end, torn_closed_end, uncleanable_batches, wrong_start
from kcompact.doctor.findings import Finding
from kcompact.errors import (
    CorruptBatchError,
    CorruptDataError,
    CorruptIndexError,
    CorruptTransactionIndexError,
    KcompactError,
    OtherTopicError,
    StaleReplicaError,
    StorageError,
    UnsupportedError,
    storage_errors,
)
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kcompact.format.names import Suffix
from kcompact.format.properties import PARTITION_METADATA
from kcompact.log.batch_headers import headers
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.offset_index import index_or_log, last_indexed_position
from kcompact.log.producer_state import first_open_transaction_offset, load_producers
from kcompact.log.segments import Segment
from kcompact.log.small_files import small_file_problems
from kcompact.log.transaction_index import read_transaction_index
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.verify import findings as inspected
from kcompact.questions.verify.log import verify_log
from kcompact.release import Release
from kcompact.remarks import RemarkCode
from kcompact.values import dataclass

Look = Callable[[PartitionLog, Segment], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a segment: the offset after its last batch, and what is wrong with the end of the log or its index."""

    end_offset: int
    damage: CorruptDataError | None = None


def read_tail(log: PartitionLog, segment: Segment) -> Tail:
    """Return the end of a segment, from its last index entry on. Raises RefusedError, StorageError."""
    file = log.file(segment.log_name)
    end_offset = segment.base_offset
    try:
        for _, header in headers(file, start_position=_last_indexed(log, segment, file)):
            end_offset = header.next_offset
    except CorruptDataError as problem:
        return Tail(end_offset=end_offset, damage=problem)
    return Tail(end_offset=end_offset)


def _last_indexed(log: PartitionLog, segment: Segment, segment_log: LogFile) -> int:
    """Return the position of the last batch in the `.index`, 0 without one. Raises CorruptDataError."""
    file = log.index_file(segment, Suffix.INDEX)
    if file is None:
        return 0
    try:
        return last_indexed_position(file, segment.size_bytes)
    except CorruptIndexError as problem:
        raise index_or_log(problem, segment_log) from None


def found_by_reading(plan: CleanPlan, memory_bytes: int) -> list[KcompactError]:
    """Return all damage of a partition, and why a batch is refused: every byte is read.

    Raises StorageError, RefusedError.
    """
    contents = verify_log(plan.log, index_interval_bytes=plan.config.index_interval_bytes, memory_bytes=memory_bytes)
    refused = [each.damage for each in contents.segments if isinstance(each.damage, UnsupportedError)]
    damage = [each.error for each in contents.findings if each.error is not None]
    return [*(each for each in damage if not plan.log.is_cut_off(each)), *refused]


def found_at_the_ends(plan: CleanPlan, tails: Sequence[Tail]) -> list[KcompactError]:
    """Return the damage that the ends of the segments and the small files show. Raises StorageError, RefusedError."""
    problems: list[KcompactError] = [tail.damage for tail in tails if tail.damage is not None]
    problems += small_file_problems(plan.log)
    for segment in plan.log.segments:
        if segment.has(Suffix.TXN_INDEX):
            try:
                read_transaction_index(plan.log.file(segment.log_name).with_suffix(Suffix.TXN_INDEX))
            except CorruptDataError as problem:
                problems.append(problem)
    return problems


def damage_findings(plan: CleanPlan, problems: Sequence[KcompactError], memory_bytes: int) -> Iterator[Finding]:
    """Yield each problem once; of a batch that a broker or its cleaner cannot read, what the broker's log will say.

    Raises RefusedError, StorageError.
    """
    by_place = {_place(problem): problem for problem in reversed(problems)}
    yield from _believed_indexes(plan, by_place)
    if problems:
        yield from _unstable_findings(plan, memory_bytes)
    for batch_finding in _uncleanable_batches(plan, problems, memory_bytes):
        known = by_place.pop((str(batch_finding.file), batch_finding.position), None)
        torn = _broken_end(known, plan.log) if isinstance(known, CorruptBatchError) else None
        if torn is not None:
            yield torn if torn.broker_says else replace(torn, broker_says=batch_finding.broker_says)
        else:
            yield (
                replace(batch_finding, problem=known.problem) if isinstance(known, CorruptDataError) else batch_finding
            )
    for problem in reversed(by_place.values()):
        finding = _broken_end(problem, plan.log) or bad_transaction_index(problem, plan.config.release)
        yield finding or of_error(problem, plan.log.directory)


def _unstable_findings(plan: CleanPlan, memory_bytes: int) -> Iterator[Finding]:
    """Yield whether a broker ends at the first batch of an open transaction. A plan of a damaged log may lack it."""
    producers = plan.producers
    with suppress(CorruptDataError, UnsupportedError):
        expiration_ms = plan.config.producer_id_expiration_ms
        producers = producers or load_producers(plan.log, now_ms=plan.now_ms, expiration_ms=expiration_ms)
    unstable = first_open_transaction_offset(producers)
    if unstable is not None:
        yield from unstable_findings(plan.log, max(unstable, plan.log.log_start_offset), memory_bytes)


def _believed_indexes(plan: CleanPlan, by_place: dict[tuple[str, int | None], KcompactError]) -> Iterator[Finding]:
    """Yield what a broker makes of wrong offset indexes; take the problems away that are said with it."""
    log = plan.log
    times = partial(time_index_findings, now_ms=plan.now_ms)
    looks: dict[Suffix, Look] = {Suffix.INDEX: offset_index_findings, Suffix.TIME_INDEX: times}
    for segment, (suffix, look) in product(log.segments, looks.items()):
        file = str(log.file(segment.log_name).with_suffix(suffix))
        of_index = [
            place
            for place, problem in by_place.items()
            if isinstance(problem, CorruptIndexError) and problem.file == file
        ]
        if of_index and not log.is_below_start(segment) and (findings := list(look(log, segment))):
            yield from findings
            for place in of_index:
                del by_place[place]


def _place(problem: KcompactError) -> tuple[str, int | None]:
    """Return where a problem is. Two ways to look for damage can find the same."""
    return (problem.file, problem.position) if isinstance(problem, CorruptDataError) else (str(problem), None)


def _uncleanable_batches(plan: CleanPlan, problems: Sequence[KcompactError], memory_bytes: int) -> Iterator[Finding]:
    """Yield where the broker's cleaner fails in damaged files: in the last segment as soon as that is closed."""
    if not plan.config.compacts:
        return
    damaged = {problem.file for problem in problems if isinstance(problem, CorruptBatchError)}
    for segment in plan.log.segments:
        file = plan.log.file(segment.log_name)
        if str(file) in damaged:
            with storage_errors(file.path):
                findings = uncleanable_batches(file, plan.log.topic_partition, memory_bytes=memory_bytes)
                yield from islice(findings, inspected.MOST_LISTED)


def _broken_end(problem: KcompactError, log: PartitionLog) -> Finding | None:
    """Return what a broker does at the place of a damaged batch that is the end of a segment; None if it reads on.

    After an unclean shutdown the broker cuts off what is no batch. Raises RefusedError, StorageError.
    """
    if not isinstance(problem, CorruptBatchError) or problem.position is None or log.log_dir.is_running:
        return None
    for segment in log.segments:
        file = log.file(segment.log_name)
        if str(file) == problem.file and not log.recovers(segment) and not log.is_below_start(segment):
            if segment is log.active_segment:
                start = wrong_start(file) if problem.position == 0 else None
                return start or broken_end(file, max(problem.position, end_look_up(log, segment)))
            return torn_closed_end(file, problem.position, range(segment.base_offset, log.end_of(segment)))
    return None


def bad_transaction_index(problem: KcompactError, release: Release) -> Finding | None:
    """Return the finding for a `.txnindex` with an entry of a version that a broker refuses; None for all else.

    It checks them when it loads a segment, also of a log that it recovers. Rule: TransactionIndex.sanityCheck.
    """
    version = problem.unknown_version if isinstance(problem, CorruptTransactionIndexError) else None
    if version is None or not release.refuses_txn_version(version):
        return None
    says = "KafkaException: Unexpected aborted transaction version"
    return replace(of_error(problem, Path()), code=RemarkCode.BAD_TRANSACTION_INDEX, broker_says=says)


def of_error(problem: KcompactError, directory: Path) -> Finding:
    """Return an error about a partition as a finding."""
    code, says = _code_of(problem)
    if not isinstance(problem, CorruptDataError):
        text, path = getattr(problem, "problem", None), getattr(problem, "path", None)
        text = text if isinstance(text, str) else str(problem).splitlines()[0]
        file = None if path is None else Path(path)
        return Finding(code=code, directory=directory, file=file, problem=text, broker_says=says)
    return Finding(
        code=code,
        directory=Path(problem.file).parent,
        file=Path(problem.file),
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
        broker_says=says,
    )


def _code_of(problem: KcompactError) -> tuple[RemarkCode, str]:
    """Return the code of an error, and what a broker's log says about it."""
    match problem:
        case CorruptBatchError():
            return RemarkCode.DAMAGED_BATCH, ""
        case CorruptIndexError():
            return RemarkCode.LYING_INDEX, ""
        case CorruptDataError() if problem.file.endswith(Suffix.SNAPSHOT):
            return RemarkCode.BAD_SNAPSHOT, f"Failed to load producer snapshot from '{problem.file}'"
        case CorruptDataError() if problem.file.endswith(LEADER_EPOCH_CHECKPOINT):
            return RemarkCode.BAD_CHECKPOINT, f"Error while reading checkpoint file {problem.file}"
        case UnsupportedError() if problem.path.endswith(LEADER_EPOCH_CHECKPOINT):
            return RemarkCode.BAD_CHECKPOINT, f"Error while reading checkpoint file {problem.path}"
        case CorruptDataError() if problem.file.endswith(PARTITION_METADATA):
            says = f"Error while reading partition metadata file {problem.file}, or: NullPointerException"
            return RemarkCode.BAD_CHECKPOINT, says
        case CorruptDataError() if problem.file.endswith(LOG_START_OFFSET_CHECKPOINT):
            return RemarkCode.LOG_START_ABOVE_END, "Deleting all segments because logEndOffset"
        case CorruptDataError() if problem.file.endswith(Suffix.LOG):
            return RemarkCode.MISSING_LOG, "Found an orphaned index file"
        case CorruptDataError():
            return RemarkCode.CHECKPOINT_ABOVE_END, ""
        case OtherTopicError():
            return RemarkCode.OTHER_TOPIC, "InconsistentTopicIdException: Tried to assign topic ID"
        case StaleReplicaError():
            return RemarkCode.STALE_REPLICA, "marked stray and renamed"
        case StorageError():
            return RemarkCode.UNREADABLE, problem.word
    return RemarkCode.REFUSED, ""
