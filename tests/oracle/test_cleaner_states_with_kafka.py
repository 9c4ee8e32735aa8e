"""Kafka's own manager of the cleaner takes a partition through the same states as `cleaner.states`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcompact.cleaner.states import ABORTED, IN_PROGRESS, NONE, Event, State, after, paused
from kcompact.errors import CleanerStateError, CleaningAbortedError
from tests.oracle.real_kafka import Json, RealKafka
from tests.support import log_dsl, log_writer

pytestmark = pytest.mark.oracle

SPEC = log_dsl.parse("log now=10:00 min.cleanable.dirty.ratio=0\n0: a=1 a=2\n2: b=1")
"""A log that is always dirty: here no cleaning moves its checkpoint."""
SETTINGS = {"cleanup.policy": "compact", **SPEC.settings}

METHODS = {
    Event.START_CLEANING: "grabFilthiestCompactedLog",
    Event.START_DELETING: "deletableLogs",
    Event.ABORT_AND_PAUSE: "abortAndPauseCleaning",
    Event.RESUME: "resumeCleaning",
    Event.CHECK: "checkCleaningAborted",
    Event.DONE_CLEANING: "doneCleaning",
    Event.DONE_DELETING: "doneDeleting",
}
KAFKA_ERRORS = {
    CleanerStateError: "java.lang.IllegalStateException",
    CleaningAbortedError: "org.apache.kafka.storage.internals.log.LogCleaningAbortedException",
}

WAYS: dict[State, list[list[Event]]] = {
    NONE: [[], [Event.START_CLEANING, Event.DONE_CLEANING]],
    IN_PROGRESS: [[Event.START_CLEANING], [Event.START_DELETING]],
    ABORTED: [[Event.START_CLEANING, Event.ABORT_AND_PAUSE], [Event.START_DELETING, Event.ABORT_AND_PAUSE]],
    paused(1): [
        [Event.ABORT_AND_PAUSE],
        [Event.START_CLEANING, Event.ABORT_AND_PAUSE, Event.DONE_CLEANING],
    ],
    paused(2): [[Event.ABORT_AND_PAUSE] * 2],
    paused(3): [[Event.ABORT_AND_PAUSE] * 3],
}
"""Each state, and the sequences of events that lead to it."""


def expected(events: Sequence[Event]) -> list[Json]:
    """Return for each event the state after it, Kafka's error, and whether a caller waits for the pause."""
    state, found = NONE, []
    for event in events:
        error = None
        try:
            state = after(state, event, partition=SPEC.topic_partition)
        except (CleanerStateError, CleaningAbortedError) as problem:
            error = KAFKA_ERRORS[type(problem)]
        found.append({"state": str(state), "waits": state == ABORTED, "error": error})
    return found


def compare(sequences: Sequence[Sequence[Event]], kafka: RealKafka, log_dir: Path) -> None:
    """Compare each sequence of events; a failure shows the first that differs."""
    log_writer.write(SPEC, log_dir)
    methods = [[METHODS[event] for event in events] for events in sequences]
    replies = kafka.states(log_dir, config=SETTINGS, now_ms=SPEC.now_ms, sequences=methods)
    assert len(replies) == len(sequences)
    for events, reply in zip(sequences, replies, strict=True):
        theirs = [{"state": one["state"], "waits": one["waits"], "error": one.get("error")} for one in reply]
        assert expected(events) == theirs, [str(event) for event in events]


def test_every_transition(kafka: RealKafka, tmp_path: Path) -> None:
    for state, ways in WAYS.items():
        assert {expected(way)[-1]["state"] for way in ways if way} <= {str(state)}
    compare([[*way, event] for ways in WAYS.values() for way in ways for event in Event], kafka, tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_sequences(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    rng = random.Random(seed)
    sequences = [rng.choices(list(Event), k=rng.randint(2, 12)) for _ in range(200)]
    # Starts and aborts are more frequent here, so that fewer events are errors.
    busy = [Event.START_CLEANING, Event.ABORT_AND_PAUSE, Event.DONE_CLEANING, Event.RESUME, *Event]
    sequences += [rng.choices(busy, k=20) for _ in range(100)]
    compare(sequences, kafka, tmp_path)
