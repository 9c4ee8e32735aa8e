"""A machine on which tests wait for nothing: no other process is seen, and no write waits for the disk.

Each cleaning looks at all processes of the machine, and syncs each file. Few tests are about either. Those of the look
have the fixture `among_others`; power cuts are simulated by a model of the disk, which has its own `os.fsync`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kcompact.host import other_processes

ALL_PROCESSES = other_processes._processes


@contextmanager
def quiet_machine() -> Iterator[None]:
    """Make kcompact see no process but this one, and `os.fsync` do nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other_processes, "_processes", lambda: [os.getpid()])
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
