"""What all properties share. What is of a wider scope than a test is so because hypothesis allows no other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.few_processes import no_other_process
from tests.support.files_in_memory import directory_in_memory


@pytest.fixture(scope="module", autouse=True)
def memory() -> Iterator[Path]:
    """A directory in memory, also for the temporary files of each example."""
    with directory_in_memory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(path))
        yield path


@pytest.fixture
def tmp_path(memory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=memory))


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """Let no other process of the machine be seen."""
    with no_other_process():
        yield


@pytest.fixture(scope="module", autouse=True)
def never_syncs() -> Iterator[None]:
    """As `no_sync`: no property is about power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
