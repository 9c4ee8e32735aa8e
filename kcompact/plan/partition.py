"""Plans one partition directory; why a partition is refused, and what the user can do then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kcompact.bucket.path import is_in_bucket
from kcompact.config.brokers import moves_of
from kcompact.config.settings import TopicConfig
from kcompact.errors import (
    CorruptBatchError,
    CorruptDataError,
    KcompactError,
    PolicyUnknownError,
    RefusedError,
    UnsupportedError,
)
from kcompact.format.index import MAX_RELATIVE_OFFSET
from kcompact.log.batch_headers import end_by_headers
from kcompact.log.directory import LogDir, PartitionLog, read_log
from kcompact.log.files import files_in
from kcompact.log.producer_state import Producer, first_unstable_offset, load_producers
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.clean_plan import CleanPlan, plan_cleaning
from kcompact.plan.deletion import assumed_settings, due_now
from kcompact.plan.options import PlanOptions
from kcompact.plan.verdict import Reason
from kcompact.readable import shell_word
from kcompact.remarks import Note, RemarkCode
from kcompact.wording import worded

NO_HIGH_WATERMARK = Note.of(RemarkCode.NO_HIGH_WATERMARK)

HOW_TO_KNOW_TOPICS = (
    "--bootstrap-server, or --topic-configs FILE, the output of kafka-configs.sh --describe --entity-type topics"
)
"""Kafka's command comes last: its options are no parameters in Python."""
INCLUDE_INTERNAL = "Pass --include-internal to clean it."


def plan_partition(
    directory: str | os.PathLike[str],
    config: TopicConfig,
    *,
    now_ms: int,
    log_dir: LogDir | None = None,
    high_watermark: int | None = None,
    use_log_end: bool = False,
    force: bool = False,
    include_internal: bool = False,
    rebuild_indexes: bool = False,
    unclean: bool = False,
    moves: Sequence[Path] | None = None,
) -> CleanPlan:
    """Return the plan for one partition directory. Reads the disk, writes nothing.

    The high watermark is the first of: `high_watermark`; with `use_log_end` the log end; the entry of the log
    directory's `replication-offset-checkpoint`; the log start when that file has no entry for the partition, as in a
    broker; the log end when there is no such file, and of the log of a KRaft quorum. With `rebuild_indexes` no index
    file is read, for the plan or for a cleaning by this plan. With `unclean` a log whose broker was not shut down
    cleanly is planned as the broker will have it after it started, and nothing that it recovers is cleaned. `moves` are
    the `-future` directories of the partition, by default those beside it and in the log directories of
    `config.broker`. Damage is reported in the plan. Raises RefusedError, CorruptDataError, StorageError.
    """
    log = read_log(
        directory,
        log_dir=log_dir,
        rebuild_indexes=rebuild_indexes,
        index_interval_bytes=config.index_interval_bytes,
        as_recovered=unclean,
    )
    _require_relative_offsets(log)
    if moves is None:
        moves = moves_of(log.topic_partition, log.log_dir.path, config.broker)
    log = replace(log, moves=tuple(moves))
    if high_watermark is None and not use_log_end:
        high_watermark, notes = _checkpointed_high_watermark(log)
        log = replace(log, notes=(*log.notes, *notes))
    state, unstable = {}, None
    if not log.damage:
        expiration_ms = config.producer_id_expiration_ms
        state = load_producers(log, now_ms=now_ms, expiration_ms=expiration_ms)
        unstable = first_unstable_offset(
            log,
            state,
            high_watermark=high_watermark,
            now_ms=now_ms,
            expiration_ms=expiration_ms,
            release=config.release,
        )
    return plan_cleaning(
        log,
        config,
        now_ms=now_ms,
        producers=state,
        first_unstable_offset=unstable,
        high_watermark=high_watermark,
        force=force,
        include_internal=include_internal,
    )


def _require_relative_offsets(log: PartitionLog) -> None:
    """Raise UnsupportedError for a closed segment with an offset that no index can have.

    Its end is only read if the next segment begins so far away. Raises CorruptBatchError, StorageError.
    Rule: LogLoader.retryOnOffsetOverflow (KAFKA-6264).
    """
    for segment in log.segments[:-1]:
        if log.end_of(segment) - 1 - segment.base_offset <= MAX_RELATIVE_OFFSET:
            continue
        file = log.file(segment.log_name)
        last_offset = end_by_headers(file, segment.base_offset) - 1
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            raise UnsupportedError(
                path=str(file),
                problem=f"offset {last_offset} is too far from the segment's base offset {segment.base_offset} for an "
                "index",
                hint="A broker's cleaner splits such a segment at its first cleaning: start the broker once, and let "
                "it clean the partition.",
            )


