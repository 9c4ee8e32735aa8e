"""The states of a partition in the cleaner, and every transition as one table. Pure.

    none -> in progress -> none                            a cleaning that ends
    none -> in progress -> aborted -> paused(1)            a cleaning that is aborted: it stops at its next check
    none -> paused(1) -> paused(2) -> paused(1) -> none    pauses add up; each resume undoes one

A cleaning and a deletion of old segments both hold a partition in progress, so a partition never has two of them.
To abort without a pause is two events, `ABORT_AND_PAUSE` and, after the wait, `RESUME`.
Rule: `LogCleanerManager`, `LogCleaningState`.
"""

from __future__ import annotations

import enum

from kcompact.errors import CleanerStateError, CleaningAbortedError
from kcompact.format.names import TopicPartition
from kcompact.values import dataclass


class StateKind(enum.StrEnum):
    """The kinds of states, in the order of the columns of `TRANSITIONS`."""

    NONE = "none"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class Event(enum.StrEnum):
    """What happens to a partition. Each event is a method of `LogCleanerManager`."""

    START_CLEANING = "start cleaning"
    """`grabFilthiestCompactedLog`"""
    START_DELETING = "start deleting"
    """`deletableLogs`"""
    ABORT_AND_PAUSE = "abort and pause"
    """`abortAndPauseCleaning`"""
    RESUME = "resume"
    """`resumeCleaning`"""
    CHECK = "check for an abort"
    """`checkCleaningAborted`"""
    DONE_CLEANING = "done cleaning"
    """`doneCleaning`"""
    DONE_DELETING = "done deleting"
    """`doneDeleting`"""


class Change(enum.Enum):
    """What an event does to a state: a cell of `TRANSITIONS`."""

    STAY = enum.auto()
    """Nothing changes. A thread that wanted to start work leaves this partition alone."""
    START = enum.auto()
    """The partition is in progress."""
    FINISH = enum.auto()
    """The partition has no state any more."""
    ABORT = enum.auto()
    """The partition is aborted. The caller waits until it is paused."""
    PAUSE = enum.auto()
    """The partition has one pause more, the first after an abort. Callers that wait for it go on."""
    UNPAUSE = enum.auto()
    """The partition has one pause less."""
    STOP = enum.auto()
    """Nothing changes. The cleaning stops with CleaningAbortedError."""
    FAIL = enum.auto()
    """Nothing changes. The caller gets CleanerStateError."""


STAY, START, FINISH, ABORT, PAUSE, UNPAUSE, STOP, FAIL = Change

# fmt: off
_TABLE = (
    # event                      none    in progress  aborted  paused
    (Event.START_CLEANING,       START,  STAY,        STAY,    STAY),
    (Event.START_DELETING,       START,  STAY,        STAY,    STAY),
    (Event.ABORT_AND_PAUSE,      PAUSE,  ABORT,       FAIL,    PAUSE),
    (Event.RESUME,               FAIL,   FAIL,        FAIL,    UNPAUSE),
    (Event.CHECK,                STAY,   STAY,        STOP,    STAY),
    (Event.DONE_CLEANING,        FAIL,   FINISH,      PAUSE,   FAIL),
    (Event.DONE_DELETING,        FAIL,   FINISH,      PAUSE,   FAIL),
)
# fmt: on

TRANSITIONS = {(kind, event): change for event, *row in _TABLE for kind, change in zip(StateKind, row, strict=True)}
"""What each event does in each state."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a partition. `pauses` is at least 1 for a paused partition and 0 for every other."""

    kind: StateKind
    pauses: int = 0

    def __post_init__(self) -> None:
        assert (self.pauses >= 1) if self.kind is StateKind.PAUSED else (self.pauses == 0)

    def __str__(self) -> str:
        return f"{self.kind}({self.pauses})" if self.pauses else str(self.kind)


NONE, IN_PROGRESS, ABORTED = State(StateKind.NONE), State(StateKind.IN_PROGRESS), State(StateKind.ABORTED)


def paused(pauses: int) -> State:
    """Return the state with this number of pauses, which is `NONE` for 0."""
    return State(StateKind.PAUSED, pauses) if pauses else NONE


def after(state: State, event: Event, *, partition: TopicPartition) -> State:
    """Return the state of a partition after an event.

    If the state after `ABORT_AND_PAUSE` is `ABORTED`, the caller waits until the partition is paused.
    Raises CleaningAbortedError for a check of an aborted cleaning, and CleanerStateError for an event that is not
    possible. After both the state is still `state`.
    """
    match TRANSITIONS[state.kind, event]:
        case Change.STAY:
            return state
        case Change.START:
            return IN_PROGRESS
        case Change.FINISH:
            return NONE
        case Change.ABORT:
            return ABORTED
        case Change.PAUSE:
            return paused(state.pauses + 1)
        case Change.UNPAUSE:
            return paused(state.pauses - 1)
        case Change.STOP:
            raise CleaningAbortedError(path=str(partition))
        case Change.FAIL:
            raise CleanerStateError(partition=str(partition), state=str(state), event=event)
