"""The kernels as Python functions: each checks its arrays and calls a C function of the shared library.

An array is one of numpy, or a memory view that can be written.

ctypes releases the interpreter's lock for each call, so threads of one process use all cores.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kcompact.errors import KernelsUnavailableError
from kcompact.kernels.machine_code import library
from kcompact.kernels.signatures import KERNELS, SYMBOL_PREFIX, Parameter, Signature
from kcompact.kernels.switch import VARIABLE, is_off

_DTYPES = {"u8": "|u1", "u64": "<u8", "i64": "<i8", "i32": "<i4"}
_FORMATS = {"u8": "B", "i64": "q"}
"""Of memory views, which take no numpy."""


def loaded() -> Mapping[str, Callable[..., Any]]:
    """Return the kernels by name.

    Raises KernelsUnavailableError if they are turned off, or as `machine_code.library` does; ConfigError if the switch
    has an unknown value.
    """
    if is_off():
        raise KernelsUnavailableError(problem=f"turned off by {VARIABLE}=off")
    return _functions()


@cache
def _functions() -> Mapping[str, Callable[..., Any]]:
    opened = library()
    return {
        name: _callable(name, getattr(opened, f"{SYMBOL_PREFIX}{name}"), signature)
        for name, signature in KERNELS.items()
    }


def _callable(name: str, function: Any, signature: Signature) -> Callable[..., Any]:
    """Return a Python function that calls a C function.

    The function returns an integer or a tuple of integers. It raises TypeError for an array of another type or shape,
    and for a read-only array that the kernel writes, because the machine code checks neither.
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
