"""Notes and hints for the user on a whole run: settings without effect, a doubtful time, topics that need an option."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kcompact import readable
from kcompact.bucket.mirror import Orphans
from kcompact.config.broker_config import BrokerConfig
from kcompact.config.settings import (
    FIELD_NAMES,
    LONG_MAX,
    Override,
    Source,
    TopicConfig,
    is_used,
    unknown_cleaner_names,
)
from kcompact.errors import RefusedError
from kcompact.host.machine import clock_ms
from kcompact.log.lock import holder_in_words
from kcompact.notes import Note, NoteCode
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deciding_settings import deciding_assumptions
from kcompact.plan.discovery import by_partition
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import INCLUDE_INTERNAL, assumed_retention, hint_for
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition
from kcompact.readable import closest, counted, shell_word, shown, some_of, time

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MAX_NAMED_TOPICS = 5
_MAX_NAMED_DIRS = 2
_MAX_DOUBTS = 3


def option_notes(
    directories: Sequence[Path], options: PlanOptions, *, explains: bool = False, compared: Sequence[Override] = ()
) -> list[Note]:
    """Return a note for each setting that has no effect. `explains`: forecasts are made too, which depend on more."""
    topics = {partition.topic for partition in by_partition(directories)}
    notes = []
    configured = [("--config", override) for override in options.overrides]
    for option, override in (*configured, *(("--compare", override) for override in compared)):
        if override.topic is not None and override.topic not in topics:
            why = f"no partition of the topic {override.topic} is among the paths"
            close = closest(override.topic, topics)
            why += f"; did you mean {close}?" if close else ""
        elif not is_used(override.name, explains=explains or option == "--compare"):
            why = "cleaning does not depend on this setting"
        else:
            continue
        notes.append(Note.of(NoteCode.UNUSED_SETTING, setting=f"{option} {override}", why=why))
    for pattern in options.topics:
        if not fnmatch.filter(topics, pattern):
            why = "no partition of such a topic is among the paths"
            notes.append(Note.of(NoteCode.UNUSED_SETTING, setting=f"--topic {shown(pattern)}", why=why))
    given = options.broker_config
    return [*notes, *(() if given is None else wrong_name_notes(given))]


def wrong_name_notes(broker: BrokerConfig) -> list[Note]:
    """Return a note for each name in a broker's file that looks like a setting of the cleaner and is none."""
    where = broker.origin if broker.is_found else "--broker-config"
    notes = []
    for name, close in unknown_cleaner_names(broker.properties).items():
        why = "Kafka has no such setting" + (f"; did you mean {close}?" if close else "")
        notes.append(Note.of(NoteCode.UNUSED_SETTING, setting=f"{name} of {where}", why=why))
    return notes


def plan_notes(partitions: Sequence[PlannedPartition], options: PlanOptions) -> list[Note]:
    """Return notes on the broker's file, and on why the plans may be wrong: a running broker, the time, defaults."""
    return [
        *setting_notes(partitions),
        *running_notes(partitions),
        *time_notes(partitions, options),
        *assumption_notes(partitions),
    ]


