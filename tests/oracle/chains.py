"""What Kafka and kcompact make of the same log directory, round after round, compared.

Chain A starts every round from the directory that Kafka left; there everything must be equal: the plan, the files,
the counts, and what Kafka's own loader and readers see in the result. Chain B continues from the directory that
kcompact left, as a user's log would. Its files drift from Kafka's where a batch was compressed again, because the sizes
do, and with them groups and ratios; so it only has to show the same log to its readers. While the
two are the same bytes, B is not run.

What is different by design, and passed over: after a failed cleaning Kafka writes the old first dirty offset as
checkpoint, and may have swapped some groups; kcompact leaves everything as it was. It also refuses a segment that holds
offsets below its base, and a `.txnindex` that contradicts its markers. Of all that a spec can do, only the loss of
snapshots may lead to the latter: the broker then forgets which transactions are open. A last stable offset of a
follower can end the search of Kafka's cleaner too early. It then takes an aborted transaction for a committed one;
kcompact reads on, and the markers say which is right.

A broker changes a directory by merely loading it: it deletes snapshots and leader epochs that it does not need, and
moves high watermarks into the log. So all files are compared after cleanings of what Kafka loaded once before; where
that changed anything, the directory as it was is cleaned by both as well, and the segments must be the same.

With an older Kafka less is compared, as `tests.support.releases.likeness_of` says. Up to 3.8 a cleaner writes an index
entry for each append. So the indexes that kcompact writes are compared with their own log, and some refusals are passed
over: `tests.oracle.older_kafka`. Up to 3.0 only the newest values are compared: kcompact must keep each one that
Kafka's cleaner keeps.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.outcome import CleanResult, Status
from kcompact.config.layers import topic_config
from kcompact.config.settings import Override
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptTransactionIndexError, KcompactError
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    build_offset_checkpoint,
    parse_offset_checkpoint,
)
from kcompact.format.names import TopicPartition
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan, dirtiest_first
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Executor
from tests.oracle import followers
from tests.oracle.older_kafka import PASSED_OVER, known_refusals, lost_values
from tests.oracle.real_kafka import Json, RealKafka, copy_log_dir
from tests.oracle.views import end_differences, newest_differences, unlike, view_differences
from tests.support.committed_view import misleads
from tests.support.compare import differences, files
from tests.support.releases import likeness_of, release_of

DEDUPE_BUFFER_BYTES = 1 << 20
PLAN_FIELDS = (
    "first_dirty_offset first_uncleanable_offset clean_bytes cleanable_bytes need_compaction_now "
    "max_compaction_delay_ms eligible high_watermark last_stable_offset"
).split()
STATS_FIELDS = "bytes_read messages_read messages_written invalid_messages map_keys map_bytes_read".split()
SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
Checkpoint = dict[TopicPartition, int]


@dataclass(slots=True)
class Outcome:
    """What the comparison of one spec found. `counts` says what it covered."""

    differences: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def compare(kafka: RealKafka, spec: Json, scratch: Path, executor: Executor | None = None) -> Outcome:
    """Run all rounds of a spec in `scratch`, up to the first round that differs."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="log-", dir=scratch) as directory:
        chains = Chains(kafka, Path(directory), executor or InProcess(), outcome.counts)
        for number, settings in enumerate(spec["rounds"]):
            found = chains.run(settings)
            if found:
                outcome.differences = [f"round {number}: {line}" for line in found]
                break
    return outcome


INDEX_DECIDES = f"{PASSED_OVER}chain B is unlike chain A, as Kafka's cleaner leaves it too"


@dataclass(slots=True)
class _Cleaned:
    """What kcompact did to a directory: results and refusals by partition, and the plans before."""

    plans: dict[str, CleanPlan]
    results: dict[str, CleanResult]
    refused: dict[str, KcompactError]


