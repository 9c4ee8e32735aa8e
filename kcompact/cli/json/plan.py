"""The JSON of `plan`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    TEXT,
    Document,
    Field,
    Shape,
    ValueKind,
    choice,
    list_of,
    nullable,
)
from kcompact.cli.json.partitions import (
    ERROR,
    HELD_BACK,
    LEFT_OUT_DIRECTORIES,
    NOTES,
    NOW_MS,
    PLANNED,
    REPLICAS,
    SEGMENTS,
    WITH_REPLICA,
)
from kcompact.plan.conditions import Verdict
from kcompact.plan.explanation import SettingsComparison, Totals, total
from kcompact.plan.forecast import How
from kcompact.plan.verdict import ConditionName

if TYPE_CHECKING:
    from kcompact.config.settings import Override

WITH_EXPLAIN = "with `--explain`"
WITH_COMPARE = "with `--compare`"

VALUE = ValueKind({"type": ["string", "number", "boolean"]})

ENTRY = Shape("planned-entry", PLANNED, SEGMENTS, ERROR)

# What `--explain` adds

REMEDY = Shape(
    "change-of-setting",
    Field("name", TEXT, "the setting"),
    Field("value", VALUE, "its last value that is enough"),
    Field("rounded", STRING, "a value to type, as text"),
    Field("at_append", BOOLEAN, "whether the setting works only at the next record"),
    Field("makes_eligible", BOOLEAN, "whether with it alone the partition is cleaned"),
    Field("obstacle", nullable(STRING), "why it is not, else null"),
    Field("price", nullable(STRING), "what it costs as long as it stays, null if nothing"),
)

CONDITION = Shape(
    "condition",
    Field("name", choice(ConditionName), "of the row of the table that `--explain` prints"),
    Field("value", nullable(VALUE), "what the condition compares; null where there is none"),
    Field("threshold", nullable(VALUE), "what the value is compared with; null where there is none"),
    Field("verdict", choice(Verdict), "what the condition does to the partition"),
    Field("decides", BOOLEAN, "whether this condition is why the partition is cleaned or not"),
    Field(
        "assumed",
        list_of(STRING),
        "the settings of this condition that are only assumed",
    ),
    Field("explanation", STRING, "the verdict as a sentence"),
    Field(
        "setting",
        nullable(REMEDY),
        "the change of a setting that alters the verdict; null if there is none",
        "remedy",
    ),
    Shape(
        "change",
        Field(
            "changes_at_ms",
            INTEGER,
            "when the verdict changes without one; null if it does not, or if it cannot be foreseen",
            "at_ms",
        ),
        Field("how", choice(How), "how it does; null if it does not, or if it cannot be foreseen"),
    ).within("forecast", or_null=True),
)

FORECAST = Shape(
    "forecast",
    Field("at_ms", INTEGER, "when"),
    Field("how", choice(How), "how"),
    Field("explanation", STRING, "why"),
)

GROWTH = Shape(
    "growth",
    Field("size_bytes", INTEGER, "so many bytes"),
    Field("segments", INTEGER, "in so many segments"),
    Field("since_ms", INTEGER, "came from this time on"),
    Field("duration_ms", INTEGER, "in so much time"),
)

BROKER_COST = Shape(
    "broker-cost",
    Field("passes_at_most", nullable(INTEGER), "null if the cleaner might never finish"),
    Field("buffer_bytes", INTEGER, "the setting"),
    Field("threads", INTEGER, "the setting"),
    Field(
        "load_factor",
        nullable(NUMBER),
        "the setting; null if it is no finite number",
        lambda cost: cost.load_factor if math.isfinite(cost.load_factor) else None,
    ),
    Field("keys_per_pass", INTEGER, "how many keys fill the map of a thread"),
    Field("keys_at_most", INTEGER, "how many keys the cleanable section may have"),
    Field("buffer_utilization", NUMBER, "the share of the map that these take"),
    Field("buffer_bytes_for_one_pass", nullable(INTEGER), "null if no buffer is enough"),
    Field("bytes_rewritten", INTEGER, "the segments that are rewritten"),
    Field("bytes_read_and_written", INTEGER, "what the throttle counts"),
    Field("seconds_throttled", nullable(NUMBER), "null without a throttle"),
)

COST_HERE = Shape(
    "cost-here",
    Field("log_bytes_read", INTEGER, "`map_bytes_read` and `bytes_read` of the cleaning together"),
    Field("bytes_written_at_most", INTEGER, "of the new segments"),
    Field("peak_extra_disk_bytes", INTEGER, "the space needed meanwhile"),
    Field("least_extra_disk_bytes", INTEGER, "the space needed with one group after the other"),
)

RETENTION = Shape(
    "retention",
    Field("comes_first", BOOLEAN, "before the cleaning, because a broker cleans another log before this one"),
    Field("is_at_most", BOOLEAN, "a cleaning comes first, and `retention.bytes` may spare some"),
    Field("segments", INTEGER, "that a broker deletes"),
    Field("size_bytes", INTEGER, "the bytes of these"),
    Field("postponed_segments", INTEGER, "that a merge keeps"),
    Field("postponed_bytes", INTEGER, "the bytes of these"),
    Field("next_due_ms", nullable(INTEGER), "when the next segment is due; null if none becomes due by itself"),
)

EXPLANATION = Shape(
    "explanation",
    Field("decided_by", choice(ConditionName), "the condition that decides"),
    Field(
        "changes_at_ms",
        nullable(INTEGER),
        "when the partition becomes eligible; null if it is, or if it cannot be foreseen",
    ),
    Field(
        "forecasts", list_of(FORECAST), "all forecasts of that; empty if it is eligible, or if it cannot be foreseen"
    ),
    Field(
        "change_by_setting",
        nullable(REMEDY),
        "the change of a setting that makes the partition eligible, null if there is none",
    ),
    Field("other_settings", list_of(REMEDY), "other changes", "other_remedies"),
    Field(
        "missing_dirty_bytes",
        nullable(INTEGER),
        "how many more dirty bytes would lift the ratio above the minimum; null if none do",
    ),
    Field("growth", nullable(GROWTH), "how the log has grown; null if its segments do not tell"),
    Field("conditions", list_of(CONDITION), "what Kafka's cleaner asks, in its order"),
    Field("broker", BROKER_COST, "what the cleaning costs a broker"),
    Field("here", COST_HERE, "what the cleaning costs kcompact"),
    Field("retention", RETENTION, "what a broker deletes as whole segments"),
)

REASON_TOTALS = Shape(
    "reason-totals",
    Field("reason", STRING, "the verdict, or `error`"),
    Field("eligible", BOOLEAN, "whether these partitions are cleaned"),
    Field("partitions", INTEGER, "how many partitions have it"),
    Field("size_bytes", nullable(INTEGER), "null if none of them has a plan"),
    Field(
        "bytes_to_win_at_most",
        nullable(INTEGER),
        "the bytes that a cleaning of their cleanable sections would rewrite; null if none of them has a plan",
    ),
    Field(
        "bytes_to_win_later_at_most",
        nullable(INTEGER),
        "the same of partitions that are held back, else 0; null if none of them has a plan",
    ),
)

BUFFER = Shape(
    "buffer",
    Field("directory", TEXT, "which partition", "plan.log.directory"),
    Field("keys_at_most", INTEGER, "as in `explain.broker`", "broker.keys_at_most"),
    Field("keys_per_pass", INTEGER, "as in `explain.broker`", "broker.keys_per_pass"),
    Field(
        "buffer_bytes_for_one_pass",
        nullable(INTEGER),
        "as in `explain.broker`",
        "broker.buffer_bytes_for_one_pass",
    ),
)

# What `--compare` adds

OUTLOOK = Shape(
    "outlook",
    Field("cleanup_policy", nullable(STRING), "as of the partition"),
    Field("eligible", BOOLEAN, "as of the partition"),
    Field("reason", TEXT, "as of the partition"),
    Field("decided_by", TEXT, "as in `explain`"),
    Field("cleanable_ratio", NUMBER, "as of the partition"),
    Field("first_uncleanable_offset", INTEGER, "as of the partition"),
    Field("cleanable_bytes", INTEGER, "as of the partition"),
    Field("bytes_rewritten", INTEGER, "the segments that are rewritten"),
    Field("groups", INTEGER, "how many segments these become"),
    Field("kafka_passes_at_most", nullable(INTEGER), "as `passes_at_most` in `explain.broker`"),
    Field("kafka_seconds_throttled", nullable(NUMBER), "as `seconds_throttled` in `explain.broker`"),
    Field(
        "delete_horizon_ms",
        nullable(INTEGER),
        "of a tombstone that a cleaning now keeps; null if it is beyond all times",
    ),
    Field(
        "rolls_from_ms",
        nullable(INTEGER),
        "the time of the record that closes the active segment; null without one",
    ),
    Field("eligible_from_ms", nullable(INTEGER), "null if that cannot be foreseen"),
    Field("retention_bytes", INTEGER, "that a broker deletes"),
)

COMPARISON = Shape(
    "comparison",
    Field("today", OUTLOOK, "what depends on the settings"),
    Field("changed", OUTLOOK, "the same with the changed settings"),
    Field("differs", list_of(STRING), "the names of the fields that differ", "differences"),
)

TOTALS = Shape(
    "comparison-totals",
    Field("to_clean", INTEGER, "the eligible partitions"),
    Field("cleanable_bytes", INTEGER, "of these"),
    Field("bytes_rewritten", INTEGER, "of these"),
    Field("retention_bytes", INTEGER, "of all partitions"),
)


class Compared(NamedTuple):
    """The changed settings, and what they change of each partition."""

    settings: Sequence[Override]
    comparisons: Sequence[SettingsComparison]

    @property
    def partitions_that_differ(self) -> int:
        return sum(bool(each.differences) for each in self.comparisons)

    @property
    def today(self) -> Totals:
        return total([each.today for each in self.comparisons])

    @property
    def changed(self) -> Totals:
        return total([each.changed for each in self.comparisons])


COMPARISONS = Shape(
    "comparisons",
    Field("settings", list_of(TEXT), "the changed settings"),
    Field("partitions_that_differ", INTEGER, "how many partitions differ"),
    Field("today", TOTALS, "sums"),
    Field("changed", TOTALS, "sums with the changed settings"),
)

# The document


def _detail(name: str) -> Callable[[Any], Any]:
    return lambda answer: getattr(answer.found, name, None)


PLAN = Document(
    "plan",
    NOW_MS,
    NOTES,
    Field(
        "partitions",
        list_of(
            Shape(
                "partition",
                ENTRY,
                REPLICAS,
                Field(
                    "held_back_at_most",
                    nullable(HELD_BACK),
                    "what the cleaning holds back at most; null if no replica lags, if the partition is not to be "
                    "cleaned, and where damage prevents the counting",
                    _detail("held_back"),
                    given=WITH_REPLICA,
                ),
                Field(
                    "explain", nullable(EXPLANATION), "null without a plan", _detail("explanation"), given=WITH_EXPLAIN
                ),
                Field(
                    "compare",
                    nullable(COMPARISON),
                    "null without a plan, and of the metadata log",
                    _detail("comparison"),
                    given=WITH_COMPARE,
                ),
            )
        ),
        "an object for each partition",
    ),
    Field("reasons", list_of(REASON_TOTALS), "the partitions by verdict", given=WITH_EXPLAIN),
    Field(
        "buffer",
        nullable(BUFFER),
        "the partition that may have most keys to clean; null if nothing is cleanable",
        given=WITH_EXPLAIN,
    ),
    Field("compare", COMPARISONS, "the comparison of all partitions", given=WITH_COMPARE),
    LEFT_OUT_DIRECTORIES,
)
