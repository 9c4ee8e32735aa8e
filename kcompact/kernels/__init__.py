"""The rules that must be fast, as compiled loops over arrays. Each repeats a readable definition elsewhere.

What comes in: numpy arrays of bytes and of integers, whose types and shapes `signatures` lists. What goes out: the same
arrays, filled; counts, and a code of `columns` that says why a kernel stopped. A kernel raises nothing; the caller
turns a code into an error, or lets the definition do the work.

    columns      the columns of the tables, and the codes
    signatures   what each kernel takes, writes and returns, as data
    loops        the kernels in Python, for numba
    build        loops -> one object file                 needs numba; runs in a process of its own
    target       the processor, and the key of its machine code
    link         object file -> Python functions
    load         cache, file lock, one compilation for each machine; what to do where there is none
    arrays       the types of arrays, and the kernels that need arrays of their own
    switch       KCOMPACT_KERNELS=off

Imports: `errors`, `host`, numpy; `build`, `link`, `target` and `loops` also llvmlite, `build` and `loops` also
numba. Importing this package loads neither numpy nor llvmlite: reading commands ask it whether kernels are there.

A kernel is an attribute of this package, such as `kernels.parse_batches`. The first use of one compiles the kernels if
they are not compiled yet, or raises KernelsUnavailableError. `available()` asks for that beforehand; `is_compiled()`
asks whether the kernels can be used without compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcompact.kernels.columns import *  # noqa: F403
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.switch import is_off as is_off

if TYPE_CHECKING:
    from kcompact.kernels.arrays import RUN_ROWS as RUN_ROWS
    from kcompact.kernels.arrays import Bytes as Bytes
    from kcompact.kernels.arrays import Column as Column
    from kcompact.kernels.arrays import Scratch as Scratch
    from kcompact.kernels.arrays import Table as Table
    from kcompact.kernels.arrays import deal as deal
    from kcompact.kernels.arrays import mark_latest as mark_latest
    from kcompact.kernels.arrays import siphash128 as siphash128
    from kcompact.kernels.load import available as available
    from kcompact.kernels.load import exported as exported
    from kcompact.kernels.load import failure as failure
    from kcompact.kernels.load import is_compiled as is_compiled
    from kcompact.kernels.load import provide as provide

    crc32c: Callable[..., int]
    parse_batches: Callable[..., Any]
    scan_headers: Callable[..., Any]
    scan_records: Callable[..., Any]
    verify_records: Callable[..., Any]
    keep_latest: Callable[..., Any]
    set_bits: Callable[..., Any]
    clear_bits: Callable[..., Any]
    filter_batches: Callable[..., Any]
    index_entries: Callable[..., Any]

_HOMES = {
    **dict.fromkeys(("RUN_ROWS", "Bytes", "Column", "Scratch", "Table", "deal", "mark_latest", "siphash128"), "arrays"),
    **dict.fromkeys(("available", "exported", "failure", "is_compiled", "provide"), "load"),
}
"""The names that are imported when they are first used, and the modules that define them."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"kcompact.kernels.{_HOMES[name]}"), name)
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("kcompact.kernels.load").loaded()[name]
