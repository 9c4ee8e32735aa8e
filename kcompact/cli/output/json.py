"""The reports of the commands as JSON.

The field names are stable; `docs/json.md` lists them. `VERSION` rises when a field is removed or gets another meaning.
Every entry has all fields of its command; unknown values are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cleaner.outcome import Copied, PartitionOutcome
from kcompact.cli.entries import FileEntry, InspectedPartition, RecoveryEntry, RestoreEntry
from kcompact.cli.output.explanations import clean_below_offset, role_reason
from kcompact.config.settings import config_fields
from kcompact.notes import Note
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import plan_forecast, reason_to_roll
from kcompact.plan.discovery import LeftOut
from kcompact.plan.partition import hint_for
from kcompact.plan.passes import kafka_passes_at_least, kafka_passes_at_most
from kcompact.plan.planned import PlannedPartition

if TYPE_CHECKING:
    from kcompact.cleaner.outcome import CleanResult
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


def note_fields(notes: Iterable[Note]) -> list[dict[str, str]]:
    """Return notes as JSON has them: the code for programs, the text for people."""
    return [{"code": note.code, "text": note.text} for note in notes]


def known(number: int | None) -> int | None:
    """Return a number that is never negative, None for -1: no timestamp, offset or epoch."""
    return None if number == -1 else number


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
        "notes": note_fields(entry.plan.log.notes) if entry.plan else [],
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
    """Return what `inspect` found in a partition: the plan, and the contents of each segment."""
    fields = plan_entry(entry)
    log = entry.plan.log if entry.plan else None
    fields["leftovers"] = [*log.leftovers, *log.staging] if log else None
    fields["deleted"] = list(log.deleted) if log else None
    fields["foreign"] = list(log.foreign) if log else None
    return fields


def verify_entry(entry: InspectedPartition) -> dict[str, Any]:
    """Return what `verify` found in a partition: what `inspect` shows, and the findings."""
    return inspect_entry(entry) | {"findings": _findings(entry.findings)}


def history_entry(entry: InspectedPartition, **found: dict[str, Any] | None) -> dict[str, Any]:
    """Return what `gaps`, `transactions` or `keys` found in a partition. Null: it could not be read."""
    return identity_fields(entry.directory) | {
        **found,
        "notes": note_fields(entry.plan.log.notes) if entry.plan else [],
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def clean_entry(entry: PartitionOutcome) -> dict[str, Any]:
    """Return what `clean` did with a partition."""
    fields = plan_entry(entry) | dict.fromkeys(CLEAN_FIELDS)
    fields["status"] = entry.status
    fields["recovered"] = entry.recovered
    if entry.result is not None:
        if entry.plan is not None and entry.is_cleaned:
            fields |= _counted_fields(entry.plan, entry.result)
        fields["notes"] += note_fields(entry.result.notes)
        fields["resumed"] = entry.result.resumed
        fields["deleted_segments"] = [_deleted_segment(due.segment, due.reason) for due in entry.result.expired]
    return fields


def _counted_fields(plan: CleanPlan, result: CleanResult) -> dict[str, Any]:
    """Return what a cleaning, or a dry run, has counted."""
    map_keys = result.stats.map_keys
    return asdict(result.stats) | {
        "end_offset": result.end_offset,
        "kafka_passes_at_most": kafka_passes_at_most(plan, map_keys=map_keys),
        "kafka_passes_at_least": kafka_passes_at_least(plan, map_keys=map_keys),
        "engine": result.engine,
        "elapsed_s": round(result.times.elapsed_s, 3),
    }


def copy_fields(copied: Copied) -> dict[str, Any]:
    """Return what `clean --output` did as a whole."""
    report = copied.report
    return {
        "output": str(report.path),
        "log_dir": None if report.log_dir is None else str(report.log_dir),
        "is_finished": report.is_finished,
        "missing": list(report.missing),
        "set_aside": list(report.set_aside),
        "not_copied": [asdict(left_out) for left_out in report.left_out],
        "error": str(copied.error) if copied.error else None,
        "exit_code": copied.exit_code,
    }


def recovery_entry(entry: RecoveryEntry) -> dict[str, Any]:
    """Return what `recover` did with a partition. Without a report its fields are null."""
    report = entry.report
    return identity_fields(entry.directory) | {
        "status": entry.status,
        "finished": report and report.finished,
        "undone": report and report.undone,
        "checkpoint_offset": report and report.checkpoint,
        "removed_staging": report and report.removed_staging,
        "left_behind": report and report.left_behind,
        "broker_files": report and report.broker_files,
        "only_copies": report and report.only_copies,
        "error": str(entry.error) if entry.error else None,
        "exit_code": entry.exit_code,
    }


def restore_entry(entry: RestoreEntry) -> dict[str, Any]:
    """Return what `restore` did with a partition."""
    return identity_fields(entry.directory) | {
        "status": entry.status,
        "files": entry.files,
        "size_bytes": entry.size_bytes,
        "checkpoint_offset": entry.checkpoint,
        "not_restored": entry.not_restored,
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


def _segments(entry: PlannedPartition) -> list[dict[str, Any]] | None:
    plan = entry.plan
    if plan is None:
        return None
    described = [_segment(plan, segment) for segment in plan.log.segments]
    if isinstance(entry, InspectedPartition):
        found = entry.contents.segments if entry.contents else [None] * len(described)
        for fields, contents in zip(described, found, strict=True):
            fields |= contents_fields(contents)
    return described


def _segment(plan: CleanPlan, segment: Segment) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "size_bytes": segment.size_bytes,
        "role": str(plan.role_of(segment)),
        "role_reason": role_reason(plan, segment),
        "clean_below_offset": clean_below_offset(plan, segment),
        "first_timestamp_ms": known(segment.first_batch_max_timestamp_ms),
        "largest_timestamp_ms": segment.largest_timestamp_ms,
        "last_modified_ms": segment.last_modified_ms,
    }


def contents_fields(contents: SegmentContents | None) -> dict[str, Any]:
    """Return the counts of one segment. They are null if nothing could be counted."""
    if contents is None or (contents.damage is not None and not contents.batches):
        return dict.fromkeys(CONTENTS_FIELDS)
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
