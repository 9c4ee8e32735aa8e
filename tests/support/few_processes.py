"""A machine without other processes, for tests that clean many partitions.

Each cleaning looks at all processes of the machine. The more there are, the longer it takes, and such a test is not
about them. `tests/unit/cleaner/test_in_use.py` has the tests of that look.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from kcompact.host import other_processes


@contextmanager
def no_other_process() -> Iterator[None]:
    """Make kcompact see no process but this one."""
    with mock.patch.object(other_processes, "_processes", return_value=[os.getpid()]):
        yield
