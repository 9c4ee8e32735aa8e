"""Where two replicas fork, by the epochs of their batches."""

from __future__ import annotations

import pytest

from kcompact.questions.compare.epochs import EpochRun, Line, fork_of, lines_of

A = EpochRun(1, 0, 99)


@pytest.mark.parametrize(
    ("one", "other", "fork"),
    [
        ([A], [A], None),
        ([], [A], None),
        ([A, EpochRun(2, 100, 149)], [A], None),
        ([A, EpochRun(2, 120, 149)], [EpochRun(1, 0, 110)], None),
        ([A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 119)], (100, 100)),
        ([A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 119), EpochRun(2, 120, 129)], (100, 100)),
        ([A, EpochRun(3, 125, 149)], [A, EpochRun(2, 120, 140)], (120, 125)),
        # The first records of epoch 3 are gone: it can have begun at 100.
        ([A, EpochRun(3, 107, 149)], [EpochRun(1, 0, 119)], (100, 107)),
        # What one has of epoch 1 above the other is on its own line, or was cleaned away.
        ([A, EpochRun(3, 125, 149)], [EpochRun(1, 0, 95), EpochRun(2, 120, 140)], (96, 125)),
        # The epoch before the contradiction is gone from one of them: they agree on nothing.
        ([EpochRun(3, 100, 149)], [EpochRun(1, 0, 119)], (0, 100)),
        # Both have epoch 4, and contradict each other before and after it.
        (
            [A, EpochRun(3, 100, 149), EpochRun(4, 150, 180), EpochRun(5, 181, 190)],
            [EpochRun(1, 0, 119), EpochRun(4, 150, 190)],
            (100, 100),
        ),
        # A leader without records of its own leaves no epoch.
        ([A, EpochRun(4, 100, 149)], [A, EpochRun(4, 110, 149)], None),
        # The first record of an epoch was removed from one of them.
        ([A, EpochRun(2, 100, 149), EpochRun(3, 150, 160)], [A, EpochRun(2, 120, 130), EpochRun(3, 155, 160)], None),
    ],
)
def test_fork(one: list[EpochRun], other: list[EpochRun], fork: tuple[int, int] | None) -> None:
    for found in (fork_of(one, other), fork_of(other, one)):
        assert (None if found is None else (found[0], found[-1])) == fork


def forks_of(*epochs: list[EpochRun], damaged: int | None = None) -> list[int | None]:
    are_damaged = [number == damaged for number in range(len(epochs))]
    return [line.fork for line in lines_of(epochs, are_damaged, [0] * len(epochs))]


def test_the_line_of_the_newest_leader_has_no_damaged_replica_and_depends_on_no_order() -> None:
    one, other = [A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 109), EpochRun(3, 110, 149)]
    assert forks_of(one, other) == forks_of(other, one)[::-1]
    newer, older = [A, EpochRun(5, 100, 100), EpochRun(6, 120, 149)], [A, EpochRun(3, 100, 149)]
    assert forks_of(newer, older) == [None, 100]
    assert forks_of(newer, older, damaged=0) == [100, None]


NEWEST = [EpochRun(1, 0, 94), EpochRun(3, 107, 149)]
"""Its cleaner has removed what lay at 95 to 106."""


@pytest.mark.parametrize(
    ("older", "high_watermark", "line"),
    [
        ([EpochRun(1, 0, 94)], 0, Line()),
        # Nobody else has 95 to 99, and epoch 3 can have begun at 95.
        ([A], 0, Line(doubt=95)),
        ([A], 95, Line(doubt=95)),
        ([A], 97, Line(doubt=97)),
        ([A], 100, Line()),
        ([EpochRun(1, 0, 94), EpochRun(2, 96, 99)], 0, Line(doubt=95)),
        # It reaches above the first record of epoch 3 that is left.
        ([EpochRun(1, 0, 110)], 0, Line(fork=95)),
        ([EpochRun(1, 0, 110)], 98, Line(fork=98)),
        ([EpochRun(1, 0, 110)], 107, Line(fork=107)),
        # An unclean election: what was committed is on no line.
        ([EpochRun(1, 0, 110)], 108, Line(fork=95)),
    ],
)
def test_where_a_replica_may_leave_the_line(older: list[EpochRun], high_watermark: int, line: Line) -> None:
    assert lines_of([NEWEST, older], [False, False], [150, high_watermark]) == [Line(), line]
    # Another one on the line that has its records proves that they are on it.
    whole = [A, EpochRun(3, 100, 149)]
    if line.fork is None and fork_of(whole, older) is None:
        assert lines_of([NEWEST, whole, older], [False] * 3, [150, 150, high_watermark])[2] == Line()


def test_what_is_in_doubt_itself_proves_nothing() -> None:
    crashed, follower = [A, EpochRun(2, 100, 110)], [A]
    assert lines_of([NEWEST, crashed, follower], [False] * 3, [150, 95, 95]) == [Line(), Line(fork=95), Line(doubt=95)]
    newest = [EpochRun(1, 0, 94), EpochRun(3, 120, 149)]
    assert lines_of([newest, crashed, follower], [False] * 3, [150, 95, 95]) == [Line(), Line(doubt=95), Line(doubt=95)]
