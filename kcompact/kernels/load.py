"""The kernels as callable functions: machine code from the cache, from the driver of a run, or compiled now.

Compiling takes about ten seconds and happens once on a machine, under a file lock in the user's cache directory. A
separate process compiles, so a compiler that crashes or needs much memory does not harm the run. Every later process
links the object file with llvmlite in milliseconds and calls it through ctypes, which releases the interpreter's lock.
It does not import numba.

Cached machine code is executed, so only this user may be able to write to the cache directory. Without such a directory
each process compiles for itself, unless the driver has provided its code (`provide`).

If the kernels cannot be compiled or linked, the first attempt of a process records the reason (`failure`), and every
caller uses the readable definitions.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcompact.errors import KernelsUnavailableError
from kcompact.host.user_directories import cache_directory
from kcompact.kernels.switch import VARIABLE, is_off

Kernels = Mapping[str, Callable[..., Any]]

COMPILE_S = 300.0
"""The limit for compiling, which takes about ten seconds, or a minute on a busy machine."""
LOCK_WAIT_S = COMPILE_S + 10.0
"""How long to wait for another process that compiles. A process that takes longer hangs, so this one compiles too."""
_DIGEST_BYTES = 32


@dataclass(slots=True)
class _Process:
    """The kernels and the code that this process has loaded, or why that failed; `provided` is a key and its code."""

    kernels: Kernels | None = None
    code: bytes = b""
    failure: str | None = None
    provided: tuple[str, bytes] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


_process = _Process()


def loaded() -> Kernels:
    """Return the kernels by name; compiles them if there is no machine code for this processor yet.

    Raises KernelsUnavailableError if they are turned off, or cannot be compiled or linked; ConfigError if the switch
    has an unknown value.
    """
    if is_off():
        raise KernelsUnavailableError(problem=f"turned off by {VARIABLE}=off")
    if _process.kernels is None:
        _load(may_compile=True)
    if _process.kernels is None:
        raise KernelsUnavailableError(problem=str(_process.failure))
    return _process.kernels


def available() -> bool:
    """Return whether the kernels can be called; compiles them if necessary. Raises ConfigError as `loaded` does."""
    try:
        loaded()
    except KernelsUnavailableError:
        return False
    return True


def is_compiled() -> bool:
    """Return whether the kernels can be called without compiling anything. Raises ConfigError as `loaded` does."""
    if is_off():
        return False
    if _process.kernels is None:
        _load(may_compile=False)
    return _process.kernels is not None


def failure() -> str | None:
    """Return why the kernels could not be loaded, in one line; None if they were loaded or not used."""
    return _process.failure


def exported() -> tuple[str, bytes]:
    """Return the key and the machine code of this process, for `provide` in another. Raises as `loaded` does."""
    from kcompact.kernels.target import cache_key

    loaded()
    return cache_key(), _process.code


def provide(key: str, code: bytes) -> None:
    """Store machine code that the driver has exported; `loaded` uses it if the key is that of this process."""
    _process.provided = key, code


def _load(*, may_compile: bool) -> None:
    """Load the kernels, or record the failure. Without `may_compile`, do nothing if there is no machine code."""
    with _process.lock:
        if _process.kernels is not None or _process.failure is not None:
            return
        try:
            code = _code(may_compile=may_compile)
            if code is not None:
                from kcompact.kernels.link import linked

                _process.kernels, _process.code = linked(code), code
        except Exception as problem:  # numba, LLVM and the operating system fail in many ways; none may end a run.
            _process.failure = _one_line(problem)


def _one_line(problem: Exception) -> str:
    """Return the message of an exception in one line, with its type unless that is RuntimeError."""
    text = " ".join(str(problem).split())[:300]
    if isinstance(problem, RuntimeError) and text:
        return text
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


# Where the machine code comes from


def _code(*, may_compile: bool) -> bytes | None:
    """Return the machine code for this process; None if there is none and it may not be compiled."""
    from kcompact.kernels.target import cache_key

    key = cache_key()
    if _process.provided is not None and _process.provided[0] == key:
        return _process.provided[1]
    directory = cache_directory()
    if directory is None:
        return compiled_elsewhere() if may_compile else None
    path = directory / f"kernels-{key}.o"
    code = read_cached(path)
    if code is not None or not may_compile:
        return code
    with _locked(path.with_suffix(".lock")):
        code = read_cached(path)  # Another process may have compiled while this one waited.
        if code is None:
            code = compiled_elsewhere()
            write_cached(path, code)
    return code


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock. Continue without it if locks do not work here or another process holds it for too long."""
    from filelock import FileLock

    lock = FileLock(path, timeout=LOCK_WAIT_S, mode=0o600)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):  # The library's own Timeout is an OSError.
            stack.enter_context(lock)
        yield


def compiled_elsewhere() -> bytes:
    """Compile in a separate process and return the object file. Raises RuntimeError, OSError, TimeoutExpired."""
    if not sys.executable:
        raise RuntimeError("no Python interpreter that could compile")
    path = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kcompact.kernels.build"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=COMPILE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        # Ctrl-C must reach only this process, which handles it.
        start_new_session=True,
    )
    if done.returncode:
        how = f"the compiler ended with exit code {done.returncode}"
        if done.returncode < 0:
            how = f"the compiler was killed by {signal.Signals(-done.returncode).name}"
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"{how}: {lines[-1]}" if lines else how)
    code = _verified(done.stdout)
    if code is None:
        raise RuntimeError("the compiler wrote no object file")
    return code


def _verified(content: bytes) -> bytes | None:
    """Return the code after the digest, None if the digest is wrong: LLVM crashes on a damaged object file."""
    digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def read_cached(path: Path) -> bytes | None:
    """Return the code in a cache file; None if the file is missing or damaged, or if other users can write to it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            content = file.read()
    except OSError:
        return None
    return _verified(content)


def write_cached(path: Path, code: bytes) -> None:
    """Write code to the cache. A failure is ignored; the next run then compiles again."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        unfinished.replace(path)
        return
    with contextlib.suppress(OSError):
        unfinished.unlink()
