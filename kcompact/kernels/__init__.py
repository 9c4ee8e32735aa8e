"""The rules that must be fast, as compiled loops over arrays; each repeats a readable definition.

In: numpy arrays of bytes and of integers, with the types and shapes that `signatures` lists. Out: the same arrays,
filled; counts; a code of `columns`, which is the reason why a kernel stopped.
Imports: `errors`.

    columns       the columns of the tables, and the codes
    signatures    what each kernel takes, writes and returns, as data
    loops/        the kernels in Python, for numba
    target        the processors that they are compiled for
    build         compiles the loops to a shared library; when a wheel is built, or a checkout is set up
    machine_code  the shared library of this processor, checked; the kernels as Python functions
    libraries     the C functions of the compression libraries, and their contexts
    arrays        the array types, and the kernels that need scratch arrays

Only `build` and `loops` use numba and llvmlite; importing this package loads neither of them.

A kernel is an attribute of this package, such as `kernels.parse_batches`. It raises nothing: the caller turns a code
into an error, or uses the definition.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcompact.errors import KcompactError
from kcompact.kernels.arrays import RUN_ROWS as RUN_ROWS
from kcompact.kernels.arrays import Bytes as Bytes
from kcompact.kernels.arrays import Column as Column
from kcompact.kernels.arrays import Mask as Mask
from kcompact.kernels.arrays import Rows as Rows
from kcompact.kernels.arrays import Scratch as Scratch
from kcompact.kernels.arrays import Table as Table
from kcompact.kernels.arrays import deal as deal
from kcompact.kernels.arrays import mark_latest as mark_latest
from kcompact.kernels.arrays import siphash128 as siphash128
from kcompact.kernels.columns import *  # noqa: F403
from kcompact.kernels.machine_code import confirming_nothing as confirming_nothing
from kcompact.kernels.machine_code import kernel
from kcompact.kernels.machine_code import library as library
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.target import TARGETS

if TYPE_CHECKING:
    from kcompact.kernels.libraries import Codecs as Codecs
    from kcompact.kernels.libraries import unusable_packages as unusable_packages

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
    hash_record_keys: Callable[..., Any]
    hash_record_contents: Callable[..., Any]
    set_bits: Callable[..., Any]
    clear_bits: Callable[..., Any]
    filter_batches: Callable[..., Any]
    join_pieces: Callable[..., Any]
    inflate_batches: Callable[..., Any]
    seal_batches: Callable[..., Any]
    index_entries: Callable[..., Any]

_OF_LIBRARIES = ("Codecs", "unusable_packages")
"""What `libraries` has, which imports the packages of the codecs: at the first use."""


def state() -> str:
    """Return which kernels there are, in a few words, or why there are none. Raises nothing."""
    try:
        library()
    except KcompactError as problem:
        return f"none: {str(problem).splitlines()[0]}"
    return f"machine code for {TARGETS[platform.machine()].instructions}"


def __getattr__(name: str) -> Any:
    if name in _OF_LIBRARIES:
        return getattr(import_module("kcompact.kernels.libraries"), name)
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return kernel(name)
