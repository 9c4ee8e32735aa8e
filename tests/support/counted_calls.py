"""Counts the calls of this process that look at files, and the opens of each name, without changing what they do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

COUNTED = ("open", "stat", "lstat", "fstat", "access", "listdir", "scandir", "pread", "preadv")
"""Those of the module `os` that kcompact reads logs with."""


@dataclass(slots=True)
class Calls:
    """How often each of COUNTED was called, and how often a file of each name was opened."""

    by_function: Counter[str] = field(default_factory=Counter)
    opens: Counter[str] = field(default_factory=Counter)


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls until the end of the block."""
    calls = Calls()

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **named: Any) -> Any:
            calls.by_function[name] += 1
            if name == "open":
                calls.opens[Path(os.fsdecode(arguments[0])).name] += 1
            return real(*arguments, **named)

        return count

    with ExitStack() as patched:
        for name in COUNTED:
            patched.enter_context(patch.object(os, name, counting(name, getattr(os, name))))
        yield calls
