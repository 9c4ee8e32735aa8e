"""No core dumps: the memory of this process and of its children holds keys and values of records."""

from __future__ import annotations

import resource
from contextlib import suppress


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and of all processes that it starts. Raises nothing."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
