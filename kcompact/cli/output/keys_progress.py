"""The progress of `keys` and of the first reading of `--latest`: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.clean.executor import Progress
from kcompact.cli.output.reading import LEAST_BYTES

if TYPE_CHECKING:
    from kcompact.cli.output.progress_bars import Bars


class KeysProgress(Progress):
    """Shows how much of a topic is read. A signal ends the process at once, because nothing can be half done."""

    def __init__(self) -> None:
        self._bars: Bars | None = None

    def begin(self, stage: str, total_bytes: int) -> None:
        if total_bytes < LEAST_BYTES or not sys.stderr.isatty():
            return
        from kcompact.cli.output.progress_bars import Bars

        self.end()
        with suppress(OSError):
            self._bars = Bars(partitions=1, total_bytes=total_bytes)

    def advance(self, done_bytes: int) -> None:
        if self._bars is not None:
            with suppress(OSError):
                self._bars.advance(Path(), 0, done_bytes)

    def end(self) -> None:
        bars, self._bars = self._bars, None
        if bars is not None:
            with suppress(OSError):
                bars.end()
