"""Handles Ctrl-C, SIGTERM and SIGHUP.

Before the first partition is cleaned, a signal ends the command at once. During the cleaning a signal only sets a
flag. `Progress.check` looks at the flag between two steps and stops the run there, so a swap that has begun always
finishes. A second Ctrl-C ends the process at once; `recover` then finishes or undoes the swap.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from kcompact.errors import CleaningAbortedError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
            raise CleaningAbortedError(path=path, exit_code=self.exit_code)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: raise CleaningAbortedError, or only set the flag while stopping is deferred."""
        code = 128 + number
        if not self.is_deferred:
            self.exit_code = code
            raise CleaningAbortedError(path="kcompact", exit_code=code)
        if self.exit_code is not None and number == signal.SIGINT:
            _write(_SECOND)
            os._exit(code)
        self.exit_code = self.exit_code or code
        _write(_FIRST[signal.Signals(number)])

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals for the length of the block. Raises CleaningAbortedError at its end if one has arrived."""
        before, self.is_deferred = self.is_deferred, True
        try:
            yield
        finally:
            self.is_deferred = before
        if not before:
            self.check("kcompact")

    def install(self) -> None:
        """Handle the signals from now on. Signals that are ignored stay ignored, as under nohup."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_signal)


def _write(message: bytes) -> None:
    """Write to standard error. A handler can run during another write, so it does not use a buffered stream."""
    with suppress(OSError):
        os.write(2, message)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Handle the signals for the length of the block."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    request = StopRequest()
    request.install()
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
