"""Values that the partitions of a log directory share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from kcompact.errors import KcompactError

Value = TypeVar("Value")


class PerLogDir(Generic[Value]):
    """A value for each log directory, made once. If making it fails, that is the error of every partition there."""

    def __init__(self, make: Callable[[Path], Value]) -> None:
        self._make = make
        self._made: dict[Path, Value | KcompactError] = {}

    def of(self, partition: Path) -> Value:
        """Return the value for the log directory of a partition. Raises the KcompactError of making it."""
        return self.of_log_dir(partition.parent)

    def of_log_dir(self, log_dir: Path) -> Value:
        """Return the value for a log directory. Raises the KcompactError of making it."""
        if log_dir not in self._made:
            try:
                self._made[log_dir] = self._make(log_dir)
            except KcompactError as problem:
                self._made[log_dir] = problem
        made = self._made[log_dir]
        if isinstance(made, KcompactError):
            raise made
        return made
