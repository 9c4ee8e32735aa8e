"""A pytest fixture that compacts Kafka partition directories at a time of the test's choice.

    def test_the_newest_price_survives(tmp_path, compact):
        shutil.copytree("kafka-logs", tmp_path / "kafka-logs")
        result = compact(tmp_path / "kafka-logs", now="2024-01-01T00:00:00Z")

pytest finds this plugin when kcompact is installed. `docs/python.md` and `examples/compacted-topic` show it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from kcompact.cleaner.outcome import RoundResult


class Compact(Protocol):
    """The type of the fixture `compact`."""

    def __call__(
        self,
        directory: str | os.PathLike[str],
        *,
        now: int | str | datetime | None = None,
        config: Mapping[str, str] | None = None,
        force: bool = True,
    ) -> RoundResult:
        """Compact a log directory, or one partition directory, in place; raise the first failure.

        `now` is Unix milliseconds, ISO 8601 or a datetime, UTC unless it names another zone; None is the clock.
        `config` has settings by Kafka's names; every topic has `cleanup.policy=compact` unless it says otherwise.
        `force` cleans at any dirty ratio. The last segment of a partition is never cleaned, as in Kafka.
        """


@pytest.fixture(scope="session")
def compact() -> Compact:
    """Compact a copy of a Kafka log directory: `compact(directory, now=...)`. See `Compact`."""
    # Imported here, so that pytest starts fast where this plugin is installed and not used.
    from kcompact.cleaner.round import clean_log_dir
    from kcompact.config.broker_config import BrokerConfig
    from kcompact.host.machine import clock_ms
    from kcompact.plan.options import PlanOptions

    def run(
        directory: str | os.PathLike[str],
        *,
        now: int | str | datetime | None = None,
        config: Mapping[str, str] | None = None,
        force: bool = True,
    ) -> RoundResult:
        now_ms = clock_ms() if now is None else _milliseconds(now)
        # Kafka's defaults count: the result must not depend on a broker of this machine.
        options = PlanOptions(now_ms=now_ms, force=force, broker_config=BrokerConfig())
        result = clean_log_dir(directory, {"cleanup.policy": "compact", **(config or {})}, plan_options=options)
        result.raise_failure()
        return result

    return run


def _milliseconds(now: int | str | datetime) -> int:
    if isinstance(now, int):
        return now
    moment = datetime.fromisoformat(now) if isinstance(now, str) else now
    if not isinstance(moment, datetime):
        raise TypeError(f"now={now!r} is neither whole Unix milliseconds, nor ISO 8601, nor a datetime")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
