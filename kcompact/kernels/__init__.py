"""The rules that must be fast, as compiled loops over arrays; each repeats a readable definition.

In: numpy arrays of bytes and of integers, with the types and shapes that `signatures` lists. Out: the same arrays,
filled; counts; a code of `columns`, which is the reason why a kernel stopped.
Imports: `errors`, `host`.

    columns      the columns of the tables, and the codes
    signatures   what each kernel takes, writes and returns, as data
    loops/       the kernels in Python, for numba
    build        compiles the loops to one object file, in a separate process
    target       the processor, and the cache key of its machine code
    link         turns the object file into Python functions
    load         the cache, its lock, and one compilation on each machine
    libraries    the C functions of the compression libraries, and their contexts
    arrays       the array types, and the kernels that need scratch arrays
    switch       the environment variable KCOMPACT_KERNELS

`build`, `link`, `target` and `loops` use llvmlite; `build` and `loops` use numba. Importing this package loads neither
of them and no numpy, so commands that only read can call `is_compiled` cheaply.

A kernel is an attribute of this package, such as `kernels.parse_batches`. Its first use compiles the kernels if they
are not compiled yet, or raises KernelsUnavailableError. `available()` compiles them beforehand and returns whether they
can be used; `is_compiled()` returns whether they can be used without compiling. A kernel raises nothing: the caller
turns a code into an error, or uses the definition.
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
    from kcompact.kernels.libraries import Codecs as Codecs
    from kcompact.kernels.load import available as available
    from kcompact.kernels.load import exported as exported
    from kcompact.kernels.load import failure as failure
    from kcompact.kernels.load import is_compiled as is_compiled
    from kcompact.kernels.load import provide as provide

    crc32c: Callable[..., int]
    parse_batches: Callable[..., Any]
    read_batches: Callable[..., Any]
    scan_headers: Callable[..., Any]
    scan_records: Callable[..., Any]
    verify_records: Callable[..., Any]
    record_columns: Callable[..., Any]
    field_kinds: Callable[..., Any]
    write_lines: Callable[..., Any]
    transactional_batches: Callable[..., Any]
    scan_transactions: Callable[..., Any]
    follow_transactions: Callable[..., Any]
    judge_entries: Callable[..., Any]
    decide_transactions: Callable[..., Any]
    keep_latest: Callable[..., Any]
    scan_keys: Callable[..., Any]
    merge_keys: Callable[..., Any]
    set_bits: Callable[..., Any]
    clear_bits: Callable[..., Any]
    filter_batches: Callable[..., Any]
    join_pieces: Callable[..., Any]
    inflate_batches: Callable[..., Any]
    seal_batches: Callable[..., Any]
    index_entries: Callable[..., Any]

_MODULES = {
    **dict.fromkeys(("RUN_ROWS", "Bytes", "Column", "Scratch", "Table", "deal", "mark_latest", "siphash128"), "arrays"),
    **dict.fromkeys(("available", "exported", "failure", "is_compiled", "provide"), "load"),
    "Codecs": "libraries",
}
"""The modules of the names that are imported at their first use."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"kcompact.kernels.{_MODULES[name]}"), name)
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("kcompact.kernels.load").loaded()[name]
