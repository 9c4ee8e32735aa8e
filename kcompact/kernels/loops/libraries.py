"""Calls C functions of the compression libraries by their addresses; `kernels.libraries` finds the addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kcompact.kernels.columns import (
    DEFLATE_CRC,
    DEFLATE_DECOMPRESS,
    DEFLATE_READER,
    DEFLATE_SIZES,
    DEFLATE_STREAM,
    LZ4_COMPRESS,
    LZ4_DECOMPRESS,
    LZ4_STATE,
    ZLIB_CRC,
    ZLIB_DEFLATE,
    ZLIB_DEFLATE_RESET,
    ZSTD_BUFFERS,
    ZSTD_COMPRESS,
    ZSTD_CONTENT_SIZE,
    ZSTD_DECOMPRESS,
    ZSTD_FRAME_SIZE,
    ZSTD_READER,
    ZSTD_RESET,
    ZSTD_WRITER,
    ZSTD_WRITER_RESET,
)
from kcompact.kernels.loops.memory import WORD, loop

_ZSTD_RESET_SESSION_ONLY = 1
_ZSTD_FLUSH, _ZSTD_END = 1, 2
_Z_FINISH, _Z_STREAM_END = 4, 1
DEFLATE_NO_SPACE = 3
# Words of a z_stream. A word with a field of 32 bits has its value in the low half; the high half is not used.
_NEXT_IN, _AVAIL_IN, _NEXT_OUT, _AVAIL_OUT = 0, 1, 3, 4


def _c_function(result_bits: int, *parameter_bits: int) -> Any:
    """Return an intrinsic that calls the function at an address with a tuple of integers; pointers have 64 bits."""

    @intrinsic
    def call(typingctx: Any, address: Any, values: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function_type = ir.FunctionType(ir.IntType(result_bits), [ir.IntType(bits) for bits in parameter_bits])
            function = builder.inttoptr(arguments[0], function_type.as_pointer())
            values = [builder.extract_value(arguments[1], number) for number in range(len(parameter_bits))]
            values = [
                value if bits == 64 else builder.trunc(value, ir.IntType(bits))
                for value, bits in zip(values, parameter_bits, strict=True)
            ]
            result = builder.call(function, values)
            return result if result_bits == 64 else builder.sext(result, WORD)

        return types.int64(types.int64, types.UniTuple(types.int64, len(parameter_bits))), codegen

    return call


_lz4_decompress = _c_function(32, 64, 64, 32, 32)
_lz4_compress = _c_function(32, 64, 64, 64, 32, 32, 32)
_zstd_size = _c_function(64, 64, 64)
_zstd_reset = _c_function(64, 64, 32)
_zstd_decompress = _c_function(64, 64, 64, 64)
_zstd_compress = _c_function(64, 64, 64, 64, 32)
_deflate_decompress = _c_function(32, 64, 64, 64, 64, 64, 64, 64)
_deflate_crc = _c_function(32, 32, 64, 64)
_zlib_reset = _c_function(32, 64)
_zlib_run = _c_function(32, 64, 32)
_zlib_crc = _c_function(64, 64, 64, 32)


@loop
def lz4_decompress(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Inflate one block of at most 2 GiB; return its inflated size, less than 0 if it is damaged or does not fit."""
    return _lz4_decompress(
        codecs[LZ4_DECOMPRESS],
        (source.ctypes.data + source_start, target.ctypes.data + target_start, source_bytes, target_bytes),
    )


