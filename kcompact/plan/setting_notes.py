"""Notes on the settings behind the plans of a run: where they are from, what is assumed, unknown, or overruled.

Each note names the settings or the topics, and what to pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.settings import (
    BROKER_SETTINGS,
    FIELD_NAMES,
    OF_THE_TOPIC_ALONE,
    TOPIC_SETTINGS,
    Override,
    Setting,
    Source,
    unknown_cleaner_names,
)
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deciding_settings import deciding_assumptions
from kcompact.plan.deletion import unknown_retention
from kcompact.plan.horizons import read_horizons
from kcompact.plan.partition import assumed_retention
from kcompact.plan.selection import MAX_NAMED
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition
from kcompact.readable import counted, shown, some_of
from kcompact.remarks import Note, RemarkCode

_MAX_NAMED_DIRS = 2
_MAX_DOUBTS = 3
_MOST_HEADERS = 5_000
"""So many headers are read for all partitions together, to look for delete horizons: a twentieth of a second."""


def wrong_name_notes(broker: BrokerConfig) -> list[Note]:
    """Return a note for each name in a broker's file that looks like a setting of the cleaner and is none."""
    where = broker.origin if broker.is_found else "--broker-config"
    notes = []
    for name, close in unknown_cleaner_names(broker.properties).items():
        why = "Kafka has no such setting" + (f"; did you mean {close}?" if close else "")
        notes.append(Note.of(RemarkCode.UNUSED_SETTING, setting=f"{name} of {where}", why=why))
    return notes


def broker_file_notes(partitions: Iterable[PlannedPartition]) -> list[Note]:
    """Return a note for each file with a broker's static settings that was found, and for wrong names in it."""
    brokers = {each.plan.log.log_dir.path: each.plan.config.broker for each in partitions if each.plan is not None}
    brokers_by_origin = {broker.origin: broker for broker in brokers.values() if broker.is_found}
    notes = []
    for origin, broker in brokers_by_origin.items():
        notes.append(found_note(broker, [each for each, other in brokers.items() if other.origin == origin]))
        notes += [*_refused_notes(broker), *wrong_name_notes(broker)]
    return notes


def _refused_notes(broker: BrokerConfig) -> list[Note]:
    """Return a note for each value that keeps a broker from starting, in a file that was found."""
    why = "no broker starts with it, so the broker's value is unknown"
    return [
        Note.of(
            RemarkCode.UNUSED_SETTING, setting=f"{name} of {shown(broker.origin)}", why=f"{shown(error.problem)}; {why}"
        )
        for name, error in broker.refused.items()
    ]


def found_note(broker: BrokerConfig, log_dirs: Sequence[Path]) -> Note:
    """Return where the static settings of a broker were found, and the log directories that they name."""
    running = f", with which process {broker.process} runs" if broker.process else ""
    where = f"{shown(broker.origin)}{running}"
    return Note.of(RemarkCode.BROKER_CONFIG, where=where, log_dirs=_named_dirs(log_dirs))


def setting_doubts(partitions: Iterable[PlannedPartition], overrides: Sequence[Override]) -> list[Note]:
    """Return why the settings behind some plans may not be those of the topics, and what `--config` has to do with it.

    `overrides` are those of `--config`.
    """
    # No setting of a topic holds for the metadata log.
    planned = [each for each in partitions if each.plan is not None and not each.plan.log.is_cluster_metadata]
    plans = [each.plan for each in planned if each.plan is not None and each.error is None]
    # Each is found by planning anew, with other values.
    deciding = {plan.log.directory: deciding_assumptions(plan) for plan in plans}
    return [
        *_missing_notes(each.plan for each in planned if each.plan is not None),
        *_assumption_notes(plans, deciding),
        *_unknown_notes([plan for plan in plans if not plan.config.own.is_known], deciding, overrides),
        *_general_notes(plans, overrides),
        *_contradiction_notes(plans),
    ]


def _missing_notes(plans: Iterable[CleanPlan]) -> Iterator[Note]:
    """Yield a note for each broker with log directories that were not found."""
    for missing, log_dir in {plan.config.broker.missing: plan.log.log_dir.path for plan in plans}.items():
        if missing:
            yield Note.of(
                RemarkCode.MISSING_LOG_DIRS,
                log_dir=shown(log_dir),
                count=counted(len(missing), "more log directory", "more log directories"),
                was="was" if len(missing) == 1 else "were",
                names=shown(some_of(missing, at_most=_MAX_NAMED_DIRS)),
            )


Deciding = Mapping[Path, tuple[str, ...]]
"""The assumed settings that decide, by the directory of a partition."""


