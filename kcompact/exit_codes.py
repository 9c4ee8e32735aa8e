"""How a command can end, and which of several ends counts. `docs/cli.md` says what a user does about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeVar

Failure = TypeVar("Failure")


class ExitCode(IntEnum):
    """The exit codes of errors and findings, the gravest first.

    Damage and half-done work need a person before anything else is tried. A request to stop is the least grave.
    """

    CORRUPT = 3
    RECOVERY_NEEDED = 8
    DIFFERENT = 9
    UNDECIDED = 10
    """Also of a key that was found, or that may be there."""
    CHANGED = 6
    LOCKED = 5
    NO_SPACE = 7
    REFUSED = 4
    USAGE = 2
    FAILED = 1
    INTERRUPTED = 130


def gravest_exit_code(codes: Iterable[int]) -> int:
    """Return the gravest code of several partitions, 0 if none has failed."""
    return next(iter(gravest_first((code for code in codes if code), int)), 0)


def gravest_first(failures: Iterable[Failure], exit_code: Callable[[Failure], int]) -> list[Failure]:
    """Return failures with the gravest exit code first; equally grave ones keep their order."""
    gravity = {int(code): number for number, code in enumerate(ExitCode)}
    return sorted(failures, key=lambda each: gravity.get(exit_code(each), len(gravity)))
