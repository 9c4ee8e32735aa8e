"""Memory access for the kernels: words of any alignment and byte order, copies, and reads from a file.

An intrinsic takes an address as a number, because numba's public interface has no pointers into arrays. A function
with an array and a position as parameters wraps each intrinsic. These functions check no position; the caller does.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

loop = numba.njit(nogil=True, error_model="numpy")
"""Marks a function that numba compiles. With the error model `numpy` a division by zero raises nothing."""

BYTE = ir.IntType(8)
WORD = ir.IntType(64)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _loader(bits: int, result: Any, *, is_big_endian: bool) -> Any:
    """Return an intrinsic that loads a signed integer of this many bits and widens it to 64."""

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(_pointer(builder, arguments[0], bits))
            loaded.align = 1
            if is_big_endian:
                loaded = builder.bswap(loaded)
            return loaded if bits == 64 else builder.sext(loaded, WORD)

        return result(types.intp), codegen

    return load


def _storer(bits: int, *, is_big_endian: bool = True) -> Any:
    """Return an intrinsic that stores the low bits of an integer. It returns the integer."""

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            value = builder.bswap(value) if is_big_endian else value
            builder.store(value, _pointer(builder, arguments[0], bits)).align = 1
            return arguments[1]

        return types.int64(types.intp, types.int64), codegen

    return store


@intrinsic
def _memcpy(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes between two ranges that do not overlap; return how many."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_pointer(builder, address, 8) for address in arguments[:2])
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [BYTE.as_pointer(), BYTE.as_pointer(), WORD])
        builder.call(memcpy, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return arguments[2]

    return types.intp(types.intp, types.intp, types.intp), codegen


@intrinsic
def _pread(typingctx: Any, descriptor: Any, address: Any, count: Any, position: Any) -> Any:
    """Call `pread` of the C library, which is loaded in every process."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        declared = builder.module.globals.get("pread")
        if declared is None:
            function_type = ir.FunctionType(WORD, [ir.IntType(32), BYTE.as_pointer(), WORD, WORD])
            declared = ir.Function(builder.module, function_type, name="pread")
        descriptor, address, count, position = arguments
        return builder.call(declared, [descriptor, _pointer(builder, address, 8), count, position])

    return types.intp(types.int32, types.intp, types.intp, types.intp), codegen


_load_le64 = _loader(64, types.uint64, is_big_endian=False)
_load_le32 = _loader(32, types.int64, is_big_endian=False)
_load_le16 = _loader(16, types.int64, is_big_endian=False)
_load_be64 = _loader(64, types.int64, is_big_endian=True)
_load_be32 = _loader(32, types.int64, is_big_endian=True)
_load_be16 = _loader(16, types.int64, is_big_endian=True)
_store_be64, _store_be32, _store_be16 = _storer(64), _storer(32), _storer(16)
_store_le64, _store_le32, _store_le16 = (_storer(bits, is_big_endian=False) for bits in (64, 32, 16))


@loop
def load_le64(buffer, position):
    """Return the eight bytes at a position as an unsigned little-endian integer."""
    return _load_le64(buffer.ctypes.data + position)


@loop
def load_le32(buffer, position):
    """Return the four bytes at a position as an unsigned little-endian integer."""
    return _load_le32(buffer.ctypes.data + position) & 0xFFFFFFFF


@loop
def load_le16(buffer, position):
    """Return the two bytes at a position as an unsigned little-endian integer."""
    return _load_le16(buffer.ctypes.data + position) & 0xFFFF


@loop
def load_be64(buffer, position):
    """Return the eight bytes at a position as a signed big-endian integer."""
    return _load_be64(buffer.ctypes.data + position)


@loop
def load_be32(buffer, position):
    """Return the four bytes at a position as a signed big-endian integer."""
    return _load_be32(buffer.ctypes.data + position)


@loop
def load_be16(buffer, position):
    """Return the two bytes at a position as a signed big-endian integer."""
    return _load_be16(buffer.ctypes.data + position)


@loop
def store_be64(buffer, position, value):
    """Store an integer as eight big-endian bytes."""
    _store_be64(buffer.ctypes.data + position, value)


@loop
def store_be32(buffer, position, value):
    """Store the low 32 bits of an integer as four big-endian bytes."""
    _store_be32(buffer.ctypes.data + position, value)


@loop
def store_be16(buffer, position, value):
    """Store the low 16 bits of an integer as two big-endian bytes."""
    _store_be16(buffer.ctypes.data + position, value)


@loop
def store_le64(buffer, position, value):
    """Store an integer as eight little-endian bytes."""
    _store_le64(buffer.ctypes.data + position, value)


@loop
def store_le32(buffer, position, value):
    """Store the low 32 bits of an integer as four little-endian bytes."""
    _store_le32(buffer.ctypes.data + position, value)


@loop
def store_le16(buffer, position, value):
    """Store the low 16 bits of an integer as two little-endian bytes."""
    _store_le16(buffer.ctypes.data + position, value)


@loop
def copy_bytes(target, target_start, source, source_start, count):
    """Copy `count` bytes from `source_start` of one array to `target_start` of another; the arrays do not overlap."""
    _memcpy(target.ctypes.data + target_start, source.ctypes.data + source_start, count)


@loop
def read_from_file(descriptor, buffer, start, count, position):
    """Read `count` bytes at a position of a file to `start` of the buffer; return how many, -1 on an error."""
    return _pread(descriptor, buffer.ctypes.data + start, count, position)