def running_notes(partitions: Iterable[PlannedPartition]) -> list[Note]:
    """Return a note for each log directory that a broker was running on when its partitions were read."""
    log_dirs = {each.plan.log.log_dir.path for each in partitions if each.plan and each.plan.log.log_dir.is_running}
    return [
        Note.of(NoteCode.BROKER_RUNNING, log_dir=shown(log_dir), holder=shown(holder_in_words(log_dir)))
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
            notes.append(Note.of(NoteCode.CLOCK_BEHIND_FILES, now=now, name=name, written=time(newest_ms)))
        return notes
    newest_ms, name = max(((segment.largest_timestamp_ms, name) for segment, name in segments), default=(0, ""))
    if newest_ms > options.now_ms:
        notes.append(Note.of(NoteCode.NOW_BEFORE_RECORDS, now=now, name=name, newest=time(newest_ms)))
    if options.now_ms > clock + _DAY_MS:
        notes.append(Note.of(NoteCode.NOW_AFTER_CLOCK, now=now, clock=time(clock)))
    return notes


def setting_notes(partitions: Iterable[PlannedPartition]) -> list[Note]:
    """Return a note for each file with a broker's static settings that was found, and for wrong names in it."""
    brokers = {each.plan.log.log_dir.path: each.plan.config.broker for each in partitions if each.plan is not None}
    found = {broker.origin: broker for broker in brokers.values() if broker.is_found}
    notes = []
    for origin, broker in found.items():
        notes.append(found_note(broker, [each for each, other in brokers.items() if other.origin == origin]))
        notes += wrong_name_notes(broker)
    return notes


def found_note(broker: BrokerConfig, log_dirs: Sequence[Path]) -> Note:
    """Return where the static settings of a broker were found, and the log directories that they name."""
    running = f", with which process {broker.process} runs" if broker.process else ""
    where = f"{shown(broker.origin)}{running}"
    return Note.of(NoteCode.BROKER_CONFIG, where=where, log_dirs=_named_dirs(log_dirs))


def assumption_notes(partitions: Iterable[PlannedPartition]) -> list[Note]:
    """Return one note on the settings that decide something and are only assumed to have Kafka's defaults.

    Those in a file that only the broker can resolve have a note of their own.
    """
    names: dict[str, dict[str, None]] = {}
    log_dirs: dict[str, dict[Path, BrokerConfig]] = {}
    is_retained = False
    for plan in (each.plan for each in partitions if each.plan is not None and each.error is None):
        deciding = deciding_assumptions(plan)
        if deciding:
            why = unresolved_text(plan.config.broker)
            names.setdefault(why, {}).update(dict.fromkeys(deciding))
            log_dirs.setdefault(why, {})[plan.log.log_dir.path] = plan.config.broker
            is_retained |= bool(assumed_retention(plan))
    order = list(FIELD_NAMES.values())
    return [
        Note.of(
            NoteCode.ASSUMED_SETTINGS,
            why=why or nothing_read(log_dirs[why]),
            names=", ".join(sorted(those, key=order.index)),
            option=how_to_know(why),
            retention="; clean --apply-retention deletes nothing by them" if is_retained else "",
        )
        for why, those in names.items()
    ]


def how_to_know(unresolved: str) -> str:
    """Return what to pass so that nothing is assumed; `unresolved` is what `unresolved_text` returns."""
    return "--config NAME=VALUE" if unresolved else "--broker-config FILE"


def why_assumed(plan: CleanPlan) -> str:
    """Return why settings of a plan are only assumed, in words."""
    broker = plan.config.broker
    return unresolved_text(broker) or nothing_read({plan.log.log_dir.path: broker})


def unresolved_text(broker: BrokerConfig) -> str:
    """Return that a broker's file has values that only the broker can resolve; an empty text if no file was read."""
    return f"{shown(broker.origin)} has values for them that only the broker can resolve" if broker.is_known else ""


def nothing_read(log_dirs: Mapping[Path, BrokerConfig]) -> str:
    """Return that no file of the brokers of some log directories was read, and which files were not used."""
    doubts = list(dict.fromkeys(doubt for broker in log_dirs.values() for doubt in broker.doubts))
    unused = shown(f" (not used: {some_of(doubts, at_most=_MAX_DOUBTS, separator='; ')})") if doubts else ""
    return f"no server.properties that names {_named_dirs(list(log_dirs))} was read{unused}"


def _named_dirs(log_dirs: Sequence[Path]) -> str:
    return some_of(list(map(shown, log_dirs)), at_most=_MAX_NAMED_DIRS, separator=" and ")


def _hints_for_replicas(plans: Iterable[CleanPlan]) -> list[str]:
    """Return how to keep the brokers' own cleaners from dropping what is held back for replicas that lag."""
    lagging = {plan.log.topic_partition.topic: plan for plan in plans if plan.lagging_replicas and plan.config.compacts}
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
        f"that for {some_of(topics, at_most=_MAX_NAMED_TOPICS)}, set before it starts, through another broker: "
        f"{command} --add-config {setting}",
        f"When the replica is in sync, take that back: {command} {' '.join(take_back)}",
    ]


def _is_of_topic(config: TopicConfig, name: str) -> bool:
    setting = config.settings.get(name)
    return setting is not None and setting.source is Source.TOPIC_OVERRIDE


def hints(partitions: Iterable[PlannedPartition]) -> list[str]:
    """Return how partitions that are refused can be cleaned: one hint for all of each kind.

    They have no known policy, are internal topics, or their broker was not shut down cleanly, or must recover them.
    Also how a broker's own cleaner is kept from those for which a replica lags.

    A partition with an error has the hint in its error.
    """
    plans = [each.plan for each in partitions if each.plan is not None and each.error is None]
    unknown = sorted({plan.log.topic_partition.topic for plan in plans if plan.reason is Reason.POLICY_UNKNOWN})
    found = []
    if len(unknown) == 1:
        found.append(next(hint_for(plan) for plan in plans if plan.reason is Reason.POLICY_UNKNOWN))
    elif unknown:
        found.append(
            f"The cleanup.policy of {len(unknown):,} topics is unknown: {some_of(unknown, at_most=_MAX_NAMED_TOPICS)}. "
            "For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact"
        )
    for reason in (Reason.UNCLEAN_SHUTDOWN, Reason.RECOVERY_POINT):
        found += [hint_for(plan) for plan in plans if plan.reason is reason][:1]
    found += _hints_for_replicas(plans)
    internal = sum(hint_for(plan) == INCLUDE_INTERNAL for plan in plans)
    if internal:
        count = counted(internal, "partition")
        found.append(f"Not cleaned: {count} of Kafka's internal topics. Pass --include-internal to clean them too.")
    return found


def unfinished_uploads(orphans: Iterable[Orphans]) -> list[Note]:
    """Return a note on each upload to a bucket that has no manifest, so that nothing of it is there for a reader."""
    return [
        Note.of(
            NoteCode.UNFINISHED_UPLOAD,
            address=each.address,
            objects=counted(each.count, "object"),
            size=readable.size(each.size_bytes),
            command=each.removal,
        )
        for each in orphans
    ]