class Chains:
    """Both chains of one spec in a directory. `theirs` is the log directory of chain A; `counts` as in `Outcome`."""

    def __init__(self, kafka: RealKafka, directory: Path, executor: Executor, counts: Counter[str]) -> None:
        self.kafka = kafka
        self.likeness = likeness_of(kafka.version)
        self.executor = executor
        self.counts = counts
        self.theirs = directory / "kafka"
        self.ours = directory / "kcompact"
        self.drifted: Path | None = None
        self.unloaded = directory / "unloaded"
        self.directory = directory
        self.same_decisions = True
        self.lost_snapshots: set[str] = set()
        self.leaders: list[Path] = []

    def run(self, settings: Json) -> list[str]:
        """Run one round on both chains; return what differs."""
        self.counts["rounds"] += 1
        self.write_leaders(settings)
        self.write(self.theirs, settings)
        if not self.theirs.exists():
            return []
        peculiarities = followers.peculiarities(self.theirs / followers.NAME) if self.leaders else Counter[str]()
        self.counts += peculiarities
        settings = self.with_full_group(settings)
        self.unloaded = _fresh_copy(self.theirs, self.directory / "unloaded")
        if not self.likeness.files:
            found = self.value_differences(settings)
            if found and not self.was_misled(peculiarities):
                return found
            return self.go_on_from_theirs(settings)
        plan = self.plan(self.theirs, settings)
        plans = self.plan_with_kcompact(self.unloaded, settings)
        loaded = self.load(self.theirs, settings, in_place=True)
        if any(_leaves_its_segment(self.unloaded / name) and each.log.damage for name, each in plans.items()):
            # An append failed after it had rolled, and the next batch went into the new file. Kafka's cleaner takes it.
            self.counts["rounds with offsets below their segment's base: refused"] += 1
            self.clean_with_kafka(self.theirs, settings)
            return self.go_on_from_theirs(settings)
        found = self.plan_differences(plan, plans) + _producer_differences(plans, loaded)
        if found:
            return found

        _fresh_copy(self.theirs, self.ours)
        was_loaded = _same_bytes(self.unloaded, self.ours)
        ours = self.clean_with_kcompact(self.ours, settings)
        turns = self.clean_with_kafka(self.theirs, settings)
        self.lost_snapshots |= {name for name, count in settings.get("lost_snapshots", {}).items() if count}
        if any(self.misleads(name, ours) for name in ours.refused.keys() & turns.keys() & self.lost_snapshots):
            self.counts["rounds with a transaction index that contradicts the markers: refused"] += 1
            return self.go_on_from_theirs(settings)
        if known := [kind for name, kind in self.known_refusals(ours).items() if "error" not in turns.get(name, ())]:
            self.counts.update(known)
            return self.go_on_from_theirs(settings)
        found = self.result_differences(turns, ours, settings)
        if found and self.was_misled(peculiarities):
            if not self.is_right(self.theirs):
                _fresh_copy(self.ours, self.theirs)
            return self.go_on_from_theirs(settings)
        if found:
            return found

        failed = {name for name, turn in turns.items() if "error" in turn}
        theirs_seen = self.load(self.theirs, settings)
        if not _same_bytes(self.ours, self.theirs):
            found = view_differences(self.load(self.ours, settings), theirs_seen, passed_over=failed)
        if not found and not was_loaded:
            found = self.unloaded_differences(settings)
        return found or self.go_on_from_ours(settings, plan, theirs_seen, has_failed=bool(failed))

    def misleads(self, name: str, cleaned: _Cleaned) -> bool:
        """Whether kcompact was right to refuse the transaction indexes of a partition."""
        is_refused = isinstance(cleaned.refused[name], CorruptTransactionIndexError)
        return is_refused and misleads(self.ours / name, cleaned.plans[name].log.log_start_offset)

    def known_refusals(self, cleaned: _Cleaned) -> dict[str, str]:
        """Return by partition why kcompact refuses indexes that only an older Kafka has."""
        return {} if self.likeness.indexes else known_refusals(cleaned.refused)

    def was_misled(self, peculiarities: Counter[str]) -> bool:
        """Whether a follower's log hides aborted transactions from Kafka, and kcompact went by its markers."""
        is_misled = bool(peculiarities[followers.HIDDEN]) and self.is_right(self.ours)
        self.counts["rounds in which a last stable offset misled Kafka's cleaner"] += is_misled
        return is_misled

    def is_right(self, log_dir: Path) -> bool:
        """Whether a follower's log has, after its cleaning, the committed records that its markers tell."""
        before, after = map(followers.committed_records, (self.unloaded, log_dir))
        return before == after and not misleads(log_dir / followers.NAME, 0)

    def unloaded_differences(self, settings: Json) -> list[str]:
        """Clean the directory as it was before Kafka loaded it, with both; return what differs in the segments."""
        self.counts["rounds that loading changes"] += 1
        theirs = _fresh_copy(self.unloaded, self.directory / "unloaded-kafka")
        ours = self.clean_with_kcompact(self.unloaded, settings)
        turns = self.clean_with_kafka(theirs, settings)
        failed = {name for name, turn in turns.items() if "error" in turn}
        known = self.known_refusals(ours).keys()
        found = [f"{name}: not loaded before: refused" for name in sorted((failed ^ ours.refused.keys()) - known)]
        lines = self.file_differences(self.unloaded, theirs, settings, passed_over=failed | known)
        for line in lines:
            path = theirs / line.partition(":")[0]
            is_made_by_loading = path.exists() and path.stat().st_size == 0 and line.endswith("we do not")
            if path.name.endswith(SEGMENT_FILES) and not is_made_by_loading:
                found.append(f"not loaded before: {line}")
        return found

    def value_differences(self, settings: Json) -> list[str]:
        """Clean with both; return which newest values kcompact loses and Kafka's cleaner keeps.

        The ends of the log are compared with those before: these cleaners can make a transaction open again.
        """
        before = self.load(self.theirs, settings)
        self.load(self.theirs, settings, in_place=True)
        _fresh_copy(self.theirs, self.ours)
        cleaned = self.clean_with_kcompact(self.ours, settings)
        known = self.known_refusals(cleaned)
        for name, problem in cleaned.refused.items():
            self.counts[known.get(name, f"{PASSED_OVER}{type(problem).__name__}")] += 1
        turns = self.clean_with_kafka(self.theirs, settings)
        ours, theirs = (self.load(log_dir, settings) for log_dir in (self.ours, self.theirs))
        found = []
        for name in [each for each in before if "error" not in turns.get(each, ())]:
            lost = lost_values(before[name], ours[name], theirs[name], self.counts)
            found += [f"{name}: {line}" for line in [*lost, *end_differences(ours[name], before[name])]]
        return found

    def go_on_from_theirs(self, settings: Json) -> list[str]:
        """Go on from Kafka's directory alone. The broker starts again: a failed turn has left `.cleaned` files."""
        self.load(self.theirs, settings, in_place=True)
        self.drifted, self.same_decisions = None, True
        return []

    def go_on_from_ours(self, settings: Json, plan: Json, theirs_seen: Json, *, has_failed: bool) -> list[str]:
        """Run the round on chain B, if there is one, then decide how it goes on."""
        found: list[str] = []
        is_unlike = False
        if self.drifted is not None:
            self.counts["rounds of chain B"] += 1
            self.write(self.drifted, settings)
            decided = _decisions(self.plan(self.drifted, settings))
            self.load(self.drifted, settings, in_place=True)  # as often as chain A: producers expire when loaded
            self.same_decisions = self.same_decisions and decided == _decisions(plan)
            uncleaned = _fresh_copy(self.drifted, self.directory / "uncleaned")
            cleaned = self.clean_with_kcompact(self.drifted, settings)
            has_failed = has_failed or bool(self.known_refusals(cleaned))
            self.load(self.drifted, settings, in_place=True)
            seen = self.load(self.drifted, settings)
            if self.same_decisions and not has_failed:
                found = view_differences(seen, theirs_seen, passed_over=set())
                if found and not self.differences_from_kafka(seen, uncleaned, settings):
                    self.counts[INDEX_DECIDES] += 1
                    found, is_unlike = [], True
            else:
                found = newest_differences(seen, theirs_seen)
            if not has_failed:
                found += [f"{name}: refused: {problem}" for name, problem in cleaned.refused.items()]
        if has_failed:
            self.load(self.theirs, settings, in_place=True)  # The broker starts again: `.cleaned` files are left of it.
        if has_failed or found or is_unlike:
            self.drifted, self.same_decisions = None, True
        elif self.drifted is None and not _same_bytes(self.ours, self.theirs):
            self.drifted = _fresh_copy(self.ours, self.directory / "drifted")
            self.load(self.drifted, settings, in_place=True)
        elif self.drifted is not None and _same_bytes(self.drifted, self.theirs):
            shutil.rmtree(self.drifted)
            self.drifted, self.same_decisions = None, True
        if self.drifted is None:
            shutil.rmtree(self.directory / "drifted", ignore_errors=True)
        return [f"chain B: {line}" for line in found]

    def differences_from_kafka(self, seen: Json, uncleaned: Path, settings: Json) -> list[str]:
        """Return what Kafka's cleaner makes of chain B itself, compared with what kcompact has made of it.

        Where the reading for the offset map begins depends on the index, which up to 3.8 has an entry for each append.
        It decides about records of a producer whose transaction was aborted before: chain A may begin elsewhere.
        """
        self.clean_with_kafka(uncleaned, settings)
        self.load(uncleaned, settings, in_place=True)
        return view_differences(seen, self.load(uncleaned, settings), passed_over=set())

    # Steps

    def write_leaders(self, settings: Json) -> None:
        """Write what the followers of this round fetch."""
        for number, request in enumerate(settings.get("leaders", ())):
            self.leaders[number:] = [self.directory / f"leader-{number}"]
            self.kafka.write(self.leaders[number], **request, lenient=True)

    def write(self, log_dir: Path, settings: Json) -> None:
        options = {"producer_id_expiration_ms": settings["producer_id_expiration_ms"], "lenient": True}
        for request in settings["writes"]:
            name = f"{request['topic']}-{request['partition']}"
            actions = [
                action | {"leader": self.leaders[action["leader"]] / name} if "leader" in action else action
                for action in request["actions"]
            ]
            reply = self.kafka.write(log_dir, **request | {"actions": actions}, **options)
            self.counts["actions"] += len(request["actions"])
            self.counts["actions that Kafka refused"] += len(reply["refused"])
        if log_dir.exists():
            ranges = self.ranges(log_dir, settings)
            _set_offsets(log_dir / CLEANER_OFFSET_CHECKPOINT, settings["checkpoints"], ranges)
            _set_offsets(log_dir / REPLICATION_OFFSET_CHECKPOINT, settings["high_watermarks"], ranges)
            lost_snapshots = settings.get("lost_snapshots", {}) if self.likeness.lost_snapshots else {}
            for name, count in lost_snapshots.items():
                for snapshot in sorted((log_dir / name).glob("*.snapshot"))[-count:]:
                    snapshot.unlink()

    def with_full_group(self, settings: Json) -> Json:
        """Set `segment.bytes` to what some segments of the first partition have together, if the spec asks for it."""
        if not settings.get("full_group"):
            return settings
        count, more = settings["full_group"]
        segments = self.plan(self.theirs, settings)["partitions"][0]["segments"]
        segment_bytes = max(14, sum(segment["size_bytes"] for segment in segments[:count]) + more)
        return settings | {"config": settings["config"] | {"segment.bytes": str(segment_bytes)}}

    def ranges(self, log_dir: Path, settings: Json) -> dict[str, tuple[int, int]]:
        if not settings["checkpoints"] and not settings["high_watermarks"]:
            return {}
        plan = self.plan(log_dir, settings)
        return {_name(row): (row["log_start_offset"], row["log_end_offset"]) for row in plan["partitions"]}

    def options(self, settings: Json) -> Json:
        return {
            "config": settings["config"],
            "now_ms": settings["now_ms"],
            "topics": settings["topics"],
            "high_watermark": "checkpoint",
            "producer_id_expiration_ms": settings["producer_id_expiration_ms"],
        }

    def plan(self, log_dir: Path, settings: Json) -> Json:
        return self.kafka.plan(log_dir, **self.options(settings))

    def load(self, log_dir: Path, settings: Json, *, in_place: bool = False) -> Json:
        """Load a copy of the directory, or with `in_place` itself, but without reading the records."""
        reply = self.kafka.load(
            log_dir, isolation="both", records=not in_place, in_place=in_place, **self.options(settings)
        )
        partitions: Json = reply["partitions"]
        return partitions

    def clean_with_kafka(self, log_dir: Path, settings: Json) -> Json:
        """Return the turn of each partition that Kafka's cleaner took, in its order."""
        reply = self.kafka.clean(
            log_dir,
            turns=0,
            retention=False,
            dedupe_buffer_bytes=DEDUPE_BUFFER_BYTES,
            io_buffer_bytes=settings["io_buffer_bytes"],
            max_message_bytes=settings["max_message_bytes"],
            **self.options(settings),
        )
        for turn in reply["turns"]:
            self.counts["turns"] += 1
            if "error" in turn:
                self.counts["turns that failed in Kafka"] += 1
                self.counts[f"  {_first_words(turn['error'])}"] += 1
        return {_name(turn): turn for turn in reply["turns"]}

    def plan_with_kcompact(self, log_dir: Path, settings: Json) -> dict[str, CleanPlan]:
        plans = {}
        for directory in find_partitions([log_dir]):
            topic = directory.name.rpartition("-")[0]
            config = {**settings["config"], **settings["topics"].get(topic, {})}
            overrides = [Override(name=name, value=value) for name, value in config.items()]
            expiration = str(settings["producer_id_expiration_ms"])
            overrides.append(Override(name="producer.id.expiration.ms", value=expiration))
            effective = topic_config(topic, overrides=overrides, release=release_of(self.kafka.version))
            plans[directory.name] = plan_partition(directory, effective, now_ms=settings["now_ms"])
        return plans

    def clean_with_kcompact(self, log_dir: Path, settings: Json) -> _Cleaned:
        plans = self.plan_with_kcompact(log_dir, settings)
        cleaned = _Cleaned(plans, {}, {})
        with log_dir_lock(log_dir) as lock:
            for plan in dirtiest_first(list(plans.values())):
                name = plan.log.directory.name
                try:
                    result = cleaner.clean_partition(plan, self.executor, lock=lock)
                except KcompactError as problem:
                    cleaned.refused[name] = problem
                    continue
                if result.status is Status.CLEANED:
                    cleaned.results[name] = result
        return cleaned

    # Comparing

    def plan_differences(self, plan: Json, ours: dict[str, CleanPlan]) -> list[str]:
        found = []
        for row in plan["partitions"]:
            mine, name = ours[_name(row)], _name(row)
            self.counts["plans"] += 1
            if "error" in row:
                found.append(f"{name}: Kafka cannot plan: {row['error']}")
                continue
            expected = {name: row[name] for name in PLAN_FIELDS}
            expected |= {
                "compacted": row["compacted"],
                "ratio": row["cleanable_ratio"] or 0.0,
                "reset": row["resets_checkpoint"],
                "start": row["log_start_offset"],
                "end": row["log_end_offset"],
                "checkpoint": row["checkpoint"],
                "segments": [(s["base_offset"], s["size_bytes"], s["largest_timestamp_ms"]) for s in row["segments"]],
                "groups": row["groups"] if row["eligible"] else [],
            }
            got = {name: getattr(mine, name) for name in PLAN_FIELDS}
            got |= {
                "compacted": mine.config.compacts,
                "ratio": mine.cleanable_ratio,
                "reset": mine.checkpoint_reset,
                "start": mine.log.log_start_offset,
                "end": mine.log.log_end_offset,
                "checkpoint": mine.log.checkpoint_offset,
                "segments": [(s.base_offset, s.size_bytes, s.largest_timestamp_ms) for s in mine.log.segments],
                "groups": [[segment.base_offset for segment in group] for group in mine.groups],
            }
            unlike = [key for key in expected if got[key] != expected[key]]
            found += [f"{name}: plan: {key} is {got[key]}, Kafka's {expected[key]}" for key in unlike]
        ready = dirtiest_first([mine for mine in ours.values() if mine.eligible])
        if (plan["filthiest"] is None) != (not ready):
            found.append(f"filthiest is {ready[:1] and ready[0].log.topic_partition}, Kafka's {plan['filthiest']}")
        elif ready and ours[plan["filthiest"]].cleanable_ratio != ready[0].cleanable_ratio:
            found.append(f"filthiest is {ready[0].log.topic_partition}, Kafka's {plan['filthiest']}")
        if plan["cleanable_partitions"] != len(ready):
            found.append(f"{len(ready)} cleanable partitions, Kafka {plan['cleanable_partitions']}")
        return found

    def result_differences(self, turns: Json, ours: _Cleaned, settings: Json) -> list[str]:
        found = []
        failed = {name for name, turn in turns.items() if "error" in turn}
        for name in sorted(turns.keys() | ours.results.keys() | ours.refused.keys()):
            if name in failed and name in ours.refused:
                self.counts["refused by both"] += 1
            elif name in failed:
                found.append(f"{name}: Kafka fails, we do not: {turns[name]['error']}")
            elif name in ours.refused:
                found.append(f"{name}: refused, but not by Kafka: {ours.refused[name]}")
            elif name not in turns or name not in ours.results:
                found.append(f"{name}: cleaned by one only, by Kafka: {name in turns}")
            else:
                found += self.stats_differences(name, turns[name], ours.results[name])
        ratios = [turn["cleanable_ratio"] for turn in turns.values()]
        if ratios != sorted(ratios, reverse=True):
            found.append(f"Kafka's order of ratios is {ratios}")
        lines = self.file_differences(self.ours, self.theirs, settings, passed_over=failed)
        if any(line.partition(":")[0].endswith(".snapshot") for line in lines) and self.loading_never_settles(settings):
            lines = [line for line in lines if not line.partition(":")[0].endswith(".snapshot")]
        return found + lines + self.checkpoint_differences(failed)

    def file_differences(self, ours: Path, theirs: Path, settings: Json, *, passed_over: set[str]) -> list[str]:
        mtimes = {
            str(path.relative_to(theirs)): path.stat().st_mtime_ns // 1_000_000
            for path in theirs.rglob("*")
            if path.suffix in (".log", ".index", ".timeindex") and path.parent.name not in passed_over
        }
        interval = int(settings["config"]["index.interval.bytes"])
        lines = differences(
            ours, theirs, mtimes_ms=mtimes, index_interval_bytes=interval, same_indexes=self.likeness.indexes
        )
        return [
            line
            for line in lines
            if not line.startswith(CLEANER_OFFSET_CHECKPOINT) and line.split("/")[0] not in passed_over
        ]

    def loading_never_settles(self, settings: Json) -> bool:
        """Whether a second load changes the directory again.

        It does while the log start is at or past the newest snapshot: one load deletes all, the next makes new ones.
        """
        again = _fresh_copy(self.unloaded, self.directory / "again")
        snapshots = []
        for _ in range(2):
            self.load(again, settings, in_place=True)
            found = {name: path for name, path in files(again).items() if path.suffix == ".snapshot"}
            snapshots.append({name: path.read_bytes() for name, path in found.items()})
        return snapshots[0] != snapshots[1]

    def stats_differences(self, name: str, turn: Json, result: CleanResult) -> list[str]:
        found = []
        if result.end_offset != turn["end_offset"]:
            found.append(f"{name}: end offset {result.end_offset}, Kafka's {turn['end_offset']}")
        names = list(STATS_FIELDS)
        if _same_bytes(self.ours / name, self.theirs / name):
            names.append("bytes_written")
        for key in names:
            if getattr(result.stats, key) != turn["stats"][key]:
                found.append(f"{name}: {key} {getattr(result.stats, key)}, Kafka's {turn['stats'][key]}")
        return found

    def checkpoint_differences(self, failed: set[str]) -> list[str]:
        ours, theirs = (_entries(log_dir / CLEANER_OFFSET_CHECKPOINT) for log_dir in (self.ours, self.theirs))
        return [
            f"{partition}: checkpoint {ours.get(partition)}, Kafka's {theirs.get(partition)}"
            for partition in sorted(ours.keys() | theirs.keys())
            if ours.get(partition) != theirs.get(partition) and str(partition) not in failed
        ]


