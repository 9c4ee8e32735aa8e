"""What the commands found and did, as values: one entry per partition, and the JSON that describes it.

The field names are a contract, `docs/cli.md`; `VERSION` rises when one changes its meaning or goes. Every entry has
all fields of its command; what could not be known is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.config import FIELD_NAMES, Setting, Source, TopicConfig
from kcompact.errors import CorruptDataError, KcompactError, RecoveryNeededError, StaleReplicaError
from kcompact.plan import CleanPlan, Reason, Role, kafka_passes_at_least, kafka_passes_at_most
from kcompact.retention import Outlook, outlook

if TYPE_CHECKING:
    from kcompact.cleaner import CleanResult
    from kcompact.log import Segment
    from kcompact.survey import Finding, LogSurvey, SegmentSurvey

VERSION = 1

IDENTITY_FIELDS = ("topic", "partition", "directory")
PLAN_FIELDS = (
    "cleanup_policy",
    "config",
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "first_dirty_offset",
    "first_uncleanable_offset",
    "checkpoint_offset",
    "checkpoint_reset",
    "clean_bytes",
    "cleanable_bytes",
    "cleanable_ratio",
    "kafka_passes_at_most",
    "max_compaction_delay_ms",
    "need_compaction_now",
    "eligible",
    "reason",
    "explanation",
    "segments",
    "groups",
    "notes",
    "retention",
)
OUTCOME_FIELDS = ("error", "exit_code")
CLEAN_FIELDS = (
    "status",
    "end_offset",
    "bytes_read",
    "bytes_written",
    "messages_read",
    "messages_written",
    "map_bytes_read",
    "map_keys",
    "invalid_messages",
    "kafka_passes_at_least",
    "engine",
    "elapsed_s",
    "recovered",
    "deleted_segments",
)
SEGMENT_FIELDS = (
    "base_offset",
    "size_bytes",
    "role",
    "role_reason",
    "clean_below_offset",
    "first_timestamp_ms",
    "largest_timestamp_ms",
    "last_modified_ms",
)
SURVEY_FIELDS = (
    "batches",
    "records",
    "first_offset",
    "last_offset",
    "empty_batches",
    "control_batches",
    "transactional_batches",
    "horizon_batches",
    "tombstones",
    "null_keys",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition in an answer: its plan, or why there is none, and what else the command has to say."""

    directory: Path
    plan: CleanPlan | None = None
    error: KcompactError | None = None
    survey: LogSurvey | None = None
    findings: tuple[Finding, ...] | None = None
    result: CleanResult | None = None
    recovered: str | None = None
    is_partition: bool = True
    """False for a directory that holds no partition, so that there is nothing to plan."""

    @property
    def reason(self) -> Reason | None:
        """Return the verdict; an error without a plan may have one of its own, or None where nothing is known."""
        if isinstance(self.error, CorruptDataError):
            return Reason.CORRUPT
        if isinstance(self.error, RecoveryNeededError):
            return Reason.LEFTOVERS
        if not self.is_partition or isinstance(self.error, StaleReplicaError):
            return Reason.NOT_A_PARTITION
        return self.plan.reason if self.plan else None

    @property
    def explanation(self) -> str:
        if self.plan is None or isinstance(self.error, CorruptDataError | RecoveryNeededError | StaleReplicaError):
            return str(self.error).splitlines()[0] if self.error else ""
        return self.plan.explanation

    @property
    def exit_code(self) -> int:
        return self.error.exit_code if self.error else 0

    @property
    def name(self) -> str:
        return self.directory.name


def exit_code(entries: Iterable[Entry]) -> int:
    """Return the code of all failures if they share one, 1 if they differ, 0 if there is none."""
    return shared_exit_code(entry.exit_code for entry in entries)


def shared_exit_code(codes: Iterable[int]) -> int:
    """Return the code that all failures share, 1 if they differ, 0 if there is none."""
    failures = {code for code in codes if code}
    return failures.pop() if len(failures) == 1 else int(bool(failures))


