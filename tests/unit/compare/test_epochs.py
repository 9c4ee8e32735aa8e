"""Where two replicas fork, by the epochs of their batches."""

from __future__ import annotations

import pytest

from kcompact.compare.epochs import EpochRun, fork_of, forks_of

A = EpochRun(1, 0, 99)


@pytest.mark.parametrize(
    ("one", "other", "fork"),
    [
        ([A], [A], None),
        ([], [A], None),
        ([A, EpochRun(2, 100, 149)], [A], None),
        ([A, EpochRun(2, 120, 149)], [EpochRun(1, 0, 110)], None),
        ([A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 119)], 100),
        ([A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 119), EpochRun(2, 120, 129)], 100),
        ([A, EpochRun(3, 125, 149)], [A, EpochRun(2, 120, 140)], 120),
        # The epoch before the contradiction is gone from one of them: they agree on nothing.
        ([EpochRun(3, 100, 149)], [EpochRun(1, 0, 119)], 0),
        # Both have epoch 4, and contradict each other before and after it.
        (
            [A, EpochRun(3, 100, 149), EpochRun(4, 150, 180), EpochRun(5, 181, 190)],
            [EpochRun(1, 0, 119), EpochRun(4, 150, 190)],
            100,
        ),
        # A leader without records of its own leaves no epoch.
        ([A, EpochRun(4, 100, 149)], [A, EpochRun(4, 110, 149)], None),
        # The first record of an epoch was removed from one of them.
        ([A, EpochRun(2, 100, 149), EpochRun(3, 150, 160)], [A, EpochRun(2, 120, 130), EpochRun(3, 155, 160)], None),
    ],
)
def test_fork(one: list[EpochRun], other: list[EpochRun], fork: int | None) -> None:
    assert fork_of(one, other) == fork
    assert fork_of(other, one) == fork


def test_the_line_of_the_newest_leader_has_no_damaged_replica_and_depends_on_no_order() -> None:
    one, other = [A, EpochRun(3, 100, 149)], [EpochRun(1, 0, 109), EpochRun(3, 110, 149)]
    assert forks_of([one, other], [False, False]) == forks_of([other, one], [False, False])[::-1]
    newer, older = [A, EpochRun(5, 100, 100), EpochRun(6, 120, 149)], [A, EpochRun(3, 100, 149)]
    assert forks_of([newer, older], [False, False]) == [None, 100]
    assert forks_of([newer, older], [True, False]) == [100, None]
