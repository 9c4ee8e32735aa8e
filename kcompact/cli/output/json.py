"""The reports of the commands as JSON.

The field names are stable; `docs/cli.md` describes them. `VERSION` rises when a field is removed or gets another
meaning.
Every entry has all fields of its command; unknown values are null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cleaner.outcome import Copied, PartitionOutcome
from kcompact.cli.entries import FileEntry, InspectedPartition, RecoveryEntry, RestoreEntry
from kcompact.cli.output.explanations import clean_below_offset, role_reason
from kcompact.config.settings import config_fields
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import plan_forecast, reason_to_roll
from kcompact.plan.discovery import LeftOut
from kcompact.plan.partition import hint_for
from kcompact.plan.passes import kafka_passes_at_least, kafka_passes_at_most
from kcompact.plan.planned import PlannedPartition

if TYPE_CHECKING:
    from kcompact.inspect.findings import Finding
    from kcompact.inspect.segment_contents import SegmentContents
    from kcompact.log.segments import Segment


VERSION = 1

IDENTITY_FIELDS = ("topic", "partition", "directory")

PLAN_FIELDS = (
    "cleanup_policy",
    "config",
    "assumed",
    "broker_config",
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
    "hint",
    "segments",
    "groups",
    "notes",
    "retention",
    "retention_of_active",
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
    "resumed",
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

CONTENTS_FIELDS = (
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


def document(command: str, now_ms: int | None, **content: object) -> dict[str, Any]:
    """Return the one object that a command prints with --json. Without `now_ms` it has no time."""
    clock = {} if now_ms is None else {"now_ms": now_ms}
    return {"version": VERSION, "command": command, **clock, **content}


def dumps(value: object) -> str:
    """Return JSON as ASCII. Raises ValueError for a number that JSON does not have."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


# A partition


def identity_fields(directory: Path) -> dict[str, Any]:
    """Return the fields that name the partition of an entry."""
    from kcompact.format.names import parse_directory

    parsed = parse_directory(directory.name)
    partition = parsed.topic_partition if parsed else None
    return {
        "topic": partition.topic if partition else None,
        "partition": partition.partition if partition else None,
        "directory": str(directory),
    }


def plan_entry(entry: PlannedPartition) -> dict[str, Any]:
    """Return the plan of a partition. Without a plan its fields are null."""
    fields: dict[str, Any] = identity_fields(entry.directory) | dict.fromkeys(PLAN_FIELDS)
    if entry.plan is not None:
        fields |= _plan_fields(entry.plan)
    return fields | {
        "eligible": entry.is_eligible,
        "reason": str(entry.reason) if entry.reason else None,
        "explanation": entry.explanation,
        "hint": (hint_for(entry.plan) or None) if entry.plan else None,
        "segments": _segments(entry),
        "groups": fields["groups"] or [],
        "notes": list(entry.plan.log.notes) if entry.plan else [],
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def _plan_fields(plan: CleanPlan) -> dict[str, Any]:
    return {
        "cleanup_policy": plan.config.policy_text,
        "config": config_fields(plan.config),
        "assumed": list(plan.config.assumed),
        "broker_config": plan.config.broker.origin,
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
            _deleted_segment(due.segment, due.reason) | {"postponed_by_merge": due.is_postponed}
            for due in plan_forecast(plan)
        ],
        "retention_of_active": str(reason) if (reason := reason_to_roll(plan)) else None,
    }


def _deleted_segment(segment: Segment, reason: object) -> dict[str, Any]:
    return {"base_offset": segment.base_offset, "size_bytes": segment.size_bytes, "reason": str(reason)}


def inspect_entry(entry: InspectedPartition) -> dict[str, Any]:
    """Return what `inspect` found in a partition: the plan, the contents of each segment, and the findings."""
    fields = plan_entry(entry)
    log = entry.plan.log if entry.plan else None
    fields["leftovers"] = [*log.leftovers, *log.staging] if log else []
    fields["deleted"] = list(log.deleted) if log else []
    fields["foreign"] = list(log.foreign) if log else []
    fields["findings"] = _findings(entry.findings)
    return fields


