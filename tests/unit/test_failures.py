"""`failures`: what any exception is as an error of kcompact, and what is a lack of memory."""

from __future__ import annotations

import errno
import os
import pickle

import numpy as np
import pytest

from kcompact import failures
from kcompact.errors import KcompactError, NotEnoughMemoryError, NotLoadedError, UnexpectedError
from kcompact.failures import as_failure, is_lack_of_memory
from kcompact.host.machine import LEAST_BYTES, ProcessLimit
from kcompact.wording import of_the_command_line, say_options

LIMIT = ProcessLimit(0, "RLIMIT_AS", "-v", "address space", "VmSize", LEAST_BYTES, 300_000 << 10)
NOT_MAPPED = "libopenblas.so: failed to map segment from shared object"
NUMPY = f"IMPORTANT: READ THIS\n\nOriginal error was: {NOT_MAPPED}\n"


def _of_an_array() -> MemoryError:
    """Return the error of an array that no machine has memory for."""
    try:
        np.empty(1 << 59, np.int8)
    except MemoryError as problem:
        return problem
    raise AssertionError


def _caused(words: str) -> ImportError:
    problem = ImportError("Error importing numpy")
    problem.__cause__ = ImportError(words)
    return problem


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (MemoryError(), "not enough memory"),
        (MemoryError("no room"), "not enough memory: no room"),
        (
            _of_an_array(),
            "not enough memory: Unable to allocate 512. PiB for an array with shape (576460752303423488,) and data "
            "type int8",
        ),
        (RuntimeError("can't start new thread"), "not enough memory: can't start new thread"),
        (ImportError(NUMPY), f"not enough memory: {NOT_MAPPED}"),
        (_caused(NOT_MAPPED), "not enough memory: Error importing numpy"),
        (OSError(NOT_MAPPED), f"not enough memory: {NOT_MAPPED}"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "not enough memory: [Errno 12] Cannot allocate memory"),
    ],
)
def test_a_lack_of_memory_names_the_limit(problem: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "tightest_limit", lambda: LIMIT)
    failure = as_failure(problem)
    assert isinstance(failure, NotEnoughMemoryError)
    assert (failure.exit_code, failure.__cause__) == (1, problem)
    limit = "RLIMIT_AS (ulimit -v 300000: 293.0 MiB of address space) is the limit of this process: raise it"
    assert str(failure) == f"{message}\n{limit}, or pass a smaller `memory_bytes`."
    # From a worker, the error is shown by another process: that of the command.
    sent = pickle.loads(pickle.dumps(failure))
    with of_the_command_line():
        assert str(sent) == f"{message}\n{limit}."
        say_options(["--memory", "--json"])
        assert str(sent) == f"{message}\n{limit}, or pass a smaller --memory."
    assert as_failure(failure) is failure


def test_without_a_limit_the_machine_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "tightest_limit", lambda: None)
    with of_the_command_line():
        assert str(as_failure(MemoryError())) == "not enough memory\nEnd other processes."
    assert not is_lack_of_memory(RuntimeError("can't start new thread")), "a limit on threads has the same words"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (ImportError("No module named 'numpy'"), NotLoadedError),
        (_caused("No module named 'numpy'"), NotLoadedError),
        (OSError(f"{NOT_MAPPED}: Operation not permitted"), UnexpectedError),  # A file system that is mounted noexec.
        (RuntimeError("memory"), UnexpectedError),
        (ValueError(NOT_MAPPED), UnexpectedError),
        (OSError(errno.EIO, os.strerror(errno.EIO)), KcompactError),
    ],
)
def test_what_is_no_lack_of_memory(problem: Exception, kind: type[KcompactError]) -> None:
    assert type(as_failure(problem)) is kind
