"""One partition directory to its plan, and the reasons not to touch it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kcompact.config.settings import TopicConfig
from kcompact.errors import KcompactError, RefusedError
from kcompact.format.names import CLUSTER_METADATA_TOPIC
from kcompact.log.directory import LogDir, read_log
from kcompact.log.producer_state import first_unstable_offset, load
from kcompact.plan.clean_plan import CleanPlan, Reason, plan_cleaning

NO_HIGH_WATERMARK = (
    "replication-offset-checkpoint has no entry for this partition, so nothing counts as replicated; "
    "--high-watermark leo takes the whole log as replicated"
)


def plan_partition(
    directory: Path,
    config: TopicConfig,
    *,
    now_ms: int,
    log_dir: LogDir | None = None,
    high_watermark: int | None = None,
    use_log_end: bool = False,
    force: bool = False,
    include_internal: bool = False,
    rebuild_indexes: bool = False,
) -> CleanPlan:
    """Return the plan for one partition directory, from what is on the disk. Reads only.

    The high watermark is the given one, or the log end with `use_log_end`, or what the log directory's
    checkpoint says. A log directory whose checkpoint misses the partition leaves it at the log start, as for a broker:
    nothing is cleanable then. A copy outside of a log directory is taken as complete.
    """
    log = read_log(directory, log_dir=log_dir, rebuild_indexes=rebuild_indexes)
    known = log.log_dir.high_watermarks
    if high_watermark is None and not use_log_end and known is not None:
        high_watermark = known.get(log.topic_partition)
        if high_watermark is None:
            high_watermark = log.log_start_offset
            if log.topic_partition.topic != CLUSTER_METADATA_TOPIC:
                log = replace(log, notes=(*log.notes, NO_HIGH_WATERMARK))
    elif high_watermark is None and not use_log_end:
        log = replace(log, notes=(*log.notes, "no replication-offset-checkpoint: high watermark taken as the log end"))
    state, unstable = {}, None
    if not log.damage:
        expiration_ms = config.producer_id_expiration_ms
        state = load(log, now_ms=now_ms, expiration_ms=expiration_ms)
        unstable = first_unstable_offset(
            log, state, high_watermark=high_watermark, now_ms=now_ms, expiration_ms=expiration_ms
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


def refusal(plan: CleanPlan) -> KcompactError | None:
    """Return why a partition must not be touched, or None when it is eligible or merely needs no cleaning."""
    directory = plan.log.directory
    if plan.log.damage:
        return plan.log.damage[0]
    if plan.config.remote_storage_enable:
        return RefusedError(path=directory, problem=plan.explanation)
    if plan.reason is Reason.POLICY_UNKNOWN:
        return RefusedError(
            path=directory,
            problem=plan.explanation,
            hint=f"If it is compacted, pass --config {plan.log.topic_partition.topic}:cleanup.policy=compact",
        )
    if plan.reason is Reason.UNCLEAN_SHUTDOWN:
        return RefusedError(
            path=directory,
            problem=plan.explanation,
            hint="Start the broker once and stop it cleanly, or copy the partition directory out and clean the copy.",
        )
    if plan.reason is Reason.INTERNAL:
        never = plan.log.topic_partition.topic == CLUSTER_METADATA_TOPIC
        hint = "It is cut by snapshots, never compacted." if never else "--include-internal cleans it all the same."
        return RefusedError(path=directory, problem=plan.explanation, hint=hint)
    if plan.reason is Reason.HIGH_WATERMARK and NO_HIGH_WATERMARK in plan.log.notes:
        return RefusedError(path=directory, problem=NO_HIGH_WATERMARK)
    return None
