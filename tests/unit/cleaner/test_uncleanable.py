"""The partitions that a service passes over: when they are recovered, and when they are forgotten."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner import recovery as recovering
from kcompact.cleaner.service import Cleaner
from kcompact.cleaner.states import ABORTED, paused
from kcompact.errors import RecoveryNeededError
from kcompact.format.names import TopicPartition
from kcompact.plan.discovery import is_gone
from kcompact.swap.recovery.end import end_recoveries
from tests.support import log_dsl
from tests.support.command_line import COMPACTED, digest, partition, values
from tests.support.patience import PATIENCE_S, becomes

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def half_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cleaner:
    """A service whose first swap stops after its commit point."""
    partition(tmp_path)
    rename, failed = os.rename, threading.Event()

    def failing(source: str, target: str, **options: Any) -> None:
        if target.endswith(".log.deleted") and not failed.is_set():
            failed.set()
            raise OSError(5, "Input/output error")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", failing)
    config = {"cleanup.policy": "compact", "log.cleaner.backoff.ms": "20"}
    return Cleaner(tmp_path, config, clock=lambda: log_dsl.time_of("10:00"))


def await_half_swapped(cleaner: Cleaner) -> None:
    assert becomes(lambda: ORDERS in cleaner.uncleanable_partitions)
    assert isinstance(cleaner.uncleanable_partitions[ORDERS].cause, RecoveryNeededError)


def test_a_paused_partition_is_not_recovered(half_swapped: Cleaner, tmp_path: Path) -> None:
    with half_swapped as cleaner:
        await_half_swapped(cleaner)
        cleaner.abort_and_pause_cleaning(ORDERS)
        before = digest(tmp_path)
        cleaner.forget_uncleanable()
        assert (digest(tmp_path), cleaner.uncleanable_partitions, cleaner.state_of(ORDERS)) == (before, {}, paused(1))
        cleaner.resume_cleaning([ORDERS])
        await_half_swapped(cleaner)
        cleaner.forget_uncleanable(ORDERS)
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert values(tmp_path / "orders-0") == COMPACTED


def test_a_pause_waits_for_a_recovery(half_swapped: Cleaner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with half_swapped as cleaner:
        await_half_swapped(cleaner)
        pausing = threading.Thread(target=cleaner.abort_and_pause_cleaning, args=[ORDERS])

        def end(*arguments: Any) -> Any:
            pausing.start()
            assert becomes(lambda: cleaner.state_of(ORDERS) == ABORTED)
            return end_recoveries(*arguments)

        monkeypatch.setattr(recovering, "end_recoveries", end)
        cleaner.forget_uncleanable()
        pausing.join(PATIENCE_S)
        assert cleaner.state_of(ORDERS) == paused(1)
        assert not any(tmp_path.glob("orders-0/.kcompact-*"))


@pytest.mark.parametrize(("problem", "expected"), [(PermissionError, False), (FileNotFoundError, True), (None, False)])
def test_what_cannot_be_looked_at_is_not_gone(
    problem: type[OSError] | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def failing(path: Path, **options: Any) -> os.stat_result:
        if problem is not None:
            raise problem
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", failing)
    assert is_gone(tmp_path) == expected
