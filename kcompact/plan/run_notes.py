"""Notes and hints for the user on a whole run: options without effect, a doubtful time, topics that need an option."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from pathlib import Path

from kcompact import readable
from kcompact.bucket.mirror import Orphans
from kcompact.config.settings import LONG_MAX, Override, Source, TopicConfig, is_used
from kcompact.errors import RefusedError
from kcompact.host.machine import clock_ms
from kcompact.log.lock import holder_in_words
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import HOW_TO_KNOW_TOPICS, INCLUDE_INTERNAL, hint_for
from kcompact.plan.selection import MAX_NAMED, by_partition
from kcompact.plan.setting_notes import broker_file_notes, setting_doubts, wrong_name_notes
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition
from kcompact.readable import closest, counted, shell_word, shown, some_of, time
from kcompact.remarks import Note, RemarkCode

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


def option_notes(
    directories: Sequence[Path], options: PlanOptions, *, explains: bool = False, compared: Sequence[Override] = ()
) -> list[Note]:
    """Return a note for each setting that has no effect. `explains`: forecasts are made too, which depend on more."""
    topics = {partition.topic for partition in by_partition(directories)}
    notes = []
    configured = [("--config", override) for override in options.overrides]
    for option, override in (*configured, *(("--compare", override) for override in compared)):
        if override.topic is not None and not any(map(override.is_for, topics)):
            why = f"no partition of the topic {override.topic} is among the paths"
            close = closest(override.topic, topics)
            why += f"; did you mean {close}?" if close else ""
            if fnmatch.filter(topics, override.topic):
                why = "a pattern that is to match internal topics begins with __"
        elif not is_used(override.name, explains=explains or option == "--compare"):
            why = "cleaning does not depend on this setting"
        else:
            continue
        notes.append(Note.of(RemarkCode.UNUSED_SETTING, setting=f"{option} {override}", why=why))
    for pattern in options.topics:
        if not fnmatch.filter(topics, pattern):
            why = "no partition of such a topic is among the paths"
            notes.append(Note.of(RemarkCode.UNUSED_SETTING, setting=f"--topic {shown(pattern)}", why=why))
    numbers = {partition.partition for partition in by_partition(directories)}
    for number in sorted({*options.partitions} - numbers):
        why = "no partition of this number is among the paths"
        notes.append(Note.of(RemarkCode.UNUSED_SETTING, setting=f"--partition {number}", why=why))
    unseen = sorted((options.topic_configs or {}).keys() - topics)
    if unseen:
        why = f"no partition of them is among the paths: {some_of(list(map(shown, unseen)), at_most=MAX_NAMED)}"
        setting = f"--topic-configs for {counted(len(unseen), 'topic')}"
        notes.append(Note.of(RemarkCode.UNUSED_SETTING, setting=setting, why=why))
    given = options.broker_config
    return [*notes, *(() if given is None else wrong_name_notes(given))]


def plan_notes(partitions: Sequence[PlannedPartition], options: PlanOptions) -> list[Note]:
    """Return notes on the broker's file, and on why the plans may be wrong: a running broker, the time, defaults."""
    return [
        *broker_file_notes(partitions),
        *running_notes(partitions),
        *time_notes(partitions, options),
        *setting_doubts(partitions, options.overrides),
    ]


def running_notes(partitions: Iterable[PlannedPartition]) -> list[Note]:
    """Return a note for each log directory that a broker was running on when its partitions were read."""
    log_dirs = {each.plan.log.log_dir.path for each in partitions if each.plan and each.plan.log.log_dir.is_running}
    return [
        Note.of(RemarkCode.BROKER_RUNNING, log_dir=shown(log_dir), holder=shown(holder_in_words(log_dir)))
        for log_dir in sorted(log_dirs)
    ]


def require_plausible_clock(partitions: Iterable[PlannedPartition], options: PlanOptions) -> None:
    """Raise RefusedError if the clock gives the time, and a segment was written more than an hour later."""
    written = [
        (segment.last_modified_ms, each.directory)
        for each in partitions
        if each.plan is not None
        for segment in each.plan.log.segments
    ]
    newest_ms, directory = max(written, default=(0, Path()))
    if options.by_clock and newest_ms > options.now_ms + _HOUR_MS:
        raise RefusedError(
            path=directory,
            problem=f"its newest segment was written at {time(newest_ms)}, but the clock says {time(options.now_ms)}",
            hint="Nothing was changed: every age would be wrong. Set the clock, or give the time: --now TIME",
        )


