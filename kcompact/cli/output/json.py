"""What the commands found and did, as values: one entry per partition, and the JSON that describes it.

The field names are a contract, `docs/cli.md`; `VERSION` rises when one changes its meaning or goes. Every entry has
all fields of its command; what could not be known is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli.entries import Entry
from kcompact.cli.output.explanations import clean_below_offset, config_fields, plan_forecast, role_reason
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.passes import kafka_passes_at_least, kafka_passes_at_most

if TYPE_CHECKING:
    from kcompact.inspect.contents import SegmentContents
    from kcompact.inspect.findings import Finding
    from kcompact.log.directory import Segment


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
                    "reason": str(due.reason),
                    "postponed_by_merge": due.is_postponed,
                }
                for due in plan_forecast(plan)
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
                "reason": str(gone.reason),
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


def survey_fields(contents: SegmentContents) -> dict[str, Any]:
    """Return the counts of one segment."""
    return {name: getattr(contents, name) for name in SURVEY_FIELDS}


def finding(found: Finding) -> Mapping[str, Any]:
    """Return a finding as JSON has it."""
    return asdict(found) | {"severity": str(found.severity)}
