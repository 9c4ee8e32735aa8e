"""CRC-32C (Castagnoli), the checksum of a batch: the processor's instruction where there is one, else tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from kcompact.kernels.loops.memory import WORD, load_le64, loop

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes

HAS_CRC_INSTRUCTION = binding.get_host_cpu_features().get("sse4.2", False)


@intrinsic
def _crc_step(typingctx: Any, crc: Any, word: Any) -> Any:
    """Return the checksum after eight more bytes (x86, SSE 4.2)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(WORD, [WORD, WORD])
        step = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=function_type)
        return builder.call(step, arguments)

    return types.uint64(types.uint64, types.uint64), codegen


def _crc_tables() -> npt.NDArray[np.uint64]:
    """Return the tables of slicing-by-8: row k is the checksum of a byte followed by k zero bytes."""
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for number in range(1, 8):
        for byte in range(256):
            before = int(tables[number - 1, byte])
            tables[number, byte] = before >> 8 ^ int(tables[0, before & 0xFF])
    return tables


_TABLES = _crc_tables()

if HAS_CRC_INSTRUCTION:

    @loop
    def _crc_words(buffer, start, words, crc):
        for i in range(words):
            crc = _crc_step(crc, load_le64(buffer, start + 8 * i))
        return crc

else:

    @loop
    def _crc_words(buffer, start, words, crc):
        for i in range(words):
            word = crc ^ load_le64(buffer, start + 8 * i)
            crc = np.uint64(0)
            for j in range(8):
                crc ^= _TABLES[7 - j, (word >> np.uint64(8 * j)) & np.uint64(0xFF)]
        return crc


@loop
def crc32c(buffer: Bytes, start: int, end: int) -> int:
    """buffer u8[n], 0 <= start <= end <= n -> CRC-32C of buffer[start:end].

    Definition: the library `crc32c`.
    """
    words = (end - start) >> 3
    crc = _crc_words(buffer, start, words, np.uint64(0xFFFFFFFF))
    for i in range(start + 8 * words, end):
        crc = crc >> np.uint64(8) ^ _TABLES[0, (crc ^ np.uint64(buffer[i])) & np.uint64(0xFF)]
    return np.uint32(crc ^ np.uint64(0xFFFFFFFF))
