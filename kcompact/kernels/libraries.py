"""The C functions of the compression libraries, for the kernels that inflate and deflate whole runs of batches.

The Python packages bring the libraries: `lz4`, `zstandard` and `deflate` as extension modules that export the C
functions, `zlib` as an extension module that is linked to libz. A kernel gets the addresses of the functions as
numbers, because the machine code is built before any process has these addresses. Where a package exports no such
functions, their addresses are 0, and the callers use the readable definitions in `format.codec`.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any

from kcompact.kernels import columns as c

_OPENING = threading.Lock()
"""Held while a codec is opened. Threads that use an attribute of the same library for the first time each make an
object for the function, and the object that stays may lack the types that were set on the other one.
"""
_LEAST_ZSTD_VERSION = 10_400
"""Since 1.4.0 the functions and parameters that are used here are stable."""
_ZSTD_WINDOW_LOG_MAX, _ZSTD_LARGEST_WINDOW = 100, 27
"""A parameter of readers, and the limit of `format.codec.zstd`."""
_ZSTD_WRITER_PARAMETERS = ((100, 3), (200, 0), (201, 0))
"""The level of `format.codec.zstd`, no content size, no checksum."""
_GZIP_LEVEL = 6
"""The level of `format.codec.gzip`."""
_Z_DEFLATED, _Z_DEFAULT_STRATEGY = 8, 0
_ZLIB_WINDOW_BITS, _ZLIB_MEMORY_LEVEL = 15, 8


class Codecs:
    """The functions and the contexts of the codecs that one worker uses. Two threads must not share one.

    `words` i64[CODEC_WORDS] is a parameter of the kernels; `columns` names its words. A codec is opened at its first
    use, because its library takes time to load and its contexts take memory.
    """

    def __init__(self) -> None:
        self.words = memoryview(bytearray(8 * c.CODEC_WORDS)).cast("q")
        self._opened: set[int] = set()

    def open(self, codec: int) -> bool:
        """Fill the words of a codec at its first use. Return False if its library lacks the functions: they stay 0."""
        if codec in self._opened or codec not in _OPENERS:
            return True
        self._opened.add(codec)
        try:
            with _OPENING:
                for release in _OPENERS[codec](self.words):
                    weakref.finalize(self, release).atexit = False
        except (AttributeError, ImportError, OSError, _UnusableLibraryError):
            return False
        return True


def unusable_packages() -> list[str]:
    """Return the Python packages whose libraries the kernels cannot call, so that their codecs are slow."""
    codecs = Codecs()
    return [package for codec, package in _PACKAGES.items() if not codecs.open(codec)]


class _UnusableLibraryError(Exception):
    """A library has the functions, but not the version or the sizes that the kernels expect."""


@cache
def _extension(package: str, *names: str) -> ctypes.CDLL:
    """Return the shared library of an extension module; the module is not imported. Raises ImportError, OSError."""
    spec = find_spec(package)
    for name in names:
        locations = spec.submodule_search_locations if spec is not None else None
        spec = PathFinder.find_spec(name, locations) if locations is not None else None
    if spec is None or spec.origin is None:
        raise ImportError(f"no library in {package}")
    return ctypes.CDLL(spec.origin)


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _open_lz4(words: memoryview) -> Iterator[Callable[[], None]]:
    library = _extension("lz4", "block", "_block")
    if not 0 < library.LZ4_sizeofState() <= 8 * c.LZ4_STATE_WORDS:
        raise _UnusableLibraryError
    words[c.LZ4_COMPRESS] = _address(library.LZ4_compress_fast_extState)
    words[c.LZ4_DECOMPRESS] = _address(library.LZ4_decompress_safe)
    yield from ()


def _open_zstd(words: memoryview) -> Iterator[Callable[[], None]]:
    library = _extension("zstandard", "_cffi")
    if library.ZSTD_versionNumber() < _LEAST_ZSTD_VERSION:
        raise _UnusableLibraryError
    for function in (library.ZSTD_createDCtx, library.ZSTD_createCCtx):
        function.restype = ctypes.c_void_p
    for function in (library.ZSTD_CCtx_setParameter, library.ZSTD_DCtx_setParameter):
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int], ctypes.c_size_t
    for function in (library.ZSTD_freeDCtx, library.ZSTD_freeCCtx):
        function.argtypes = [ctypes.c_void_p]
    functions = (
        (c.ZSTD_FRAME_SIZE, library.ZSTD_findFrameCompressedSize),
        (c.ZSTD_CONTENT_SIZE, library.ZSTD_getFrameContentSize),
        (c.ZSTD_RESET, library.ZSTD_DCtx_reset),
        (c.ZSTD_DECOMPRESS, library.ZSTD_decompressStream),
        (c.ZSTD_COMPRESS, library.ZSTD_compressStream2),
        (c.ZSTD_WRITER_RESET, library.ZSTD_CCtx_reset),
    )
    reader, writer = library.ZSTD_createDCtx(), library.ZSTD_createCCtx()
    yield partial(library.ZSTD_freeDCtx, reader)
    yield partial(library.ZSTD_freeCCtx, writer)
    if not reader or not writer:
        raise _UnusableLibraryError
    done = [library.ZSTD_DCtx_setParameter(reader, _ZSTD_WINDOW_LOG_MAX, _ZSTD_LARGEST_WINDOW)]
    done += [library.ZSTD_CCtx_setParameter(writer, name, value) for name, value in _ZSTD_WRITER_PARAMETERS]
    if any(library.ZSTD_isError(ctypes.c_size_t(code)) for code in done):
        raise _UnusableLibraryError
    for word, function in functions:
        words[word] = _address(function)
    words[c.ZSTD_READER], words[c.ZSTD_WRITER] = reader, writer


def _open_gzip(words: memoryview) -> Iterator[Callable[[], None]]:
    """Open libdeflate, which inflates two times as fast as zlib, and zlib, which writes the bytes that Kafka writes."""
    inflating = _extension("deflate", "_deflate")
    inflating.libdeflate_alloc_decompressor.restype = ctypes.c_void_p
    inflating.libdeflate_free_decompressor.argtypes = [ctypes.c_void_p]
    reader = inflating.libdeflate_alloc_decompressor()
    if not reader:
        raise _UnusableLibraryError
    yield partial(inflating.libdeflate_free_decompressor, reader)
    deflating = _libz()
    deflating.zlibVersion.restype = ctypes.c_char_p
    stream = ctypes.c_void_p(ctypes.addressof(ctypes.c_int64.from_buffer(words, 8 * c.DEFLATE_STREAM)))
    # A stream keeps the address of its words, so the words live as long as the stream.
    if deflating.deflateInit2_(
        stream, _GZIP_LEVEL, _Z_DEFLATED, -_ZLIB_WINDOW_BITS, _ZLIB_MEMORY_LEVEL, _Z_DEFAULT_STRATEGY,
        ctypes.c_char_p(deflating.zlibVersion()), ctypes.c_int(8 * c.Z_STREAM_WORDS),
    ):  # fmt: skip
        raise _UnusableLibraryError
    yield partial(_end_stream, deflating.deflateEnd, stream, words)
    functions = (
        (c.DEFLATE_DECOMPRESS, inflating.libdeflate_deflate_decompress_ex),
        (c.DEFLATE_CRC, inflating.libdeflate_crc32),
        (c.ZLIB_DEFLATE, deflating.deflate),
        (c.ZLIB_DEFLATE_RESET, deflating.deflateReset),
        (c.ZLIB_CRC, deflating.crc32),
    )
    for word, function in functions:
        words[word] = _address(function)
    words[c.DEFLATE_READER] = reader


def _libz() -> ctypes.CDLL:
    """Return libz as Python uses it: linked to the extension module `zlib`, or built into the interpreter."""
    spec = find_spec("zlib")
    return ctypes.CDLL(spec.origin if spec is not None and spec.has_location else None)


def _end_stream(end: Callable[[ctypes.c_void_p], int], stream: ctypes.c_void_p, words: memoryview) -> None:
    """End a z_stream that lies in `words`."""
    end(stream)


_OPENERS: Mapping[int, Callable[[memoryview], Iterator[Callable[[], None]]]] = {
    c.GZIP: _open_gzip,
    c.LZ4: _open_lz4,
    c.ZSTD: _open_zstd,
}
"""Fill the words of a codec, and yield what releases its contexts. Raise AttributeError for a missing function.

snappy needs no library: its kernels are in `loops.snappy`.
"""
_PACKAGES = {c.GZIP: "deflate", c.LZ4: "lz4", c.ZSTD: "zstandard"}
"""The Python packages that bring the libraries."""