def _assumption_notes(plans: Iterable[CleanPlan], all_deciding: Deciding) -> list[Note]:
    """Return one note on the settings that decide something and are only assumed to have Kafka's defaults.

    Those in a file that only the broker can resolve have a note of their own.
    """
    names: dict[str, dict[str, None]] = {}
    log_dirs: dict[str, dict[Path, BrokerConfig]] = {}
    is_retained = False
    for plan in plans:
        deciding = _of_broker(plan, all_deciding)
        if deciding:
            why = unresolved_text(plan.config.broker)
            names.setdefault(why, {}).update(dict.fromkeys(deciding))
            log_dirs.setdefault(why, {})[plan.log.log_dir.path] = plan.config.broker
            is_retained |= bool(assumed_retention(plan))
    return [
        Note.of(
            RemarkCode.ASSUMED_SETTINGS,
            why=why or nothing_read(log_dirs[why]),
            names=_in_order(assumed_names),
            option=how_to_know(why),
            retention="; clean --apply-retention deletes nothing by them" if is_retained else "",
        )
        for why, assumed_names in names.items()
    ]


def _of_broker(plan: CleanPlan, deciding: Deciding) -> tuple[str, ...]:
    """Return the assumed settings that decide and for which the broker's own value is unknown."""
    names, config = deciding[plan.log.directory], plan.config
    return tuple(name for name in names if not config.broker.is_known or name in config.unresolved)


def _unknown_notes(plans: Iterable[CleanPlan], all_deciding: Deciding, overrides: Sequence[Override]) -> Iterator[Note]:
    """Yield one note for each reason why the own settings of topics are unknown, if that could change anything.

    A topic without a policy is refused, with what to pass.
    """
    by_why: dict[str, list[CleanPlan]] = defaultdict(list)
    for plan in plans:
        may_change = (
            bool(all_deciding[plan.log.directory]) or _retention_is_unknown(plan) or decided_for_all([plan], overrides)
        )
        if plan.config.cleanup_policy is not None and may_change:
            by_why[plan.config.own.why].append(plan)
    for why, affected_plans in by_why.items():
        topics = _topics(affected_plans)
        deciding = {name for plan in affected_plans for name in all_deciding[plan.log.directory]}
        deciding -= {name for plan in affected_plans for name in _of_broker(plan, all_deciding)}
        decided = [
            f"{each} decides for {_named(names)}" for each, names in decided_for_all(affected_plans, overrides).items()
        ]
        is_retained = any(map(_retention_is_unknown, affected_plans))
        yield Note.of(
            RemarkCode.UNKNOWN_SETTINGS,
            topics=_named(topics),
            own="its own" if len(topics) == 1 else "their own",
            why=why or "no source of them was read",
            decided="".join(f"; {each}" for each in decided),
            assumed=f"; {_in_order(deciding)} may have other values there, and decide here" if deciding else "",
            retention="; without retention.bytes and retention.ms nothing is deleted by retention"
            if is_retained
            else "",
        )


def _retention_is_unknown(plan: CleanPlan) -> bool:
    return "delete" in (plan.config.cleanup_policy or ()) and bool(unknown_retention(plan.config))


def _general_notes(plans: Sequence[CleanPlan], overrides: Sequence[Override]) -> Iterator[Note]:
    """Yield for which topics `--config` without a topic decides what is compacted and deleted, and which overrule it.

    Topics whose own settings are unknown have a note of their own.
    """
    known = [plan for plan in plans if plan.config.own.is_known]
    for setting, topics in decided_for_all(known, overrides).items():
        own = "its own" if len(topics) == 1 else "their own"
        yield Note.of(RemarkCode.DECIDED_FOR_ALL, setting=setting, topics=_named(topics), own=own)
    for override in _for_all(overrides):
        overruling = [
            plan
            for plan in known
            if plan.config.own.values.get(override.name, override.value) != override.value
            and not _is_named(plan, override.name, overrides)
        ]
        if overruling:
            setting, topics = f"--config {override}", _topics(overruling)
            yield Note.of(RemarkCode.OVERRULED_SETTING, setting=setting, topics=_named(topics))