@loop
def lz4_compress(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Compress one block as fast as possible; return its compressed size, 0 if it does not fit."""
    state = codecs.ctypes.data + 8 * LZ4_STATE
    return _lz4_compress(
        codecs[LZ4_COMPRESS],
        (state, source.ctypes.data + source_start, target.ctypes.data + target_start, source_bytes, target_bytes, 1),
    )


@loop
def zstd_frame_size(codecs, source, start, size):
    """Return the compressed size of the frame that source[start:start + size] begins with, negative if damaged."""
    return _zstd_size(codecs[ZSTD_FRAME_SIZE], (source.ctypes.data + start, size))


@loop
def zstd_content_size(codecs, source, start, size):
    """Return the inflated size that a frame declares, -1 if it declares none, less if it is damaged."""
    return _zstd_size(codecs[ZSTD_CONTENT_SIZE], (source.ctypes.data + start, size))


@loop
def _zstd_buffers(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Set the buffers of a call; return the address of that for output, before that for input."""
    buffers = codecs[ZSTD_BUFFERS : ZSTD_BUFFERS + 6]
    buffers[0], buffers[1], buffers[2] = target.ctypes.data + target_start, target_bytes, 0
    buffers[3], buffers[4], buffers[5] = source.ctypes.data + source_start, source_bytes, 0
    return codecs.ctypes.data + 8 * ZSTD_BUFFERS


@loop
def zstd_decompress(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Inflate one frame; return (what the library returns, inflated bytes): 0 for a frame that is complete.

    A negative number means damage, a positive one that the frame does not fit.
    """
    _zstd_reset(codecs[ZSTD_RESET], (codecs[ZSTD_READER], _ZSTD_RESET_SESSION_ONLY))
    address = _zstd_buffers(codecs, source, source_start, source_bytes, target, target_start, target_bytes)
    result = _zstd_decompress(codecs[ZSTD_DECOMPRESS], (codecs[ZSTD_READER], address, address + 24))
    return result, codecs[ZSTD_BUFFERS + 2]


@loop
def zstd_compress(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Write one frame, as a stream whose length is not known before its end; return its size, -1 if it does not fit."""
    _zstd_reset(codecs[ZSTD_WRITER_RESET], (codecs[ZSTD_WRITER], _ZSTD_RESET_SESSION_ONLY))
    address = _zstd_buffers(codecs, source, source_start, source_bytes, target, target_start, target_bytes)
    for operation in (_ZSTD_FLUSH, _ZSTD_END):
        if _zstd_compress(codecs[ZSTD_COMPRESS], (codecs[ZSTD_WRITER], address, address + 24, operation)) != 0:
            return -1
    return codecs[ZSTD_BUFFERS + 2]


@loop
def deflate_decompress(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Inflate raw deflate data; return (what the library returns, bytes read, inflated bytes).

    The library returns 0 for data whose end was reached, DEFLATE_NO_SPACE if it does not fit, else it is damaged.
    """
    sizes = codecs.ctypes.data + 8 * DEFLATE_SIZES
    result = _deflate_decompress(
        codecs[DEFLATE_DECOMPRESS],
        (
            codecs[DEFLATE_READER], source.ctypes.data + source_start, source_bytes,
            target.ctypes.data + target_start, target_bytes, sizes, sizes + 8,
        ),
    )  # fmt: skip
    return result, codecs[DEFLATE_SIZES], codecs[DEFLATE_SIZES + 1]


@loop
def deflate_crc(codecs, source, start, size):
    """Return the CRC-32 of source[start:start + size]."""
    return _deflate_crc(codecs[DEFLATE_CRC], (0, source.ctypes.data + start, size)) & 0xFFFFFFFF


@loop
def zlib_deflate(codecs, source, source_start, source_bytes, target, target_start, target_bytes):
    """Write raw deflate data; return (whether it fits, its size)."""
    stream, address = codecs[DEFLATE_STREAM : DEFLATE_STREAM + 6], codecs.ctypes.data + 8 * DEFLATE_STREAM
    _zlib_reset(codecs[ZLIB_DEFLATE_RESET], (address,))
    stream[_NEXT_IN], stream[_AVAIL_IN] = source.ctypes.data + source_start, source_bytes
    stream[_NEXT_OUT], stream[_AVAIL_OUT] = target.ctypes.data + target_start, target_bytes
    is_complete = _zlib_run(codecs[ZLIB_DEFLATE], (address, _Z_FINISH)) == _Z_STREAM_END
    return is_complete, target_bytes - (stream[_AVAIL_OUT] & 0xFFFFFFFF)


@loop
def zlib_crc(codecs, source, start, size):
    """Return the CRC-32 of source[start:start + size]."""
    return _zlib_crc(codecs[ZLIB_CRC], (0, source.ctypes.data + start, size))
