"""What all properties share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def examples_in_memory(memory: Path) -> Iterator[None]:
    """Let the examples have their temporary files in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(memory))
        yield
