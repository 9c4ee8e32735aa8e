"""Notes and hints for the user on a whole run: settings without effect, a doubtful time, topics that need an option."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kcompact.config.settings import is_used, unknown_cleaner_names
from kcompact.format.names import parse_directory
from kcompact.host.clock import clock_ms
from kcompact.plan.clean_plan import Reason
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import INCLUDE_INTERNAL, hint_for
from kcompact.plan.planned import PlannedPartition
from kcompact.readable import counted, time

_DAY_MS = 86_400_000
_MAX_NAMED_TOPICS = 5


def option_notes(directories: Sequence[Path], options: PlanOptions) -> list[str]:
    """Return a note for each setting that has no effect."""
    topics = {parsed.topic_partition.topic for path in directories if (parsed := parse_directory(path.name))}
    notes = []
    for override in options.overrides:
        topic = f"{override.topic}:" if override.topic is not None else ""
        if override.topic is not None and override.topic not in topics:
            why = f"no partition of the topic {override.topic} is among the paths"
        elif not is_used(override.name):
            why = "cleaning does not depend on this setting"
        else:
            continue
        notes.append(f"--config {topic}{override.name}={override.value} has no effect: {why}")
    for name, close in unknown_cleaner_names(options.broker_properties).items():
        meant = f"; did you mean {close}?" if close else ""
        notes.append(f"{name} of --broker-config has no effect: Kafka has no such setting{meant}")
    return notes


def time_notes(partitions: Iterable[PlannedPartition], options: PlanOptions) -> list[str]:
    """Return a note if the time of the decisions is probably wrong: before the newest segment, or in the future."""
    segments = [(segment, each.name) for each in partitions if each.plan for segment in each.plan.log.segments]
    now, clock = time(options.now_ms), clock_ms()
    notes = []
    if options.by_clock:
        newest_ms, name = max(((segment.last_modified_ms, name) for segment, name in segments), default=(0, ""))
        # The clock has been read again, because a running broker may have written since the command began.
        if newest_ms > max(options.now_ms, clock):
            notes.append(
                f"the clock says {now}, but the newest segment of {name} was written at {time(newest_ms)}: "
                "if the clock is wrong, every age is wrong; --now sets the time"
            )
        return notes
    newest_ms, name = max(((segment.largest_timestamp_ms, name) for segment, name in segments), default=(0, ""))
    if newest_ms > options.now_ms:
        notes.append(
            f"--now is {now}, but the newest segment of {name} has the time {time(newest_ms)}: "
            "segments count as too young, and new delete horizons end too early"
        )
    if options.now_ms > clock + _DAY_MS:
        notes.append(
            f"--now is {now}, more than a day after the clock's {time(clock)}: "
            "tombstones and segments can be deleted too early"
        )
    return notes


def hints(partitions: Iterable[PlannedPartition]) -> list[str]:
    """Return how partitions without a policy and internal topics can be cleaned: one hint for all of each kind.

    A partition with an error has the hint in its error.
    """
    plans = [each.plan for each in partitions if each.plan is not None and each.error is None]
    unknown = sorted({plan.log.topic_partition.topic for plan in plans if plan.reason is Reason.POLICY_UNKNOWN})
    found = []
    if len(unknown) == 1:
        found.append(next(hint_for(plan) for plan in plans if plan.reason is Reason.POLICY_UNKNOWN))
    elif unknown:
        more = len(unknown) - _MAX_NAMED_TOPICS
        named = ", ".join(unknown[:_MAX_NAMED_TOPICS]) + (f" and {more:,} more" if more > 0 else "")
        found.append(
            f"The cleanup.policy of {len(unknown):,} topics is unknown: {named}. "
            "For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact"
        )
    internal = sum(hint_for(plan) == INCLUDE_INTERNAL for plan in plans)
    if internal:
        count = counted(internal, "partition")
        found.append(f"Not cleaned: {count} of Kafka's internal topics. Pass --include-internal to clean them too.")
    return found