# Configuration

_SOURCES = {
    Source.OPTION: "--config",
    Source.TOPIC_OVERRIDE: "topic override",
    Source.BROKER_OVERRIDE: "dynamic setting of the broker",
    Source.CLUSTER_DEFAULT: "dynamic default of all brokers",
    Source.BROKER_CONFIG: "static setting of the broker",
    Source.DEFAULT: "Kafka's default",
}
_ORIGINS = {None: "", "metadata-log": " in the cluster metadata", "bootstrap-server": ", says the live cluster"}


def policy_line(config: TopicConfig) -> str:
    """Return the policy, and unless it was given with --config also who says so."""
    setting = config.settings.get("cleanup.policy")
    if config.policy_text is None or setting is None or setting.source is Source.OPTION:
        return config.policy_text or "unknown"
    where = "--broker-config" if setting == Setting(source=Source.BROKER_CONFIG) else _SOURCES[setting.source]
    return f"{config.policy_text or 'none'} ({where}{_ORIGINS[setting.origin]})"


def config_fields(config: TopicConfig) -> dict[str, Any]:
    """Return every setting that counts under Kafka's name, with its value and where that is from."""
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
            return f"clean below offset {plan.first_dirty_offset}, dirty from there on"
        case Role.DIRTY:
            return f"between the first dirty offset {plan.first_dirty_offset} and {plan.first_uncleanable_offset}"
    match plan.bound:
        case Reason.OPEN_TRANSACTION:
            return f"a transaction is open from offset {plan.last_stable_offset}"
        case Reason.HIGH_WATERMARK:
            return f"not wholly below the high watermark {plan.high_watermark}"
        case Reason.MIN_COMPACTION_LAG:
            return f"it or one before it is younger than min.compaction.lag.ms {plan.config.min_compaction_lag_ms}"
    return f"at or above the first uncleanable offset {plan.first_uncleanable_offset}"


def clean_below_offset(plan: CleanPlan, segment: Segment) -> int | None:
    """Return where the dirty part of a dirty segment starts, None when it is dirty from its start."""
    straddles = segment.base_offset < plan.first_dirty_offset < plan.log.end_of(segment)
    return plan.first_dirty_offset if straddles and plan.role_of(segment) is Role.DIRTY else None


# JSON


def document(command: str, now_ms: int | None, **content: object) -> dict[str, Any]:
    """Return the one object that a command prints with --json."""
    clock = {} if now_ms is None else {"now_ms": now_ms}
    return {"version": VERSION, "command": command, **clock, **content}