def _name(row: Json) -> str:
    return f"{row['topic']}-{row['partition']}"


def _first_words(error: Json) -> str:
    text = f"{error['error'].rpartition('.')[2]}: {error['message']}"
    while "cause" in error:
        error = error["cause"]
        text += f" <- {error['message']}"
    return "".join("#" if character.isdigit() else character for character in text)[:110]


def _entries(path: Path) -> Checkpoint:
    return parse_offset_checkpoint(path.read_bytes(), file=str(path)) if path.exists() else {}


def _set_offsets(path: Path, shares: dict[str, float | None], ranges: dict[str, tuple[int, int]]) -> None:
    """Put entries of a checkpoint where a spec wants them."""
    entries = _entries(path)
    for name, share in shares.items():
        if name not in ranges:
            continue
        topic, _, partition = name.rpartition("-")
        key = TopicPartition(topic, int(partition))
        start, end = ranges[name]
        entries.pop(key, None)
        if share is not None:
            beyond = 3 if share > 1 else -3 if share < 0 else 0
            entries[key] = max(0, start + int(share * (end - start)) + beyond)
        elif path.name == REPLICATION_OFFSET_CHECKPOINT:
            entries[key] = end  # Without an entry kcompact refuses and Kafka waits.
    if shares:
        path.write_bytes(build_offset_checkpoint(entries))


