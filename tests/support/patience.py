"""How long a test waits for what has to happen: only a test that fails waits so long, on however slow a machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 600.0
_LOOK_EVERY_S = 0.02


def becomes(is_so: Callable[[], object], *, look_every_s: float = _LOOK_EVERY_S) -> bool:
    """Return True as soon as something is so, False if it is not within `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(look_every_s)
    return True