def dumps(value: object) -> str:
    """Return JSON that any terminal can show: ASCII, and null for a number that JSON does not have."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def identity(directory: Path) -> dict[str, Any]:
    """Return the fields that say which partition an entry is about."""
    from kcompact.format.names import parse_directory

    parsed = parse_directory(directory.name)
    partition = parsed.topic_partition if parsed else None
    return {
        "topic": partition.topic if partition else None,
        "partition": partition.partition if partition else None,
        "directory": str(directory),
    }


def plan_entry(entry: Entry) -> dict[str, Any]:
    """Return what `plan` says of a partition."""
    fields: dict[str, Any] = identity(entry.directory) | dict.fromkeys(PLAN_FIELDS)
    plan = entry.plan
    if plan is not None:
        fields |= {
            "cleanup_policy": plan.config.policy_text,
            "config": config_fields(plan.config),
            "log_start_offset": plan.log.log_start_offset,
            "log_end_offset": plan.log.log_end_offset,
            "high_watermark": plan.high_watermark,
            "last_stable_offset": plan.last_stable_offset,
            "first_dirty_offset": plan.first_dirty_offset,
            "first_uncleanable_offset": plan.first_uncleanable_offset,
            "checkpoint_offset": plan.log.checkpoint_offset,
            "checkpoint_reset": plan.checkpoint_reset,
            "clean_bytes": plan.clean_bytes,
            "cleanable_bytes": plan.cleanable_bytes,
            "cleanable_ratio": plan.cleanable_ratio,
            "kafka_passes_at_most": kafka_passes_at_most(plan),
            "max_compaction_delay_ms": plan.max_compaction_delay_ms,
            "need_compaction_now": plan.need_compaction_now,
            "groups": [[segment.base_offset for segment in group] for group in plan.groups],
            "retention": [
                {
                    "base_offset": due.segment.base_offset,
                    "size_bytes": due.segment.size_bytes,
                    "reason": str(due.breach),
                    "postponed_by_merge": due.is_postponed,
                }
                for due in retention_outlook(plan)
            ],
        }
    return fields | {
        "eligible": plan is not None and plan.eligible and entry.error is None,
        "reason": str(entry.reason) if entry.reason else None,
        "explanation": entry.explanation,
        "segments": _segments(entry),
        "groups": fields["groups"] or [],
        "notes": list(plan.log.notes) if plan else [],
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def retention_outlook(plan: CleanPlan) -> tuple[Outlook, ...]:
    """Return which segments of a compacted topic a broker would delete after the cleaning."""
    if not plan.config.compacts or plan.log.damage:
        return ()
    return outlook(plan.log, plan.groups, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)


def inspect_entry(entry: Entry) -> dict[str, Any]:
    """Return what `inspect` says of a partition: the plan, the contents of each segment, and the findings."""
    fields = plan_entry(entry)
    log = entry.plan.log if entry.plan else None
    fields["leftovers"] = [*log.leftovers, *log.staging] if log else []
    fields["deleted"] = list(log.deleted) if log else []
    fields["foreign"] = list(log.foreign) if log else []
    fields["findings"] = None if entry.findings is None else [finding(each) for each in entry.findings]
    return fields


def clean_entry(entry: Entry) -> dict[str, Any]:
    """Return what `clean` did with a partition."""
    fields = plan_entry(entry) | dict.fromkeys(CLEAN_FIELDS)
    fields["status"] = "failed" if entry.result is None else str(entry.result.status)
    fields["recovered"] = entry.recovered
    if entry.result is not None:
        fields |= asdict(entry.result.stats)
        fields["end_offset"] = entry.result.end_offset
        if entry.plan is not None and entry.result.end_offset is not None:
            map_keys = entry.result.stats.map_keys
            fields["kafka_passes_at_most"] = kafka_passes_at_most(entry.plan, map_keys=map_keys)
            fields["kafka_passes_at_least"] = kafka_passes_at_least(entry.plan, map_keys=map_keys)
        fields["engine"] = entry.result.engine
        fields["elapsed_s"] = round(entry.result.elapsed_s, 3)
        fields["deleted_segments"] = [
            {
                "base_offset": gone.segment.base_offset,
                "size_bytes": gone.segment.size_bytes,
                "reason": str(gone.breach),
            }
            for gone in entry.result.expired
        ]
    return fields


def _segments(entry: Entry) -> list[dict[str, Any]]:
    plan = entry.plan
    if plan is None:
        return []
    described = [_segment(plan, segment) for segment in plan.log.segments]
    if entry.survey is not None:
        for fields, contents in zip(described, entry.survey.segments, strict=True):
            fields |= survey_fields(contents)
    return described


def _segment(plan: CleanPlan, segment: Segment) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "size_bytes": segment.size_bytes,
        "role": str(plan.role_of(segment)),
        "role_reason": role_reason(plan, segment),
        "clean_below_offset": clean_below_offset(plan, segment),
        "first_timestamp_ms": segment.first_batch_max_timestamp_ms,
        "largest_timestamp_ms": segment.largest_timestamp_ms,
        "last_modified_ms": segment.last_modified_ms,
    }


def survey_fields(contents: SegmentSurvey) -> dict[str, Any]:
    """Return the counts of one segment."""
    return {name: getattr(contents, name) for name in SURVEY_FIELDS}


def finding(found: Finding) -> Mapping[str, Any]:
    """Return a finding as JSON has it."""
    return asdict(found) | {"severity": str(found.severity)}
