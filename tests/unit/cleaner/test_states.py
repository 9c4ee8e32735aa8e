"""`cleaner.states`: the table of transitions, and what no sequence of events can do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.cleaner.states import ABORTED, IN_PROGRESS, NONE, Event, State, StateKind, after, paused
from kcompact.errors import CleanerStateError, CleaningAbortedError, KcompactError
from kcompact.format.names import TopicPartition

PARTITION = TopicPartition("orders", 3)


def follow(state: State, event: Event) -> State | type[KcompactError]:
    """Return the state after an event, or the class of the error."""
    try:
        return after(state, event, partition=PARTITION)
    except KcompactError as problem:
        return type(problem)


WRONG, STOP = CleanerStateError, CleaningAbortedError

# fmt: off
TABLE = [
    # event                     none         in progress  aborted     paused(1)    paused(2)
    (Event.START_CLEANING,      IN_PROGRESS, IN_PROGRESS, ABORTED,    paused(1),   paused(2)),
    (Event.START_DELETING,      IN_PROGRESS, IN_PROGRESS, ABORTED,    paused(1),   paused(2)),
    (Event.ABORT_AND_PAUSE,     paused(1),   ABORTED,     WRONG,      paused(2),   paused(3)),
    (Event.RESUME,              WRONG,       WRONG,       WRONG,      NONE,        paused(1)),
    (Event.CHECK,               NONE,        IN_PROGRESS, STOP,       paused(1),   paused(2)),
    (Event.DONE_CLEANING,       WRONG,       NONE,        paused(1),  WRONG,       WRONG),
    (Event.DONE_DELETING,       WRONG,       NONE,        paused(1),  WRONG,       WRONG),
]
# fmt: on


@pytest.mark.parametrize(("event", "expected"), [(event, cells) for event, *cells in TABLE])
def test_every_transition(event: Event, expected: list[State | type[KcompactError]]) -> None:
    states = [NONE, IN_PROGRESS, ABORTED, paused(1), paused(2)]
    assert [follow(state, event) for state in states] == expected


def test_the_table_has_every_event() -> None:
    assert [event for event, *_ in TABLE] == list(Event)


def test_an_error_names_partition_event_and_state() -> None:
    with pytest.raises(CleanerStateError, match=r"^orders-3: 'done cleaning' is not possible .* 'paused\(2\)'\n"):
        after(paused(2), Event.DONE_CLEANING, partition=PARTITION)
    with pytest.raises(CleaningAbortedError, match=r"^orders-3: "):
        after(ABORTED, Event.CHECK, partition=PARTITION)


@given(st.lists(st.sampled_from(Event)))
def test_no_sequence_of_events_loses_count_of_the_pauses(events: list[Event]) -> None:
    state = NONE
    for event in events:
        found = follow(state, event)
        following = found if isinstance(found, State) else state
        # Pauses are at least 1 in the paused state and 0 in every other.
        assert (following.pauses >= 1) == (following.kind is StateKind.PAUSED)
        # An event adds or takes at most one. Only an abort that is done may turn a state in progress into a pause.
        assert abs(following.pauses - state.pauses) <= 1
        if state.kind is StateKind.IN_PROGRESS:
            assert following in (NONE, IN_PROGRESS, ABORTED)
        if state.kind is StateKind.ABORTED:
            assert following in (ABORTED, paused(1))
        state = following


@given(st.lists(st.sampled_from(Event), min_size=1), st.integers(min_value=1, max_value=5))
def test_each_resume_undoes_one_pause(events: list[Event], pauses: int) -> None:
    state = NONE
    for event in events:
        found = follow(state, event)
        state = found if isinstance(found, State) else state
    if state.kind in (StateKind.NONE, StateKind.PAUSED):
        again = state
        for event in [Event.ABORT_AND_PAUSE] * pauses + [Event.RESUME] * pauses:
            again = after(again, event, partition=PARTITION)
        assert again == state


@pytest.mark.parametrize(
    ("state", "text"), [(NONE, "none"), (IN_PROGRESS, "in progress"), (ABORTED, "aborted"), (paused(2), "paused(2)")]
)
def test_a_state_as_text(state: State, text: str) -> None:
    assert str(state) == text
