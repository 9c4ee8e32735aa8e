"""A log of one segment and a staging directory, for the tests of writing and joining parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import log_dsl, log_writer
from tests.support.parts import LINE


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(f"log\n{LINE}"), tmp_path / "logs")


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    path = tmp_path / "staging"
    path.mkdir()
    return path
