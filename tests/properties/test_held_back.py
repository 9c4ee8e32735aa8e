"""Replicas whose cleaners hold back what the others have not fetched, however long these are away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated_replicas import Keeps, SimulatedPartition, after_outages

pytestmark = pytest.mark.long

TELLING = (0, 6, 7)
"""With two replicas and three, producers with an epoch for each transaction and without: keys come back in two of them,
and a transaction hangs in the other."""
SEEDS = [pytest.param(seed, marks=() if seed in TELLING else pytest.mark.slow) for seed in range(8)]


def wrong_in(partition: SimulatedPartition) -> tuple[int, int]:
    """Return how many keys are wrong in all replicas together, and transactions that are open in one of them only."""
    opened = [replica.open_transactions for replica in partition.replicas]
    hanging = sum(len(each - opened[other]) for each in opened for other in range(partition.count))
    return sum(len(partition.wrong_keys(number)) for number in range(partition.count)), hanging


@pytest.mark.parametrize("seed", SEEDS)
def test_no_key_comes_back_and_no_transaction_hangs(seed: int, tmp_path: Path) -> None:
    assert wrong_in(after_outages(tmp_path, seed, holds_back=True)) == (0, 0)


@pytest.mark.parametrize(
    ("keeps", "seed"),
    [(Keeps.HIGH_WATERMARK, 6), (Keeps.NOTHING, 6)]
    + [pytest.param(Keeps.HIGH_WATERMARK, seed, marks=pytest.mark.slow) for seed in range(6)],
)
def test_also_if_they_have_lost_their_epochs(keeps: Keeps, seed: int, tmp_path: Path) -> None:
    assert wrong_in(after_outages(tmp_path, seed, holds_back=True, keeps=keeps)) == (0, 0)


def test_without_it_they_do(tmp_path: Path) -> None:
    wrong = [wrong_in(after_outages(tmp_path / str(seed), seed, holds_back=False)) for seed in TELLING]
    assert sum(keys for keys, _ in wrong) > 10
    assert sum(hanging for _, hanging in wrong) > 0
