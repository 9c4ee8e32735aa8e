"""The answer about one partition: its replicas, the verdict, the findings with keys, reasons and advice.

equal                           the same batches, byte for byte
equal-compacted-differently     the same records, as far as a cleaner does not remove them
behind                          lawful, and not all end at the same offset
different                       something differs that no lawful history explains
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from kcompact.errors import CorruptDataError, KcompactError
from kcompact.exit_codes import ExitCode, gravest_exit_code
from kcompact.format.names import TopicPartition
from kcompact.log.directory import LogDir, PartitionLog, read_log
from kcompact.log.offset_index import position_near
from kcompact.log.past_damage import Unreadable
from kcompact.log.records import record_parts
from kcompact.questions.compare.advice import Advice, advice_on
from kcompact.questions.compare.comparison import Comparison, compare_replicas
from kcompact.questions.compare.findings import Certainty, Difference, DifferenceKind, findings_of
from kcompact.questions.compare.pairs import PairedPartition, Side
from kcompact.stages.executor import Executor
from kcompact.values import dataclass

_WILL = (DifferenceKind.BEHIND_WILL_RESURRECT, DifferenceKind.BEHIND_WILL_HANG)


class ReplicaVerdict(StrEnum):
    """What a comparison of the replicas of a partition has shown."""

    EQUAL = "equal"
    COMPACTED = "equal-compacted-differently"
    BEHIND = "behind"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedReplica:
    """A replica: the path that names it, its directory and broker, its offsets, and its role if the cluster tells."""

    path: Path
    directory: Path
    node_id: int | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    is_leader: bool | None
    is_in_sync: bool | None
    batches: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """Offsets of a replica that are not compared, and why."""

    path: Path
    from_offset: int
    to_offset: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A finding with its keys (by offset, None for one without), and what it means and asks for."""

    finding: Difference
    replicas: tuple[Path, ...]
    right: tuple[Path, ...] | None
    keys: tuple[tuple[int, bytes | None], ...]
    advice: Advice

    @property
    def exit_code(self) -> int:
        """The exit code of a command that finds this."""
        if self.finding.kind is DifferenceKind.CORRUPT_COPY:
            return ExitCode.CORRUPT
        if self.finding.kind is DifferenceKind.UNREPLICATED_TAIL:
            return 0
        is_open = self.finding.kind in _WILL or self.finding.certainty is Certainty.UNDECIDED
        return ExitCode.UNDECIDED if is_open else ExitCode.DIFFERENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPartition:
    """The answer about one partition, or the error that kept it from being compared."""

    topic_partition: TopicPartition
    replicas: tuple[ComparedReplica, ...] = ()
    verdict: ReplicaVerdict | None = None
    compared_from: int | None = None
    compared_to: int | None = None
    fork_offset: int | None = None
    not_compared: tuple[NotCompared, ...] = ()
    keys: int = 0
    equal_batches: int = 0
    rebuilt: dict[str, int] | None = None
    alone: int = 0
    findings: tuple[Explained, ...] = ()
    error: KcompactError | None = None

    @property
    def name(self) -> str:
        """The topic and the number of the partition."""
        return str(self.topic_partition)

    @property
    def exit_code(self) -> int:
        """The gravest exit code of the error, of the findings, and of what is not compared."""
        codes = [each.exit_code for each in self.findings]
        codes += [self.error.exit_code] if self.error is not None else []
        codes += [ExitCode.UNDECIDED] if self.not_compared else []
        return gravest_exit_code(codes)