def _checkpointed_high_watermark(log: PartitionLog) -> tuple[int | None, tuple[Note, ...]]:
    """Return the high watermark that the log directory has for a log, None for the log end, and notes for the user."""
    checkpoint = log.log_dir.high_watermarks
    if log.is_cluster_metadata:
        return None, (Note.of(RemarkCode.NO_QUORUM_HIGH_WATERMARK),)
    if checkpoint is None:
        return None, (Note.of(RemarkCode.NO_HIGH_WATERMARKS),)
    if log.topic_partition in checkpoint:
        return checkpoint[log.topic_partition], ()
    return log.log_start_offset, (NO_HIGH_WATERMARK,)


def make_plan(
    directory: Path, config: TopicConfig, options: PlanOptions, *, log_dir: LogDir, moves: Sequence[Path]
) -> CleanPlan:
    """Return the plan of one partition; beside a running broker that of a moment. Raises KcompactError, OSError."""
    return read_unchanged(
        files_in(directory),
        log_dir,
        lambda current: plan_partition(
            directory,
            config,
            now_ms=options.now_ms,
            log_dir=current,
            high_watermark=options.high_watermark,
            use_log_end=options.use_log_end,
            force=options.force,
            include_internal=options.include_internal,
            rebuild_indexes=options.rebuild_indexes,
            unclean=options.unclean,
            moves=moves,
        ),
    )


def plan_despite_damage(
    directory: Path, config: TopicConfig, options: PlanOptions, *, log_dir: LogDir, moves: Sequence[Path]
) -> tuple[CleanPlan, KcompactError | None]:
    """Return the plan and the damage. If the producer state cannot be read, the plan is made without it.

    Raises as `make_plan`.
    """
    try:
        plan = make_plan(directory, config, options, log_dir=log_dir, moves=moves)
    except (CorruptDataError, UnsupportedError) as problem:
        log = read_log(
            directory,
            log_dir=log_dir,
            rebuild_indexes=options.rebuild_indexes,
            index_interval_bytes=config.index_interval_bytes,
            as_recovered=options.unclean,
        )
        log, producers = replace(log, moves=tuple(moves)), dict[int, Producer]()
        with suppress(CorruptDataError, UnsupportedError):
            expiration_ms = config.producer_id_expiration_ms
            producers = load_producers(log, now_ms=options.now_ms, expiration_ms=expiration_ms)
        high_watermark = options.high_watermark
        plan = plan_cleaning(log, config, now_ms=options.now_ms, producers=producers, high_watermark=high_watermark)
        return plan, problem
    return plan, plan.log.damage[0] if plan.log.damage else None


def advise_recovery(problem: KcompactError | None, plan: CleanPlan | None) -> None:
    """Say of damage at the end of a log that was not closed that a broker cuts it off: nothing is to be restored."""
    if not isinstance(problem, CorruptBatchError) or plan is None or not plan.log.needs_recovery:
        return
    log = plan.log
    with suppress(KcompactError, OSError):
        recovered = read_log(log.directory, log_dir=log.log_dir, rebuild_indexes=log.ignores_indexes, as_recovered=True)
        torn_end_note = next((note for note in recovered.notes if note.code is RemarkCode.TORN_END), None)
        if torn_end_note is not None and not recovered.damage and recovered.is_cut_off(problem):
            hint = f"The log was not closed: {torn_end_note}. With --unclean kcompact takes the log as it will be then."
            problem.args = (problem.args[0], hint)


