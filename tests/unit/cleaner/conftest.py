"""What the tests of rounds share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.few_processes import no_other_process


@pytest.fixture(autouse=True)
def never_syncs(no_sync: None) -> None:
    """Let nothing wait for the disk: no test here simulates a power cut."""


@pytest.fixture(scope="module", autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no other process of the machine be seen, but in the tests that are about them."""
    if request.node.path.stem == "test_in_use":
        yield
        return
    with no_other_process():
        yield
