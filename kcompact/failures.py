"""Any exception as an error of kcompact: what the operating system, Python and libraries raise, and bugs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kcompact.errors import (
    DEBUG,
    NO_SPACE_NUMBERS,
    KcompactError,
    NotEnoughMemoryError,
    NotEnoughSpaceError,
    NotLoadedError,
    UnexpectedError,
    code_and_hint,
    storage_error,
)
from kcompact.host.machine import tightest_limit

_NOT_MAPPED = ("failed to map segment from shared object", "cannot allocate memory", "cannot map zero-fill pages")
"""What the dynamic linker says of a library for which there is no memory."""
_FORBIDDEN = os.strerror(errno.EPERM).lower()
"""What it adds if the file system of the library is mounted noexec."""
_NO_THREAD = "can't start new thread"


def as_failure(problem: Exception) -> KcompactError:
    """Return any exception as a KcompactError: an error of the operating system, a lack of memory, or a bug."""
    if isinstance(problem, KcompactError):
        return problem
    failure: KcompactError
    if is_lack_of_memory(problem):
        limit = tightest_limit()
        failure = NotEnoughMemoryError(problem=_first_line(problem), limit="" if limit is None else str(limit))
    elif isinstance(problem, OSError) and isinstance(problem.filename, str | bytes | os.PathLike):
        failure = storage_error(Path(os.fsdecode(problem.filename)), problem)
    elif isinstance(problem, OSError) and problem.strerror:
        failure = KcompactError(problem.strerror, DEBUG)
        is_full = problem.errno in NO_SPACE_NUMBERS
        failure.exit_code = NotEnoughSpaceError.exit_code if is_full else code_and_hint(problem)[0]
    elif isinstance(problem, ImportError):
        failure = NotLoadedError(problem)
    else:
        failure = UnexpectedError(problem)
    failure.__cause__ = problem
    return failure


def is_lack_of_memory(problem: BaseException) -> bool:
    """Return whether an exception says that there was no memory: for an object, a thread or a library.

    That of an import can be the cause of another one: numpy before 2.0 has its own words then.
    """
    if isinstance(problem, ImportError) and problem.__cause__ is not None:
        return is_lack_of_memory(problem.__cause__)
    if isinstance(problem, OSError | ImportError):
        is_enomem = isinstance(problem, OSError) and problem.errno == errno.ENOMEM
        message = str(problem).lower()
        return is_enomem or (_FORBIDDEN not in message and any(words in message for words in _NOT_MAPPED))
    if isinstance(problem, RuntimeError) and str(problem) == _NO_THREAD:
        # A limit on the number of threads has the same words.
        return tightest_limit() is not None
    return isinstance(problem, MemoryError)


def _first_line(problem: BaseException) -> str:
    """Return the line of a message that says most: that of the linker, which numpy has in a page of advice."""
    lines = str(problem).strip().splitlines()
    telling_line = next(
        (line for line in lines if any(words in line.lower() for words in _NOT_MAPPED)), "".join(lines[:1])
    )
    return telling_line.removeprefix("Original error was: ")
