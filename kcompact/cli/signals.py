"""Handles Ctrl-C, SIGTERM and SIGHUP.

A signal ends the process at once, from the first line of kcompact to the end of the interpreter: most of the time
nothing is half done, and there is no traceback that could show. Only while a partition is being recovered or cleaned, a
signal sets a flag. `StopRequest.check` looks at the flag between two steps and stops the run there, so a swap that has
begun always finishes. A second Ctrl-C ends the process at once; `recover` then finishes or undoes the swap.

This module is imported before everything else, so it imports little.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

# Not in the handler: a signal can come while the main thread imports the same module, which is not complete then.
from kcompact.host.process_end import undo_all

TYPE_CHECKING = False  # Not from `typing`, which takes longer to import than all that is needed here.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = b"\ninterrupted\n"
_STOPPING = b"\nstopping after the current step"
_FIRST = {
    signal.SIGINT: _STOPPING + b"; press Ctrl-C again to stop at once, then run `kcompact recover`\n",
    signal.SIGTERM: _STOPPING + b"\n",
    signal.SIGHUP: _STOPPING + b"\n",
}
_SECOND = b"\nstopped at once; run `kcompact recover` before anything else\n"


class StopRequest:
    """Whether a signal has requested a stop, and the exit code for that signal."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.is_deferred = False

    def check(self, path: Path | str) -> None:
        """Raise CleaningAbortedError if a signal has requested a stop."""
        if self.exit_code is not None:
            from kcompact.errors import CleaningAbortedError

            raise CleaningAbortedError(path=path, exit_code=self.exit_code)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end the process, or only set the flag while stopping is deferred."""
        if not self.is_deferred:
            _end(number, _INTERRUPTED)
        if self.exit_code is not None and number == signal.SIGINT:
            _end(number, _SECOND)
        if self.exit_code is None:
            self.exit_code = 128 + number
            _write(_FIRST[signal.Signals(number)])

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals for the length of the block. If one has arrived, end the process at its end."""
        before, self.is_deferred = self.is_deferred, True
        try:
            yield
        finally:
            self.is_deferred = before
        if not before and self.exit_code is not None:
            _end(self.exit_code - 128, b"")


def end_at_signals() -> None:
    """End the process at each signal from now on. Signals that are ignored stay ignored, as under nohup."""
    _install(lambda number, frame: _end(number, _INTERRUPTED))


def leave_signals_alone() -> None:
    """Let the system end the process at each signal: the interpreter's own end runs no handlers of Python."""
    _install(signal.SIG_DFL)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Handle the signals for the length of the block by a StopRequest."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    request = StopRequest()
    _install(request.on_signal)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _install(handler: signal._HANDLER) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end(number: int, message: bytes) -> None:
    """End the process without its usual end, but with its scratch directories and child processes removed."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # Another signal must not interrupt this.
    _write(message)
    undo_all()
    os._exit(128 + number)


def _write(message: bytes) -> None:
    """Write to standard error. A handler can run during another write, so it does not use a buffered stream."""
    with suppress(OSError):
        os.write(2, message)
