"""The fields of partitions that several commands have in JSON: which one, its plan, its segments, its error."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from kcompact.cli.json.fields import (
    ANY,
    BOOLEAN,
    INTEGER,
    KNOWN_OR_NULL,
    NUMBER,
    STRING,
    TEXT,
    Field,
    Shape,
    ValueKind,
    choice,
    list_of,
    map_of,
    nullable,
)
from kcompact.config.settings import Source, config_fields
from kcompact.format.names import TopicPartition, parse_directory
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, Role
from kcompact.plan.deletion import RetentionReason, plan_forecast, reason_to_roll
from kcompact.plan.discovery import LeftOutKind
from kcompact.plan.partition import hint_for
from kcompact.plan.replicas import OtherReplica
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition
from kcompact.release import RELEASES, ReleaseSource
from kcompact.remarks import RemarkCode
from kcompact.views.sentences import clean_below_offset, role_reason

# Which partition, and its error


def _partition_of(entry: PlannedPartition) -> TopicPartition | None:
    parsed = parse_directory(entry.directory.name)
    return parsed.topic_partition if parsed else None


IDENTITY = Shape(
    "identity",
    Shape(
        "topic-partition",
        Field("topic", STRING, "null if the name of the directory is that of no partition"),
        Field("partition", INTEGER, "null if the name of the directory is that of no partition"),
    ).within(_partition_of, or_null=True),
    Field("directory", TEXT, "absolute"),
)

ERROR = Shape(
    "error",
    Field("error", nullable(TEXT), "the error of this partition or file; null without one"),
    Field("exit_code", INTEGER, "the exit code of this error; 0 without one"),
)


NOTE = Shape(
    "note",
    Field(
        "code", choice(tuple(code for code in RemarkCode if code.is_note)), "what the note is about; it never changes"
    ),
    Field("text", STRING, "the note in words"),
)


# The plan


ORIGINS = ("bootstrap-server", "topic-configs", "metadata-log", "internal-topic")
"""Where the settings of topics and brokers come from; the last one is what Kafka creates its own topics with."""

CONFIG_VALUE = Shape(
    "setting",
    Field("value", ANY, 'null when it is unknown. -1 is Kafka\'s "no limit" of some settings'),
    Field("source", nullable(choice(Source)), "null when the value is unknown"),
    Field(
        "origin",
        nullable(choice(ORIGINS)),
        "null for options, the broker's file and Kafka's defaults",
    ),
    reads=itemgetter,
)

DELETED_SEGMENT = Shape(
    "deleted-segment",
    Field("base_offset", INTEGER, "which segment", "segment.base_offset"),
    Field("size_bytes", INTEGER, "the size of its `.log`", "segment.size_bytes"),
    Field("reason", choice(RetentionReason), "why a broker would delete it"),
)

RETENTION_SEGMENT = Shape(
    "retention-segment",
    DELETED_SEGMENT,
    Field(
        "postponed_by_merge",
        BOOLEAN,
        "whether the cleaning merges it into a segment that is not due",
        "is_postponed",
    ),
)

PLAN = Shape(
    "plan",
    Field(
        "cleanup_policy",
        nullable(STRING),
        "`compact`, `delete`, `compact,delete`, or empty; null when it is unknown",
        "config.policy_text",
    ),
    Field(
        "config",
        map_of(CONFIG_VALUE),
        "every setting that kcompact uses, by Kafka's name",
        lambda plan: config_fields(plan.config),
    ),
    Field(
        "assumed",
        list_of(STRING),
        "the names of the settings of which the topic or the broker may have other values, because nothing was read",
        "config.assumed",
    ),
    Field(
        "own_settings",
        nullable(choice(ORIGINS)),
        "the source that has what the topic overrides; null if none has, so that it is unknown",
        "config.own.origin",
    ),
    Field(
        "broker_config",
        nullable(STRING),
        "the file with the broker's static settings: of `--broker-config`, or "
        "found; words for the environment; null without one",
        "config.broker.origin",
    ),
    Field("kafka_release", choice(tuple(RELEASES)), "the release of Kafka whose rules hold", "config.release.name"),
    Field("kafka_release_source", choice(ReleaseSource), "how it is known", "config.release_source"),
    Field(
        "broker_release",
        nullable(STRING),
        "the release of the broker as far as its files tell it, such as `3.7` or `3.9 or older`; null if they do not, "
        "or if `--kafka-release` was passed",
        "config.broker_release",
    ),
    Field("log_start_offset", INTEGER, "as a broker would have it after loading the log", "log.log_start_offset"),
    Field("log_end_offset", INTEGER, "as a broker would have it after loading the log", "log.log_end_offset"),
    Field("high_watermark", INTEGER, "as a broker would have it after loading the log"),
    Field("last_stable_offset", INTEGER, "as a broker would have it after loading the log"),
    Field("first_dirty_offset", INTEGER, "where the dirty section starts"),
    Field("first_uncleanable_offset", INTEGER, "where cleaning must stop"),
    Field(
        "checkpoint_offset",
        nullable(INTEGER),
        "the entry of `cleaner-offset-checkpoint`; null without one",
        "log.checkpoint_offset",
    ),
    Field("checkpoint_reset", BOOLEAN, "true when that offset is outside the log and is ignored"),
    Field("clean_bytes", INTEGER, "the size of the clean section"),
    Field("cleanable_bytes", INTEGER, "the size of the cleanable section"),
    Field("cleanable_ratio", NUMBER, "the share of the cleanable section in both"),
    Field("max_compaction_delay_ms", INTEGER, "how far the oldest dirty segment is past `max.compaction.lag.ms`"),
    Field("need_compaction_now", BOOLEAN, "whether it is past that"),
    Field(
        "hint",
        nullable(STRING),
        "what to pass so that a partition with the reason `policy-unknown` or `internal` is cleaned, or what to do "
        "with `unclean-shutdown` or `recovery-point`; else null",
        lambda plan: hint_for(plan) or None,
    ),
    Field(
        "groups",
        list_of(list_of(INTEGER)),
        "the base offsets of the segments that become one, a list for each output segment",
        lambda plan: [[segment.base_offset for segment in group] for group in plan.groups],
    ),
    Field(
        "retention",
        list_of(RETENTION_SEGMENT),
        "segments that a broker would delete, of the partition that it cleans first after the cleaning",
        plan_forecast,
    ),
    Field(
        "retention_of_active",
        nullable(choice(RetentionReason)),
        "why a broker would roll the active segment and delete it too; null when it would keep it",
        reason_to_roll,
    ),
    meaning="These are null for a partition without a plan.",
)

PARTITION_NOTES = Field(
    "notes",
    list_of(NOTE),
    "assumptions and remarks on this partition; of `clean` also a staging directory that could not be removed in the "
    "end",
)

VERDICT = Shape(
    "verdict",
    Field("eligible", BOOLEAN, "whether it is cleaned", "is_eligible"),
    Field(
        "reason",
        nullable(choice(Reason)),
        "the verdict; null for a partition that is locked, unreadable or missing",
    ),
    Field("explanation", STRING, "the verdict as a sentence"),
    Field(
        "kafka_passes_at_most",
        nullable(INTEGER),
        "the greatest number of passes that Kafka's own cleaner may need; 0 with nothing cleanable, "
        "null where it might never finish",
    ),
    PARTITION_NOTES,
)

PLANNED = Shape("planned-partition", IDENTITY, PLAN.within("plan", or_null=True), VERDICT)


# Replicas of other brokers

WITH_REPLICA = "with `--replica`"


class PlannedReplica(NamedTuple):
    """A replica of a partition, and the plan of the partition."""

    plan: CleanPlan
    replica: OtherReplica


REPLICA = Shape(
    "replica",
    Field("path", TEXT, "its directory, or the directory that has no replica of this partition", "replica.path"),
    Field("end_offset", nullable(INTEGER), "its log end; null without a replica", "replica.end_offset"),
    Field(
        "fetches_from_offset",
        nullable(INTEGER),
        "where it begins to fetch: less than its log end if it is truncated first; null without a replica",
        "replica.fetches_from_offset",
    ),
    Field(
        "lags",
        BOOLEAN,
        "whether it still has to fetch from this log, so that something is held back for it",
        lambda each: each.replica.lags_behind(each.plan.log.log_end_offset),
    ),
)


REPLICAS = Shape(
    "replicas",
    Field(
        "replicas",
        nullable(list_of(REPLICA)),
        "one for each `--replica`; null without a plan",
        lambda entry: [PlannedReplica(entry.plan, each) for each in entry.plan.replicas] if entry.plan else None,
        given=WITH_REPLICA,
    ),
    Field(
        "held_back_from_offset",
        nullable(INTEGER),
        "tombstones and markers stay in batches that end at or above it; null if no replica lags",
        lambda entry: entry.plan.held_back_from_offset if entry.plan else None,
        given=WITH_REPLICA,
    ),
)

HELD_BACK = Shape(
    "held-back",
    Field("tombstones", INTEGER, "tombstones whose delete horizons have passed"),
    Field("markers", INTEGER, "transaction markers whose delete horizons have passed"),
)


# Segments


class PlannedSegment(NamedTuple):
    """A segment, and the plan that gives it a role."""

    plan: CleanPlan
    segment: Segment


SEGMENT = Shape(
    "segment",
    Field("base_offset", INTEGER, "as in the name of the `.log`", "segment.base_offset"),
    Field("size_bytes", INTEGER, "of the `.log`", "segment.size_bytes"),
    Field("role", choice(Role), "what the plan makes of it", lambda each: each.plan.role_of(each.segment)),
    Field("role_reason", STRING, "why", lambda each: role_reason(each.plan, each.segment)),
    Field(
        "clean_below_offset",
        nullable(INTEGER),
        "where the dirty part of a dirty segment starts; null when it is dirty from its start",
        lambda each: clean_below_offset(each.plan, each.segment),
    ),
    Field(
        "first_timestamp_ms",
        KNOWN_OR_NULL,
        "the greatest timestamp of the first batch, from which Kafka derives the segment's age; null if it has none",
        "segment.first_batch_max_timestamp_ms",
    ),
    Field(
        "largest_timestamp_ms",
        INTEGER,
        "the last entry of the time index, or the file's time if there is none; the planner uses this time",
        "segment.largest_timestamp_ms",
    ),
    Field("last_modified_ms", INTEGER, "of the `.log`", "segment.last_modified_ms"),
)


def planned_segments(entry: PlannedPartition) -> list[PlannedSegment] | None:
    """Return the segments of a partition in the order of their offsets, None without a plan."""
    plan = entry.plan
    return None if plan is None else [PlannedSegment(plan, segment) for segment in plan.log.segments]


SEGMENTS = Field(
    "segments",
    nullable(list_of(SEGMENT)),
    "the segments, in the order of their offsets; null without a plan",
    planned_segments,
)


# A directory that is left out

LEFT_OUT = Shape(
    "left-out",
    Field("directory", TEXT, "which directory"),
    Field("kind", choice(LeftOutKind), "what it is"),
    Field("size_bytes", nullable(INTEGER), "null if it is unreadable or has too many files"),
)


def answer(name: str, kind: ValueKind) -> Field:
    """Return the partitions of a command that answers one question about each, with the answer under its name."""
    partition = Shape(
        "partition",
        IDENTITY,
        Field(name, nullable(kind), "null for a partition that could not be read", "found"),
        PARTITION_NOTES,
        ERROR,
    )
    return Field("partitions", list_of(partition), "an object for each partition")


WITH_FILES = "if single files are among the arguments"

NOW_MS = Shape("time", Field("now_ms", INTEGER, "the time as of which the command decided"), reads=itemgetter)
NOTES = Shape("notes", Field("notes", list_of(NOTE), "remarks on the whole run"), reads=itemgetter)
LEFT_OUT_DIRECTORIES = Shape(
    "left-out-directories",
    Field("left_out", list_of(LEFT_OUT), "the directories that are not partitions"),
    reads=itemgetter,
)
