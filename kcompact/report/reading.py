"""Reads the facts of partitions: the plan, the segments, and what a cleaning would leave, by a dry run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.errors import (
    CleaningAbortedError,
    CorruptDataError,
    KcompactError,
    LogChangedError,
    storage_errors,
)
from kcompact.format.limits import batch_memory_bytes
from kcompact.host.machine import default_memory_bytes
from kcompact.log.directory import LogDir
from kcompact.log.unchanged_reading import damage_only_if_unchanged, read_unchanged
from kcompact.plan.clean_plan import CleanPlan, plan_cleaning
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import plan_despite_damage
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import Answer
from kcompact.questions.batch_kinds import count_kinds
from kcompact.questions.contents import log_contents
from kcompact.questions.gaps.answer import log_gaps
from kcompact.questions.keys.count import count_keys
from kcompact.questions.keys.counts import CountOptions
from kcompact.questions.transactions.answer import log_transaction_report
from kcompact.stages.executor import Progress
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.cleaner.outcome import CleanResult
    from kcompact.errors import KcompactError
    from kcompact.plan.explanation import Explanation
    from kcompact.questions.batch_kinds import BatchKinds
    from kcompact.questions.contents import LogContents
    from kcompact.questions.gaps.walks import Gaps
    from kcompact.questions.keys.counts import LogKeys
    from kcompact.questions.transactions.answer import TransactionReport

MOST_DETAILED = 20
"""Of more partitions, the others get a row of the summary only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result of a dry run, or the error that ended it. `is_forced`: the plan ignored the dirty ratio."""

    result: CleanResult | None = None
    error: KcompactError | None = None
    is_forced: bool = False

    @property
    def bytes_after(self) -> int | None:
        """The size of the cleaned section after the cleaning, None without a result."""
        return None if self.result is None else self.result.stats.bytes_written


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What was read of the segments of a partition. None is what was not read.

    `damage` has what stopped the reading of a segment.
    """

    contents: LogContents | None = None
    kinds: BatchKinds | None = None
    gaps: Gaps | None = None
    transactions: TransactionReport | None = None
    keys: LogKeys | None = None
    dry_run: DryRun | None = None
    damage: tuple[KcompactError, ...] = ()
    explained: Explanation | None = None


def facts_of(answer: Answer[PartitionFacts]) -> PartitionFacts:
    """Return what was read of a partition, perhaps nothing."""
    return answer.found or PartitionFacts()


def dry_plan(plan: CleanPlan) -> CleanPlan | None:
    """Return the plan of the dry run: that of the partition, with `--force` if only the ratio is too low, or None."""
    if plan.eligible:
        return plan
    if plan.reason is not Reason.BELOW_RATIO:
        return None
    return plan_cleaning(
        plan.log,
        plan.config,
        now_ms=plan.now_ms,
        producers=plan.producers,
        first_unstable_offset=max(plan.last_stable_offset, plan.log.log_start_offset),
        high_watermark=plan.high_watermark,
        force=True,
        include_internal=True,
    )


def read_facts(
    answer: Answer[PartitionFacts], options: PlanOptions, count: CountOptions, *, progress: Progress | None = None
) -> Answer[PartitionFacts]:
    """Return a partition with what its segments contain. Beside a running broker they are of a moment.

    `count` says how keys are counted, and what memory there is.
    """
    plan = answer.plan
    if plan is None:
        return answer
    progress = progress or Progress()

    def read(log_dir: LogDir) -> Answer[PartitionFacts]:
        current = answer
        if log_dir is not plan.log.log_dir:
            again, damage = plan_despite_damage(
                answer.directory, plan.config, options, log_dir=log_dir, moves=plan.log.moves
            )
            current = replace(answer, plan=again, error=damage)
        return _read(current, count, progress)

    try:
        with storage_errors(answer.directory):
            return read_unchanged(plan.log.files, plan.log.log_dir, read, watches=False)
    except CleaningAbortedError:
        raise
    except KcompactError as problem:
        return replace(answer, error=answer.error or problem)
    finally:
        progress.end()


def _read(answer: Answer[PartitionFacts], count: CountOptions, progress: Progress) -> Answer[PartitionFacts]:
    assert answer.plan is not None
    log = answer.plan.log
    contents = log_contents(log)
    kinds = count_kinds(log)
    for_batches = batch_memory_bytes(count.memory_bytes or default_memory_bytes())
    gaps = log_gaps(answer.plan, contents=contents, memory_bytes=for_batches)
    transactions = None
    if any(each.transactional_batches or each.control_batches for each in contents.segments):
        transactions = log_transaction_report(answer.plan, memory_bytes=for_batches)
    counted = count_keys([answer.plan], InProcess(progress=progress), count)
    dry_run = _dry_run(answer, count.memory_bytes, progress)
    damage = [each.damage for each in contents.segments if each.damage is not None]
    keys = next(iter(counted.logs), None)
    problems = [problem for _, problem in counted.failed]
    if keys is not None and keys.problem is not None:
        problems.append(keys.problem)
    damage += [] if damage else problems
    if dry_run is not None and isinstance(dry_run.error, CorruptDataError) and not damage:
        damage.append(dry_run.error)
    facts = PartitionFacts(
        contents=contents,
        kinds=kinds,
        gaps=gaps,
        transactions=transactions,
        keys=keys,
        dry_run=dry_run,
        damage=tuple(damage),
    )
    return replace(answer, found=facts, error=answer.error or next(iter(damage), None))


def _dry_run(answer: Answer[PartitionFacts], memory_bytes: int | None, progress: Progress) -> DryRun | None:
    """Return what a cleaning would leave; None where nothing would be cleaned. An error is part of the result."""
    plan = None if answer.plan is None or answer.error is not None else dry_plan(answer.plan)
    if plan is None:
        return None
    is_forced = answer.plan is not None and not answer.plan.eligible
    options = CleanOptions(dry_run=True, memory_bytes=memory_bytes)
    try:
        with damage_only_if_unchanged(plan.log):
            result = clean_partition(plan, InProcess(progress=progress), lock=None, options=options, progress=progress)
    except (CleaningAbortedError, LogChangedError):
        raise
    except KcompactError as problem:
        return DryRun(error=problem, is_forced=is_forced)
    return DryRun(result=result, is_forced=is_forced)