def decided_for_all(plans: Iterable[CleanPlan], overrides: Sequence[Override]) -> dict[str, list[str]]:
    """Return the settings for all topics that decide what is compacted and deleted, each with its topics."""
    plans_by_setting: dict[str, list[CleanPlan]] = defaultdict(list)
    last = {each.name: each for each in overrides if each.topic is None}
    # Of a broker's names for the same setting the last one of these counts.
    of_broker = {BROKER_SETTINGS[name]: last[name] for name in BROKER_SETTINGS if name in last}
    deciding = [(each, name) for name, each in (*of_broker.items(), *last.items()) if name in OF_THE_TOPIC_ALONE]
    for plan in plans:
        for override, name in deciding:
            is_used = name == "cleanup.policy" or "delete" in (plan.config.cleanup_policy or ())
            by_this = Setting(source=Source.OPTION, is_of_broker=name != override.name)
            if is_used and plan.config.settings.get(name) == by_this and not _is_named(plan, name, overrides):
                plans_by_setting[f"--config {override}"].append(plan)
    return {setting: _topics(affected_plans) for setting, affected_plans in plans_by_setting.items()}


def _for_all(overrides: Sequence[Override]) -> list[Override]:
    """Return the settings for all topics, under the topic's names. Of several with one name the last one counts."""
    return list({each.name: each for each in overrides if each.topic is None and each.name in TOPIC_SETTINGS}.values())


def _is_named(plan: CleanPlan, name: str, overrides: Sequence[Override]) -> bool:
    return any(each.name == name and each.is_for(plan.log.topic_partition.topic) for each in overrides)


def _contradiction_notes(plans: Iterable[CleanPlan]) -> Iterator[Note]:
    """Yield which topics that count as not compacted have traces of Kafka's cleaner on the disk."""
    deleted = [plan for plan in plans if plan.reason is Reason.POLICY_DELETE]
    unchecked = [plan for plan in deleted if plan.log.checkpoint_offset is None]
    traces: dict[str, list[CleanPlan]] = defaultdict(list)
    traces["an entry in cleaner-offset-checkpoint"] = [
        each for each in deleted if each.log.checkpoint_offset is not None
    ]
    for plan in unchecked:
        horizons = read_horizons(plan, most_batches=max(1, _MOST_HEADERS // len(unchecked)))
        if horizons.waiting or horizons.passed:
            traces["batches with a delete horizon"].append(plan)
    for trace, traced_plans in filter(lambda trace_and_plans: trace_and_plans[1], traces.items()):
        policies = sorted(
            {f"{plan.config.policy_text} ({plan.config.source_of('cleanup.policy')})" for plan in traced_plans}
        )
        yield Note.of(
            RemarkCode.COMPACTED_BEFORE, topics=_named(_topics(traced_plans)), trace=trace, policy=" or ".join(policies)
        )


def _topics(plans: Iterable[CleanPlan]) -> list[str]:
    return sorted({plan.log.topic_partition.topic for plan in plans})


def _named(topics: Sequence[str]) -> str:
    return some_of(list(map(shown, topics)), at_most=MAX_NAMED)


def _in_order(names: Iterable[str]) -> str:
    return ", ".join(sorted(names, key=list(FIELD_NAMES.values()).index))


def how_to_know(unresolved: str) -> str:
    """Return what to pass so that nothing is assumed; `unresolved` is what `unresolved_text` returns."""
    return "--config NAME=VALUE" if unresolved else "--broker-config FILE"


def why_assumed(plan: CleanPlan) -> str:
    """Return why settings of a plan are only assumed, in words."""
    broker = plan.config.broker
    if broker.is_known and not plan.config.own.is_known:
        return f"no source has the topic's own settings: {plan.config.own.why}"
    return unresolved_text(broker) or nothing_read({plan.log.log_dir.path: broker})


def unresolved_text(broker: BrokerConfig) -> str:
    """Return that a broker's file has no values that can be read, and why; an empty text if no file was read."""
    if not broker.is_known:
        return ""
    if broker.refused and broker.provided:
        return f"{shown(broker.origin)} has values for them that a broker refuses, or that only the broker can resolve"
    what = "a broker refuses" if broker.refused else "only the broker can resolve"
    return f"{shown(broker.origin)} has values for them that {what}"


def nothing_read(log_dirs: Mapping[Path, BrokerConfig]) -> str:
    """Return that no file of the brokers of some log directories was read, and which files were not used."""
    doubts = list(dict.fromkeys(doubt for broker in log_dirs.values() for doubt in broker.doubts))
    unused = shown(f" (not used: {some_of(doubts, at_most=_MAX_DOUBTS, separator='; ')})") if doubts else ""
    return f"no server.properties that names {_named_dirs(list(log_dirs))} was read{unused}"


def _named_dirs(log_dirs: Sequence[Path]) -> str:
    return some_of(list(map(shown, log_dirs)), at_most=_MAX_NAMED_DIRS, separator=" and ")