def clean_entry(entry: PartitionOutcome) -> dict[str, Any]:
    """Return what `clean` did with a partition."""
    fields = plan_entry(entry) | dict.fromkeys(CLEAN_FIELDS)
    fields["status"] = entry.status
    fields["recovered"] = entry.recovered
    if entry.result is not None:
        fields |= asdict(entry.result.stats)
        fields["end_offset"] = entry.result.end_offset
        if entry.plan is not None and entry.is_cleaned:
            map_keys = entry.result.stats.map_keys
            fields["kafka_passes_at_most"] = kafka_passes_at_most(entry.plan, map_keys=map_keys)
            fields["kafka_passes_at_least"] = kafka_passes_at_least(entry.plan, map_keys=map_keys)
        fields["notes"] += entry.result.notes
        fields["engine"] = entry.result.engine
        fields["resumed"] = entry.result.resumed
        fields["elapsed_s"] = round(entry.result.elapsed_s, 3)
        fields["deleted_segments"] = [_deleted_segment(due.segment, due.reason) for due in entry.result.expired]
    return fields


def copy_fields(copied: Copied) -> dict[str, Any]:
    """Return what `clean --output` did as a whole."""
    report = copied.report
    return {
        "output": str(report.path),
        "log_dir": None if report.log_dir is None else str(report.log_dir),
        "finished": report.is_finished,
        "missing": list(report.missing),
        "set_aside": list(report.set_aside),
        "left_out": [asdict(left_out) for left_out in report.left_out],
        "error": str(copied.error) if copied.error else None,
        "exit_code": copied.exit_code,
    }


def recovery_entry(entry: RecoveryEntry) -> dict[str, Any]:
    """Return what `recover` did with a partition."""
    report = entry.report
    return identity_fields(entry.directory) | {
        "status": entry.status,
        "finished": report.finished,
        "undone": report.undone,
        "checkpoint": report.checkpoint,
        "removed_staging": list(report.removed_staging),
        "left_behind": list(report.left_behind),
        "broker_files": list(report.broker_files),
        "only_copies": list(report.only_copies),
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def restore_entry(entry: RestoreEntry) -> dict[str, Any]:
    """Return what `restore` did with a partition."""
    return identity_fields(entry.directory) | {
        "status": entry.status,
        "files": entry.files,
        "size_bytes": entry.size_bytes,
        "checkpoint": entry.checkpoint,
        "left_out": list(entry.left_out),
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def left_out_fields(left_out: LeftOut) -> dict[str, Any]:
    """Return a directory that is left out of a log directory."""
    return {
        "directory": str(left_out.directory),
        "kind": str(left_out.kind),
        "size_bytes": left_out.size_bytes,
    }


# Segments, files and findings


def _segments(entry: PlannedPartition) -> list[dict[str, Any]]:
    plan = entry.plan
    if plan is None:
        return []
    described = [_segment(plan, segment) for segment in plan.log.segments]
    if isinstance(entry, InspectedPartition) and entry.contents is not None:
        for fields, contents in zip(described, entry.contents.segments, strict=True):
            fields |= contents_fields(contents)
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


def contents_fields(contents: SegmentContents) -> dict[str, Any]:
    """Return the counts of one segment."""
    return {name: getattr(contents, name) for name in CONTENTS_FIELDS}


def file_fields(entry: FileEntry) -> dict[str, Any]:
    """Return what `inspect` found in a single file."""
    return {
        "file": str(entry.path),
        "kind": entry.kind,
        "base_offset": entry.base_offset,
        "size_bytes": entry.size_bytes,
        "contents": None if entry.contents is None else contents_fields(entry.contents),
        "entries": entry.entries,
        "findings": _findings(entry.findings),
        "error": entry.error,
        "exit_code": entry.exit_code,
    }


def _findings(findings: Sequence[Finding] | None) -> list[dict[str, Any]] | None:
    """Return the findings, None if nothing was verified."""
    return None if findings is None else [asdict(finding) | {"severity": str(finding.severity)} for finding in findings]