def time_notes(partitions: Iterable[PlannedPartition], options: PlanOptions) -> list[Note]:
    """Return a note if the time of the decisions is probably wrong: before the newest segment, or in the future."""
    segments = [(segment, each.name) for each in partitions if each.plan for segment in each.plan.log.segments]
    now, clock = time(options.now_ms), clock_ms()
    notes = []
    if options.by_clock:
        newest_ms, name = max(((segment.last_modified_ms, name) for segment, name in segments), default=(0, ""))
        # The clock has been read again, because a running broker may have written since the command began.
        if newest_ms > max(options.now_ms, clock):
            notes.append(Note.of(RemarkCode.CLOCK_BEHIND_FILES, now=now, name=name, written=time(newest_ms)))
        return notes
    newest_ms, name = max(((segment.largest_timestamp_ms, name) for segment, name in segments), default=(0, ""))
    if newest_ms > options.now_ms:
        notes.append(Note.of(RemarkCode.NOW_BEFORE_RECORDS, now=now, name=name, newest=time(newest_ms)))
    if options.now_ms > clock + _DAY_MS:
        notes.append(Note.of(RemarkCode.NOW_AFTER_CLOCK, now=now, clock=time(clock)))
    return notes


def _hints_for_replicas(plans: Iterable[CleanPlan]) -> list[str]:
    """Return how to keep the brokers' own cleaners from dropping what is held back for replicas that lag."""
    # While a partition is being moved, its own broker's cleaner is paused.
    lagging = {
        plan.log.topic_partition.topic: plan
        for plan in plans
        if plan.config.compacts and not all(each.is_future for each in plan.lagging_replicas)
    }
    if not lagging:
        return []
    topics = sorted(lagging)
    configs = [lagging[topic].config for topic in topics]
    values = {"min.cleanable.dirty.ratio": "1"}
    if any(config.max_compaction_lag_ms < LONG_MAX for config in configs):
        values["max.compaction.lag.ms"] = str(LONG_MAX)  # Past it a log is cleaned at any ratio.
    own = [name for name in values if any(_is_of_topic(config, name) for config in configs)]
    old = [f"{name}={configs[0].value_of(name) if len(topics) == 1 else 'OLD'}" for name in own]
    others = [name for name in values if name not in own]
    take_back = [
        *([f"--add-config {','.join(old)}"] if old else []),
        *([f"--delete-config {','.join(others)}"] if others else []),
    ]
    command = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name "
    command += shell_word(topics[0]) if len(topics) == 1 else "TOPIC"
    setting = ",".join(f"{name}={value}" for name, value in values.items())
    return [
        "A broker's own cleaner holds nothing back: once it starts, it drops these tombstones and markers. To prevent "
        f"that for {some_of(topics, at_most=MAX_NAMED)}, set before it starts, through another broker: "
        f"{command} --add-config {setting}",
        f"When the replica is in sync, take that back: {command} {' '.join(take_back)}",
    ]


def _is_of_topic(config: TopicConfig, name: str) -> bool:
    setting = config.settings.get(name)
    return setting is not None and setting.source is Source.TOPIC_OVERRIDE


def hints(partitions: Iterable[PlannedPartition]) -> list[str]:
    """Return how partitions that are refused can be cleaned: one hint for all of each kind.

    They have no known policy, are internal topics or being moved, or their broker was not shut down cleanly, or must
    recover them.
    Also how a broker's own cleaner is kept from those for which a replica lags.

    A partition with an error has the hint in its error.
    """
    plans = [each.plan for each in partitions if each.plan is not None and each.error is None]
    unknown = sorted({plan.log.topic_partition.topic for plan in plans if plan.reason is Reason.POLICY_UNKNOWN})
    hint_texts = []
    if len(unknown) == 1:
        hint_texts.append(next(hint_for(plan) for plan in plans if plan.reason is Reason.POLICY_UNKNOWN))
    elif unknown:
        hint_texts.append(
            f"The cleanup.policy of {len(unknown):,} topics is unknown: {some_of(unknown, at_most=MAX_NAMED)}. "
            "For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact. Their own settings are read "
            f"with {HOW_TO_KNOW_TOPICS}"
        )
    for reason in (Reason.UNCLEAN_SHUTDOWN, Reason.RECOVERY_POINT, Reason.PAUSED_BY_MOVE):
        hint_texts += [hint_for(plan) for plan in plans if plan.reason is reason][:1]
    hint_texts += _hints_for_replicas(plans)
    internal = sum(hint_for(plan) == INCLUDE_INTERNAL for plan in plans)
    if internal:
        count = counted(internal, "partition")
        hint_texts.append(
            f"Not cleaned: {count} of Kafka's internal topics. Pass --include-internal to clean them too."
        )
    return hint_texts


def unfinished_uploads(orphans: Iterable[Orphans]) -> list[Note]:
    """Return a note on each upload to a bucket that has no manifest, so that nothing of it is there for a reader."""
    return [
        Note.of(
            RemarkCode.UNFINISHED_UPLOAD,
            address=each.address,
            objects=counted(each.count, "object"),
            size=readable.size(each.size_bytes),
            command=each.removal,
        )
        for each in orphans
    ]
