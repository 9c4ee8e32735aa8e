"""Which settings a plan depends on, and which of them are only assumed to have Kafka's defaults. Pure.

A broker's static settings are in its `server.properties` only. Where nobody has read that file, a setting that neither
the topic nor the cluster has may have another value in the broker than Kafka's default.
"""

from __future__ import annotations

from kcompact.plan.clean_plan import CleanPlan, ConditionName, Reason
from kcompact.plan.deletion import assumed_settings, due_now, retention_applies
from kcompact.plan.remedies import policy_remedy

_SETTINGS_OF: dict[ConditionName, tuple[str, ...]] = {
    ConditionName.POLICY: ("cleanup.policy",),
    ConditionName.CLEANER_ENABLE: ("log.cleaner.enable",),
    ConditionName.ACTIVE_SEGMENT: ("segment.bytes", "segment.ms", "segment.jitter.ms", "max.compaction.lag.ms"),
    ConditionName.MIN_LAG: ("min.compaction.lag.ms",),
    ConditionName.MAX_LAG: ("max.compaction.lag.ms",),
    ConditionName.RATIO: ("min.cleanable.dirty.ratio",),
    ConditionName.ORDER: ("log.cleaner.threads",),
    ConditionName.BUFFER: (
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.threads",
        "log.cleaner.io.buffer.load.factor",
    ),
    ConditionName.THROTTLE: ("log.cleaner.io.max.bytes.per.second",),
    ConditionName.TOMBSTONES: ("delete.retention.ms",),
    ConditionName.RETENTION: ("retention.ms", "retention.bytes"),
}
"""The settings that each condition of the cleaner asks. The others depend on the log alone."""


def assumed_by(plan: CleanPlan, condition: ConditionName) -> tuple[str, ...]:
    """Return the settings of a condition that are only assumed."""
    return tuple(name for name in _SETTINGS_OF.get(condition, ()) if plan.config.is_assumed(name))


def deciding_assumptions(plan: CleanPlan) -> tuple[str, ...]:
    """Return the assumed settings that decide: another value could change the verdict, the bytes or a delete horizon.

    They are in the order of `TopicConfig.assumed`.
    """
    if not retention_applies(plan) or plan.log.is_cluster_metadata:
        return ()  # The state of the log decides, whatever the settings.
    deciding = {*_deciding_of_cleaning(plan), *assumed_settings(due_now(plan), plan.config)}
    return tuple(name for name in plan.config.assumed if name in deciding)


def _deciding_of_cleaning(plan: CleanPlan) -> set[str]:
    """Return the settings of which another value could have the partition cleaned, not cleaned, or cleaned otherwise.

    Only one of them has another value at a time.
    """
    if not plan.config.compacts:
        return {"cleanup.policy"} if policy_remedy(plan).makes_eligible else set()
    if plan.reason is Reason.BELOW_RATIO:
        return {"min.cleanable.dirty.ratio", "max.compaction.lag.ms"}
    if not plan.eligible:
        return set()
    found = {"cleanup.policy", "log.cleaner.enable", "min.compaction.lag.ms"}
    found |= {"delete.retention.ms", "index.interval.bytes"}
    if plan.reason is Reason.DIRTY_RATIO and not plan.need_compaction_now:
        found.add("min.cleanable.dirty.ratio")
    if len(plan.segments) > 1:
        found |= {"segment.bytes", "segment.index.bytes"}
    return found | ({"producer.id.expiration.ms"} if plan.producers else set())
