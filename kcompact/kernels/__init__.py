"""The rules that must be fast, as compiled loops over arrays; each repeats a readable definition.

In: numpy arrays of bytes and of integers, with the types and shapes that `signatures` lists. Out: the same arrays,
filled; counts; a code of `columns`, which is the reason why a kernel stopped.
Imports: `errors`.

    columns       the columns of the tables, and the codes
    signatures    what each kernel takes, writes and returns, as data
    loops/        the kernels in Python, for numba
    target        the processors that they are compiled for
    build         compiles the loops to a shared library; when a wheel is built, or a checkout is set up
    machine_code  the shared library of this processor, checked; the kernels as Python functions, and the
                  environment variable KCOMPACT_KERNELS, which turns them off
    libraries     the C functions of the compression libraries, and their contexts
    arrays        the array types, and the kernels that need scratch arrays

Only `build` and `loops` use numba and llvmlite. Importing this package loads neither of them and no numpy.

A kernel is an attribute of this package, such as `kernels.parse_batches`. `in_use()` says whether to call them: no
other rule decides that. A kernel raises nothing: the caller turns a code into an error, or uses the definition.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcompact.errors import KcompactError
from kcompact.kernels.columns import *  # noqa: F403
from kcompact.kernels.machine_code import is_off, library, loaded
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.target import TARGETS

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
    from kcompact.kernels.libraries import unusable_packages as unusable_packages

    crc32c: Callable[..., int]
    parse_batches: Callable[..., Any]
    read_batches: Callable[..., Any]
    scan_headers: Callable[..., Any]
    sum_batches: Callable[..., Any]
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
    hash_record_keys: Callable[..., Any]
    hash_record_contents: Callable[..., Any]
    set_bits: Callable[..., Any]
    clear_bits: Callable[..., Any]
    filter_batches: Callable[..., Any]
    join_pieces: Callable[..., Any]
    inflate_batches: Callable[..., Any]
    seal_batches: Callable[..., Any]
    index_entries: Callable[..., Any]

_MODULES = {
    **dict.fromkeys(("RUN_ROWS", "Bytes", "Column", "Scratch", "Table", "deal", "mark_latest", "siphash128"), "arrays"),
    **dict.fromkeys(("Codecs", "unusable_packages"), "libraries"),
}
"""The modules of the names that are imported at their first use."""


def in_use() -> bool:
    """Return whether the kernels do the work: wherever they are not turned off. Loads the machine code.

    Raises KernelsUnavailableError where it cannot be loaded, ConfigError for a wrong value of KCOMPACT_KERNELS.
    """
    if is_off():
        return False
    library()
    return True


def state() -> str:
    """Return which kernels are in use, in a few words, or why none are. Raises nothing."""
    try:
        if not in_use():
            return "off: KCOMPACT_KERNELS=off"
    except KcompactError as problem:
        return f"none: {str(problem).splitlines()[0]}"
    return f"machine code for {TARGETS[platform.machine()].instructions}"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"kcompact.kernels.{_MODULES[name]}"), name)
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return loaded()[name]
