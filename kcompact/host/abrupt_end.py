"""What has to be undone when this process ends at once, without the usual end of its `with` blocks."""

from __future__ import annotations

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
