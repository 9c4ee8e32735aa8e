"""Every cause that people have found for "my topic does not compact" is named, on a log that has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override, parse_override
from kcompact.plan.conditions import Verdict
from kcompact.plan.explanation import explain_all
from kcompact.plan.horizons import read_all_horizons
from kcompact.plan.partition import plan_partition
from kcompact.plan.verdict import ConditionName
from tests.support import log_dsl, log_writer


class Cause(NamedTuple):
    """A log, the settings if not those of the log, and what is said. `decides` None: the partition is cleaned."""

    log: str
    condition: ConditionName
    verdict: Verdict
    sentence: str
    decides: ConditionName | None = None
    broker: Sequence[str] = ()
    others: str = ""


ACTIVE, RATIO, BLOCKS, DELAYS = ConditionName.ACTIVE_SEGMENT, ConditionName.RATIO, Verdict.BLOCKS, Verdict.DELAYS

CAUSES = {
    "the active segment never rolls": Cause(
        "log now=10:00\n0: a=1 b=1 a=2",
        ACTIVE,
        BLOCKS,
        "all dirty records are in the active segment, which is never cleaned and supersedes nothing: 210 B of "
        "segment.bytes 1.0 GiB; a broker closes it when it appends a record of 2024-01-08T09:00:00.001Z or later",
        ACTIVE,
    ),
    "low traffic: nothing rolls, so nothing is dirty": Cause(
        "log now=10:00 checkpoint=3\n0: a=1 b=1 a=2\n3:",
        ConditionName.DIRTY_RECORDS,
        BLOCKS,
        "the log is clean up to its end, offset 3; without new records it stays so",
        ConditionName.DIRTY_RECORDS,
    ),
    "the ratio is not exceeded": Cause(
        "log now=10:00 checkpoint=3\n0: a=1 b=1 c=*100\n3: a=2\n4: a=3",
        RATIO,
        BLOCKS,
        "ratio 0.1837 is not above 0.5; 242 B more in closed segments would be enough",
        RATIO,
    ),
    "the newest values are still in the active segment": Cause(
        "log now=10:00\n0: a=1 b=1\n2: a=2",
        ACTIVE,
        Verdict.LIMITS,
        "the newest records are in the active segment, which is never cleaned and supersedes nothing",
    ),
    "min.compaction.lag.ms": Cause(
        "log now=10:00 min.compaction.lag.ms=1h\n0: a=1 a=2^09:31\n2: a=3",
        ConditionName.MIN_LAG,
        BLOCKS,
        "segment 0 and those after it are younger than min.compaction.lag.ms 3600000; segment 0 is as old as "
        "min.compaction.lag.ms at 2024-01-01T10:31:00Z",
        ConditionName.MIN_LAG,
    ),
    "an open or hanging transaction": Cause(
        "log now=10:00\n0: a=1 a=2(pid=7 txn)\n2: b=1\n3: b=3\nsnapshot 4: pid=7 last=1 seq=0 open=1",
        ConditionName.LAST_STABLE_OFFSET,
        BLOCKS,
        "a transaction is open from offset 1; nothing from its segment on is cleaned: producer 7, epoch 0",
        ConditionName.LAST_STABLE_OFFSET,
    ),
    "another partition is always dirtier": Cause(
        "log now=10:00 checkpoint=2\n0: a=1 b=1\n2: a=2 b=2 a=3\n5: c=1",
        ConditionName.ORDER,
        DELAYS,
        "1 partition with 210 B to rewrite comes before it; 1 thread of the broker always takes the dirtiest",
        others="log name=busy-0 now=10:00\n0: a=1 a=2 a=3\n3: c=1",
    ),
    "another partition is as dirty": Cause(
        "log now=10:00\n0: a=1 b=1\n2: a=2 b=2 a=3\n5: c=1",
        ConditionName.ORDER,
        DELAYS,
        "no partition that was read is dirtier; 2 are equal, the order of these is not specified; 1 thread of the "
        "broker always takes the dirtiest",
        others="log name=busy-0 now=10:00\n0: a=1 a=2 a=3\n3: c=1",
    ),
    "the map is too small, so several passes are needed": Cause(
        "log now=10:00\n0: a=1@60000\n60001: a=2",
        ConditionName.BUFFER,
        DELAYS,
        "up to 2 passes: at most 60,001 keys, and the map is full at 40,196",
        broker=["log.cleaner.dedupe.buffer.size=1071922"],
    ),
    "cleanup.policy is not what one thinks": Cause(
        "log now=10:00 cleanup.policy=delete\n0: a=1 a=2\n2: a=3",
        ConditionName.POLICY,
        BLOCKS,
        "cleanup.policy is 'delete', without compact",
        ConditionName.POLICY,
    ),
    "the cleaner died": Cause(
        "log now=10:00\n0: a=1^06:00 a=2^06:01\n2: a=3^06:02 a=4^08:00",
        ConditionName.UNCLEANABLE,
        DELAYS,
        "eligible since 2024-01-01T06:02:00Z at the latest, and a broker has gone on writing: unless its cleaner is "
        "far behind, a thread of it has died or has marked the partition uncleanable; its log-cleaner.log says so",
    ),
    "tombstones before their horizon": Cause(
        "log now=10:00 checkpoint=4\n0: b=1@2 a=~@3(horizon=1d09:30)\n4: c=1",
        ConditionName.TOMBSTONES,
        DELAYS,
        "1 batch that kept tombstones or markers waits for its horizon, the last one 2024-01-02T09:30:00Z; the first "
        "cleaning after it drops them; a cleaning from 2024-01-02T09:30:00Z on drops the first of them",
        ACTIVE,
    ),
    "tombstones before their second pass": Cause(
        "log now=10:00 checkpoint=4\n0: b=1@2 a=~@3(horizon=09:45)\n4: c=1",
        ConditionName.TOMBSTONES,
        Verdict.OK,
        "horizons that have passed: 1; the next cleaning drops what they have left",
        ACTIVE,
    ),
    "a merged segment always holds something young": Cause(
        "log now=3d10:00 cleanup.policy=compact,delete retention.ms=2d checkpoint=4\n"
        "0: a=1 b=1^2d09:00\n4: c=1^3d09:00",
        ConditionName.RETENTION,
        DELAYS,
        "segment 0 holds records past retention.ms, and one of 2024-01-03T09:00:00Z: a merged segment is deleted as a "
        "whole, when its newest record is old enough; segment 0 is due from 2024-01-05T09:00:00.001Z on",
        ACTIVE,
    ),
    "log.cleaner.enable is off": Cause(
        "log now=10:00\n0: a=1 a=2\n2: a=3",
        ConditionName.CLEANER_ENABLE,
        BLOCKS,
        "the broker's own cleaner is switched off and compacts nothing; kcompact does",
        ConditionName.CLEANER_ENABLE,
        broker=["log.cleaner.enable=false"],
    ),
    "throttled": Cause(
        "log now=10:00\n0: a=1 a=2\n2: a=3",
        ConditionName.THROTTLE,
        DELAYS,
        "all threads together read and write at most 2 B a second: about 210 seconds for this partition",
        broker=["log.cleaner.io.max.bytes.per.second=2"],
    ),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
def test_a_cause_is_named(cause: Cause, tmp_path: Path) -> None:
    plans = []
    for text in filter(None, (cause.log, cause.others)):
        spec = log_dsl.parse(text)
        settings = {"cleanup.policy": "compact", **spec.settings}
        given = [Override(name=name, value=value) for name, value in settings.items()]
        config = topic_config(spec.name[:-2], overrides=[*given, *map(parse_override, cause.broker)])
        plans.append(plan_partition(log_writer.write(spec, tmp_path), config, now_ms=spec.now_ms))
    explanation = explain_all(plans, read_all_horizons(plans))[0]
    found = {each.name: each for each in explanation.conditions}[cause.condition]
    assert found.verdict is cause.verdict
    said = "; ".join([found.explanation, *([found.forecast.explanation] if found.forecast else [])])
    assert said.startswith(cause.sentence)
    if cause.decides:
        assert explanation.decided_by is cause.decides
    else:
        assert explanation.plan.eligible


@pytest.mark.parametrize(
    ("recovery", "unclean", "verdict", "sentence"),
    [
        (0, False, BLOCKS, "the broker was not shut down cleanly: .kafka_cleanshutdown is missing"),
        (0, True, BLOCKS, "a broker recovers the log from offset 0 on when it starts"),
        (2, True, Verdict.LIMITS, "a broker recovers the log from offset 2 on when it starts"),
        (4, True, Verdict.OK, "a broker recovers the log from offset 4 on when it starts"),
    ],
)
def test_after_an_unclean_shutdown(
    recovery: int, unclean: bool, verdict: Verdict, sentence: str, tmp_path: Path
) -> None:
    spec = log_dsl.parse(f"log now=10:00 unclean recovery={recovery}\n0: a=1 a=2\n2: a=3 a=4\n4: a=5")
    directory = log_writer.write(spec, tmp_path)
    (explanation,) = explain_all([plan_partition(directory, spec.config, now_ms=spec.now_ms, unclean=unclean)])
    found = next(each for each in explanation.conditions if each.name is ConditionName.CLEAN_SHUTDOWN)
    assert (found.verdict, found.explanation) == (verdict, sentence)
    assert found.decides == (verdict is BLOCKS)


@pytest.mark.parametrize(
    ("name", "text", "decides", "sentence"),
    [
        (
            "__consumer_offsets-0",
            "",
            ConditionName.INTERNAL,
            "__consumer_offsets is an internal topic of Kafka",
        ),
        ("orders-0", ".swap", ConditionName.UNCLEANABLE, "an interrupted swap of a broker left files behind"),
    ],
)
def test_what_only_kcompact_leaves_alone(
    name: str, text: str, decides: ConditionName, sentence: str, tmp_path: Path
) -> None:
    spec = log_dsl.parse(f"log name={name} now=10:00\n0: a=1 a=2\n2: a=3")
    directory = log_writer.write(spec, tmp_path)
    if text:
        (directory / f"00000000000000000000.log{text}").write_bytes(b"")
    (explanation,) = explain_all([plan_partition(directory, spec.config, now_ms=spec.now_ms)])
    assert explanation.decided_by is decides
    assert explanation.decisive.explanation.startswith(sentence)
