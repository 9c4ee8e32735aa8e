"""Sentences and fields that text and JSON share: the policy, the sources of settings, the roles of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kcompact import readable
from kcompact.config.settings import FIELD_NAMES, Setting, Source, TopicConfig
from kcompact.plan.clean_plan import CleanPlan, Reason, Role

if TYPE_CHECKING:
    from kcompact.log.directory import Segment


# Configuration

_SOURCES = {
    Source.OPTION: "--config",
    Source.TOPIC_OVERRIDE: "topic override",
    Source.BROKER_OVERRIDE: "dynamic setting of the broker",
    Source.CLUSTER_DEFAULT: "dynamic default of all brokers",
    Source.BROKER_CONFIG: "static setting of the broker",
    Source.DEFAULT: "Kafka's default",
}
_ORIGINS = {None: "", "metadata-log": " in the cluster metadata", "bootstrap-server": " in the running cluster"}


def policy_line(config: TopicConfig) -> str:
    """Return the policy, with its source unless that is --config."""
    setting = config.settings.get("cleanup.policy")
    if config.policy_text is None or setting is None or setting.source is Source.OPTION:
        return config.policy_text or "unknown"
    where = "--broker-config" if setting == Setting(source=Source.BROKER_CONFIG) else _SOURCES[setting.source]
    return f"{config.policy_text or 'none'} ({where}{_ORIGINS[setting.origin]})"


def config_fields(config: TopicConfig) -> dict[str, Any]:
    """Return the value, source and origin of every setting that kcompact uses, under Kafka's names."""
    fields = {}
    for field, name in FIELD_NAMES.items():
        value = config.policy_text if field == "cleanup_policy" else getattr(config, field)
        setting = config.settings.get(name, Setting(source=Source.DEFAULT))
        source = None if value is None else str(setting.source)
        fields[name] = {"value": value, "source": source, "origin": setting.origin}
    return fields


# Roles


def role_reason(plan: CleanPlan, segment: Segment) -> str:
    """Return why a segment has its role."""
    match plan.role_of(segment):
        case Role.ACTIVE:
            return "the last segment is never cleaned"
        case Role.CLEAN:
            return f"ends below the first dirty offset {plan.first_dirty_offset}"
        case Role.DIRTY if segment.base_offset < plan.first_dirty_offset:
            return f"clean below offset {plan.first_dirty_offset}, dirty from that offset"
        case Role.DIRTY:
            return f"between the first dirty offset {plan.first_dirty_offset} and {plan.first_uncleanable_offset}"
    match plan.bound:
        case Reason.OPEN_TRANSACTION:
            return f"a transaction is open from offset {plan.last_stable_offset}"
        case Reason.HIGH_WATERMARK:
            return f"not entirely below the high watermark {plan.high_watermark}"
        case Reason.MIN_COMPACTION_LAG:
            lag_ms = plan.config.min_compaction_lag_ms
            return f"this segment or an earlier one is younger than min.compaction.lag.ms {lag_ms}"
    return f"at or above the first uncleanable offset {plan.first_uncleanable_offset}"


def clean_below_offset(plan: CleanPlan, segment: Segment) -> int | None:
    """Return the offset at which the dirty part of a dirty segment starts, None for its base offset."""
    straddles = segment.base_offset < plan.first_dirty_offset < plan.log.end_of(segment)
    return plan.first_dirty_offset if straddles and plan.role_of(segment) is Role.DIRTY else None


def amount_of(segments: Sequence[Segment]) -> str:
    """Return the number of some segments and their size: `12 segments, 1.2 MiB`."""
    total = readable.size(sum(segment.size_bytes for segment in segments))
    return f"{readable.counted(len(segments), 'segment')}, {total}"
