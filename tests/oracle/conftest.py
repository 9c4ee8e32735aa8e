"""The real Kafka, started once for all tests that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.real_kafka import RealKafka


@pytest.fixture(autouse=True)
def beside_brokers(among_others: None) -> None:
    """Let kcompact see the brokers that these tests start."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    with RealKafka() as kafka:
        yield kafka
