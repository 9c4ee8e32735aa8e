"""What the tests of swaps share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.files_in_memory import directory_in_memory


@pytest.fixture(autouse=True)
def never_syncs(no_sync: None) -> None:
    """Let nothing wait for the disk: power cuts are simulated by a model of it."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory: these tests make each state of a swap anew."""
    with directory_in_memory() as path:
        yield path