def compare_partition(
    paired: PairedPartition,
    sides: Sequence[Side],
    log_dirs: Sequence[LogDir],
    executor: Executor,
    *,
    problems: Sequence[CorruptDataError | None] = (),
    memory_bytes: int | None = None,
) -> ComparedPartition:
    """Return the answer about a partition. Reads only.

    `log_dirs` are those of its replicas, `problems` what is damaged in them, None where nothing is.

    Raises KcompactError.
    """
    logs = [
        read_log(directory, log_dir=log_dir, as_recovered=True)
        for (_, directory), log_dir in zip(paired.replicas, log_dirs, strict=True)
    ]
    node_ids = [sides[side].node_id for side, _ in paired.replicas]
    leader = node_ids.index(paired.roles.leader) if paired.roles.leader in node_ids else None
    comparison = compare_replicas(logs, executor, memory_bytes=memory_bytes, problems=problems, leader=leader)
    findings = findings_of(comparison)
    paths = [sides[side].path for side, _ in paired.replicas]
    directories = [directory for _, directory in paired.replicas]
    names = [
        str(path) if node_id is None else f"broker {node_id} ({path})"
        for path, node_id in zip(paths, node_ids, strict=True)
    ]
    ends = [comparison.end_of(number) for number in range(len(logs))]
    return ComparedPartition(
        topic_partition=paired.topic_partition,
        replicas=tuple(_replica(paired, number, paths, node_ids, logs, comparison) for number in range(len(logs))),
        verdict=_verdict(comparison, findings),
        compared_from=min(log.log_start_offset for log in logs),
        compared_to=max(ends),
        fork_offset=comparison.fork_offset,
        not_compared=(*_not_compared(comparison, paths), *_missing(paired, sides, max(ends))),
        keys=comparison.keys,
        equal_batches=comparison.equal,
        rebuilt={why: count for why, count in comparison.rebuilt.items() if count},
        alone=int(comparison.alone.sum()),
        findings=tuple(
            Explained(
                finding=each,
                replicas=tuple(paths[number] for number in each.replicas),
                right=None if each.right is None else tuple(paths[number] for number in each.right),
                keys=tuple(_keys_of(each, logs)),
                advice=advice_on(each, paired.topic_partition, names, directories),
            )
            for each in findings
        ),
    )


def _replica(
    paired: PairedPartition,
    number: int,
    paths: Sequence[Path],
    node_ids: Sequence[int | None],
    logs: Sequence[PartitionLog],
    comparison: Comparison,
) -> ComparedReplica:
    log, node_id, roles = logs[number], node_ids[number], paired.roles
    batches, size_bytes = comparison.batches[number].tolist()
    return ComparedReplica(
        path=paths[number],
        directory=log.directory,
        node_id=node_id,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=(log.log_dir.high_watermarks or {}).get(log.topic_partition),
        is_leader=None if roles.leader is None or node_id is None else roles.leader == node_id,
        is_in_sync=None if roles.in_sync is None or node_id is None else node_id in roles.in_sync,
        batches=batches,
        records=int(comparison.records[number]),
        size_bytes=size_bytes,
    )


def _verdict(comparison: Comparison, findings: Sequence[Difference]) -> ReplicaVerdict:
    if any(each.kind not in (*_WILL, DifferenceKind.UNREPLICATED_TAIL) for each in findings):
        return ReplicaVerdict.DIFFERENT
    if len({each.log.log_end_offset for each in comparison.replicas}) > 1:
        return ReplicaVerdict.BEHIND
    if comparison.alone.any() or any(comparison.rebuilt.values()):
        return ReplicaVerdict.COMPACTED
    return ReplicaVerdict.EQUAL


def _not_compared(comparison: Comparison, paths: Sequence[Path]) -> list[NotCompared]:
    parts = []
    for number, replica in enumerate(comparison.replicas):
        end_offset = replica.log.log_end_offset
        fork = comparison.forks[number]
        if fork is not None and fork < end_offset and not comparison.is_unreplicated(number):
            why = "above its fork it has other records than the newest leader"
            parts.append(NotCompared(path=paths[number], from_offset=fork, to_offset=end_offset, why=why))
        parts += [
            NotCompared(
                path=paths[number],
                from_offset=each.first_offset,
                to_offset=each.end_offset,
                why=str(each.problem).splitlines()[0],
            )
            for each in comparison.damage
            if each.replica == number and each.first_offset < each.end_offset
        ]
    return parts


def _missing(paired: PairedPartition, sides: Sequence[Side], end_offset: int) -> Iterator[NotCompared]:
    for side in paired.missing_on or ():
        why = "the cluster metadata names this broker as a replica, but it has no directory of the partition"
        yield NotCompared(path=sides[side].path, from_offset=0, to_offset=end_offset, why=why)


def _keys_of(finding: Difference, logs: Sequence[PartitionLog]) -> list[tuple[int, bytes | None]]:
    """Return the keys of a finding, each with its offset."""
    if finding.holder is None:
        return []
    return [(offset, _key_at(logs[finding.holder], offset)) for offset in finding.offsets]


def _key_at(log: PartitionLog, offset: int) -> bytes | None:
    """Return the key of the record at an offset, None if it has none or cannot be read."""
    segment = log.segment_at(offset)
    if segment is None:
        return None
    file = log.file(segment.log_name)
    for part in record_parts(file, start_position=position_near(file, offset), end_position=segment.size_bytes):
        if not isinstance(part, Unreadable) and part.last_offset >= offset:
            row = int(part.offset.searchsorted(offset))
            return part.key(row) if row < len(part) and part.offset[row] == offset else None
    return None
