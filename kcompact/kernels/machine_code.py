"""The machine code of this processor: opened, checked, and called from Python.

`machine_code/x86_64.so` belongs to the package, with a record of what it is. It calls `memcpy`, `memset` and `pread` of
the C library (on ARM also `getauxval`) and no function of Python, so it fits every Python. A wheel has the library of
its processor; a checkout builds it at set-up.

A kernel becomes a Python function that checks its arrays and calls a C function. An array is one of numpy, or a memory
view that can be written. ctypes releases the interpreter's lock for each call, so threads of one process use all cores.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from kcompact.errors import KernelsUnavailableError
from kcompact.failures import is_lack_of_memory
from kcompact.kernels.columns import DAMAGED
from kcompact.kernels.signatures import KERNELS, SYMBOL_PREFIX, Parameter, Signature
from kcompact.kernels.target import FITS, TARGETS
from kcompact.values import dataclass

# The shared library of this processor

DIRECTORY = Path(__file__).with_name("machine_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The SHA-256 of a shared library, and that of the sources that it was built from, in hexadecimal."""

    library_sha256: str
    sources_sha256: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> BuildRecord:
        """Raises ValueError for a text that is not a record."""
        try:
            return cls(**json.loads(text))
        except TypeError as problem:
            raise ValueError("not a record of machine code") from problem


def library_path(machine: str) -> Path:
    """Return where the shared library for a processor is, by its name in `TARGETS`; the record is beside it."""
    return DIRECTORY / f"{machine}.so"


def library_sha256() -> str:
    """Return the SHA-256 of the loaded library, in hexadecimal. Raises as `library` does."""
    return _library()[1]


def library() -> ctypes.CDLL:
    """Return the shared library of this processor, opened.

    Raises KernelsUnavailableError if it is missing or damaged, if it does not load, or if the processor lacks
    instructions that it uses; MemoryError if there is no memory for it.
    """
    return _library()[0]


@cache
def _library() -> tuple[ctypes.CDLL, str]:
    machine = platform.machine()
    path = library_path(machine)
    target = TARGETS.get(machine)
    others = sorted(each.stem for each in DIRECTORY.glob("*.so"))
    if target is None or (others and machine not in others):
        of_others = " and ".join(others or TARGETS)
        raise KernelsUnavailableError(
            problem=f"this kcompact has machine code for {of_others}, and this processor is {machine}: "
            "install the wheel for this processor"
        )
    if not others:
        raise KernelsUnavailableError(
            problem=f"{path} is missing: install kcompact again; in a checkout `make demo` builds it"
        )
    # A library that was cut short can be opened, and ends the process when a missing page is touched.
    try:
        expected = BuildRecord.from_json(path.with_suffix(".json").read_bytes()).library_sha256
        found_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError) as problem:
        raise KernelsUnavailableError(
            problem=f"{path} cannot be checked: {problem}: install kcompact again"
        ) from problem
    if found_sha256 != expected:
        raise KernelsUnavailableError(
            problem=f"{path} is damaged, its SHA-256 is not that of its record: install kcompact again"
        )
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as problem:  # Its message begins with the path.
        # Some systems say the same of a file system that is mounted noexec.
        if is_lack_of_memory(problem) and not _is_noexec(path):
            raise MemoryError(str(problem)) from problem
        reason = ": its file system is mounted noexec, install kcompact on another one" if _is_noexec(path) else ""
        raise KernelsUnavailableError(problem=f"{problem}{reason}") from problem
    if not getattr(opened, FITS)():
        raise KernelsUnavailableError(problem=f"this processor lacks the instructions of {target.instructions}")
    return opened, found_sha256