def _fresh_copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return copy_log_dir(source, target)


def _or_none(offset: int | None) -> int:
    return -1 if offset is None else offset


def _producer_differences(plans: dict[str, CleanPlan], loaded: Json) -> list[str]:
    found = []
    for name, seen in loaded.items():
        ours = [
            {
                "producer_id": producer.producer_id,
                "epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_offset": _or_none(producer.last_data_offset),
                "last_timestamp_ms": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_first_offset": _or_none(producer.transaction_first_offset),
            }
            for _, producer in sorted(plans[name].producers.items())
        ]
        if ours != seen["producers"]:
            found.append(f"{name}: producers {unlike(ours, seen['producers'])}")
    return found


def _leaves_its_segment(directory: Path) -> bool:
    """Whether a segment of the partition begins below the offset in its name."""
    logs = [path for path in directory.glob("*.log") if path.stat().st_size]
    return any(int.from_bytes(path.read_bytes()[:8], "big") < int(path.stem) for path in logs)


def _same_bytes(ours: Path, theirs: Path) -> bool:
    mine, other = files(ours), files(theirs)
    return mine.keys() == other.keys() and all(mine[name].read_bytes() == other[name].read_bytes() for name in mine)


def _decisions(plan: Json) -> list[Any]:
    keys = "eligible first_dirty_offset first_uncleanable_offset groups".split()
    return [[row.get(key) for key in keys] for row in plan["partitions"]]
