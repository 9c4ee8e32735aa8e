"""What all properties share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def examples_in_memory(in_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the examples have their temporary files in memory."""
    tmp_path_factory.getbasetemp()  # It is made when it is first asked for, and stays on disk.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(in_memory))
        yield
