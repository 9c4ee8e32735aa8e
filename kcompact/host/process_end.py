"""The end of this process: what has to be undone when it comes at once, and that it leaves no core dump.

At an abrupt end no `with` block ends as usual. A core dump would hold keys and values of records.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_actions: dict[object, Callable[[], object]] = {}


@contextmanager
def undone_at_abrupt_end(action: Callable[[], object]) -> Iterator[None]:
    """Have `action` called if the process ends at once during the block. The block's end itself does not call it.

    A signal handler calls it, between any two steps of the main thread, so it takes no lock and can be called twice.
    """
    key = object()
    _actions[key] = action
    try:
        yield
    finally:
        del _actions[key]


def undo_all() -> None:
    """Call the actions, the last one first. Raises nothing."""
    for action in reversed(list(_actions.values())):
        with suppress(Exception):
            action()


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and of all processes that it starts. Raises nothing."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