def _is_noexec(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


# The kernels as Python functions

_DTYPES = {"u8": "|u1", "u64": "<u8", "i64": "<i8", "i32": "<i4"}
_NUMBERS = {"u64": range(1 << 64), "i64": range(-1 << 63, 1 << 63)}
_FORMATS = {"u8": "B", "i64": "q"}
"""Of memory views, such as `libraries.Codecs.words`."""

_CONFIRMING_NOTHING: Mapping[str, Callable[..., Any]] = {
    "parse_batches": lambda *_: (0, 0, -1, DAMAGED),
    "read_batches": lambda *_: (0, 0, DAMAGED),
    "scan_headers": lambda _, start, *__: (0, start, DAMAGED),
    "scan_transactions": lambda _, start, *__: (0, start, DAMAGED),
    "transactional_batches": lambda *_: (0, DAMAGED),
    "index_entries": lambda *_: (0, 0, DAMAGED),
}
"""The kernels that read a log, or make indexes of it, as they answer where they do not confirm the first batch."""

_is_confirming = True


@contextmanager
def confirming_nothing() -> Iterator[None]:
    """Let the kernels of this process confirm no batch in a block, so that the definitions read every one.

    For tests that hold both together, and for a `doctor` without machine code: it is not loaded for the readers.
    """
    global _is_confirming
    before, _is_confirming = _is_confirming, False
    try:
        yield
    finally:
        _is_confirming = before


def kernel(name: str) -> Callable[..., Any]:
    """Return a kernel by its name. Raises as `library` does."""
    if not _is_confirming and name in _CONFIRMING_NOTHING:
        return _CONFIRMING_NOTHING[name]
    return loaded()[name]


@cache
def loaded() -> Mapping[str, Callable[..., Any]]:
    """Return the kernels by name. Raises as `library` does."""
    opened = library()
    return {
        name: _callable(name, getattr(opened, f"{SYMBOL_PREFIX}{name}"), signature)
        for name, signature in KERNELS.items()
    }


def _callable(name: str, function: Any, signature: Signature) -> Callable[..., Any]:
    """Return a Python function that calls a C function.

    The function returns an integer or a tuple of integers. It raises OverflowError for a number of more than 64 bits,
    and TypeError for an array of another type or shape, or a read-only one that the kernel writes, because the machine
    code checks none of them.
    """
    c_types: list[Any] = []
    for parameter in signature.parameters:
        if parameter.dimensions:
            c_types += [ctypes.c_void_p, *(ctypes.c_int64 for _ in parameter.extents)]
        else:
            c_types.append(ctypes.c_uint64 if parameter.type == "u64" else ctypes.c_int64)
    function.argtypes, function.restype = [*c_types, ctypes.c_void_p], None
    results_type = ctypes.c_int64 * max(1, len(signature.results))

    def call(*arguments: Any) -> Any:
        flat: list[int] = []
        for value, parameter in zip(arguments, signature.parameters, strict=True):
            if not parameter.dimensions:
                if int(value) not in _NUMBERS[parameter.type]:
                    raise OverflowError(f"{name} takes {parameter.kind} for {parameter.name}, not {value}")
                flat.append(int(value))
                continue
            _check(name, parameter, value)
            if type(value) is memoryview:
                flat.append(ctypes.addressof(ctypes.c_char.from_buffer(value)))
            else:
                flat.append(value.__array_interface__["data"][0])
            flat += value.shape
        results = results_type()
        function(*flat, ctypes.addressof(results))
        if len(signature.results) == 1:
            return results[0]
        return tuple(results) if signature.results else None

    call.__name__ = name
    call.__doc__ = signature.c_prototype(name)
    return call


def _check(name: str, parameter: Parameter, value: Any) -> None:
    """Raise TypeError unless the array fits the parameter."""
    if type(value) is memoryview:
        kind, fits = value.format, value.format == _FORMATS.get(parameter.type)
        is_contiguous, is_writable = value.c_contiguous, not value.readonly
    else:
        kind, fits = value.dtype, value.dtype.str == _DTYPES[parameter.type]
        is_contiguous, is_writable = value.flags.c_contiguous, value.flags.writeable
    if not fits or value.ndim != parameter.dimensions:
        raise TypeError(f"{name} takes {parameter.kind} for {parameter.name}, not {kind} of {value.ndim} dimensions")
    if not is_contiguous:
        raise TypeError(f"{name} takes a contiguous array for {parameter.name}")
    if parameter.is_written and not is_writable:
        raise TypeError(f"{name} writes {parameter.name}, which is read-only")