def hint_for(plan: CleanPlan) -> str:
    """Return how the user can have a refused partition cleaned, an empty text for any other partition."""
    topic = plan.log.topic_partition.topic
    if plan.reason is Reason.POLICY_UNKNOWN:
        policy = f"--config {topic}:cleanup.policy=compact"
        return f"If the topic is compacted, pass {policy}. Its own settings are read with {HOW_TO_KNOW_TOPICS}"
    if plan.reason is Reason.UNCLEAN_SHUTDOWN:
        return (
            "Start the broker once and stop it cleanly. If it cannot start, pass --unclean: what was flushed is "
            "cleaned, and the rest is left to the broker."
        )
    if plan.reason is Reason.RECOVERY_POINT:
        return (
            "A broker has to recover these segments before they can be cleaned: start it once, stop it cleanly, and "
            "clean without --unclean. If the disk is full, free a few megabytes first. If nothing can be freed, copy "
            "the log directory to another disk with --output DIR, and start the broker on the copy."
        )
    if plan.reason is Reason.PAUSED_BY_MOVE:
        future = plan.log.moves[0]
        if is_in_bucket(future):
            return "Copy the log directory to a local one: the move can be taken out of it there."
        return (
            "Start the broker and let it finish the move; or, if the move is given up, put that directory out of the "
            f"log directories: mv {shell_word(future)} ELSEWHERE. Or clean and keep what it still has to fetch: "
            f"--replica {shell_word(future)}"
        )
    if plan.reason is Reason.INTERNAL:
        may_compact = plan.config.compacts or plan.config.cleanup_policy is None
        is_compacted = may_compact and not plan.log.is_cluster_metadata
        return INCLUDE_INTERNAL if is_compacted else "Kafka does not compact this topic."
    return ""


def refusal(plan: CleanPlan) -> KcompactError | None:
    """Return the error that forbids to clean a partition; None for a partition that is eligible or needs no cleaning.

    Leftovers of an interrupted swap are not an error here: `recover` handles them.
    """
    directory = plan.log.directory
    if plan.log.damage and plan.reason is not Reason.UNCLEAN_SHUTDOWN:
        return plan.log.damage[0]
    if plan.config.remote_storage_enable:
        return RefusedError(path=directory, problem=plan.explanation)
    if plan.reason is Reason.POLICY_UNKNOWN:
        return PolicyUnknownError(path=directory, problem=plan.explanation, hint=hint_for(plan))
    if plan.reason in (Reason.UNCLEAN_SHUTDOWN, Reason.INTERNAL, Reason.PAUSED_BY_MOVE):
        return RefusedError(path=directory, problem=plan.explanation, hint=hint_for(plan))
    if plan.reason is Reason.HIGH_WATERMARK and NO_HIGH_WATERMARK in plan.log.notes:
        return RefusedError(path=directory, problem=worded(NO_HIGH_WATERMARK.text))
    return None


def assumed_retention(plan: CleanPlan) -> dict[str, str]:
    """Return the settings by which segments would be due and that are only assumed or unknown, with their values."""
    return {name: plan.config.text_of(name) for name in assumed_settings(due_now(plan), plan.config)}


_PLACEHOLDERS = {"retention.bytes": "BYTES", "retention.ms": "MS", "cleanup.policy": "POLICY"}


def retention_refusal(plan: CleanPlan) -> RefusedError | None:
    """Return the error that forbids to delete a partition's old segments, if the settings may not be the broker's."""
    assumed = assumed_retention(plan)
    if not assumed:
        return None
    topic = plan.log.topic_partition.topic
    options = " and ".join(f"--config {topic}:{name}={_PLACEHOLDERS[name]}" for name in assumed)
    if not plan.config.own.is_known:
        names = " and ".join(assumed)
        return RefusedError(
            path=plan.log.directory,
            problem=f"{names} of the topic {'is' if len(assumed) == 1 else 'are'} unknown: {plan.config.own.why}",
            hint=f"Nothing was changed. Pass {options}, or {HOW_TO_KNOW_TOPICS}",
        )
    unknown = [name for name in assumed if plan.config.value_of(name) is None]
    if unknown:
        names = f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'}"
        return RefusedError(
            path=plan.log.directory,
            problem=f"{names} unknown: the metadata log may have a dynamic setting of the broker, and was not read",
            hint=f"Nothing was changed. Pass {options}, or every log directory of the broker",
        )
    values = " and ".join(f"{name}={value}" for name, value in assumed.items())
    are = "is Kafka's default" if len(assumed) == 1 else "are Kafka's defaults"
    own = "the broker's own is unknown" if len(assumed) == 1 else "the broker's own are unknown"
    return RefusedError(
        path=plan.log.directory,
        problem=f"{values} {are}; {own}",
        hint=f"Nothing was changed. Pass --broker-config FILE, the broker's server.properties, or {options}",
    )
