"""CRC-32C (Castagnoli), the checksum of a batch, by the processor's instruction for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kcompact.kernels.loops.memory import WORD, load_le64, loop
from kcompact.kernels.target import CRC_STEP

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes


@intrinsic
def _crc_step(typingctx: Any, crc: Any, word: Any) -> Any:
    """Return the checksum after eight more bytes: an instruction of the processor, from `kernels.target`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        step = builder.module.globals.get(CRC_STEP)
        if step is None:
            step = ir.Function(builder.module, ir.FunctionType(WORD, [WORD, WORD]), name=CRC_STEP)
            step.attributes.add("nounwind")
            step.attributes.add("readnone")
        return builder.call(step, arguments)

    return types.uint64(types.uint64, types.uint64), codegen


def _crc_table() -> npt.NDArray[np.uint64]:
    """Return the checksum of each byte."""
    table = np.zeros(256, np.uint64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table[byte] = value
    return table


_TABLE = _crc_table()

LANE_BYTES = 1024
SHORT_LANE_BYTES = 128
"""The bytes of a lane in two sizes. A batch of 12 KB is four times three long lanes."""


def _shift_tables(zeros: int) -> npt.NDArray[np.uint64]:
    """Return the tables that continue a checksum with so many zero bytes, one table for each byte of the checksum."""
    tables = np.zeros((4, 256), np.uint64)
    for bit in range(32):
        value = 1 << bit
        for _ in range(zeros):
            value = value >> 8 ^ int(_TABLE[value & 0xFF])
        number, flag = bit >> 3, 1 << (bit & 7)
        tables[number, np.arange(256) & flag != 0] ^= np.uint64(value)
    return tables


def _lanes(lane_bytes: int) -> Any:
    """Return a loop that computes the checksums of three neighbouring lanes side by side.

    The processor begins a step in every cycle, and a step takes three cycles.
    """
    shift = _shift_tables(lane_bytes)
    byte = np.uint64(0xFF)

    @loop
    def after_lane(crc):
        """Return the checksum continued with the zero bytes of one lane."""
        continued = shift[0, crc & byte] ^ shift[1, crc >> np.uint64(8) & byte]
        return continued ^ shift[2, crc >> np.uint64(16) & byte] ^ shift[3, crc >> np.uint64(24) & byte]

    @loop
    def crc_lanes(buffer, start, end, crc):
        """Return the position after all whole groups of three lanes, and their checksum."""
        while end - start >= 3 * lane_bytes:
            second = third = np.uint64(0)
            for i in range(lane_bytes >> 3):
                position = start + 8 * i
                crc = _crc_step(crc, load_le64(buffer, position))
                second = _crc_step(second, load_le64(buffer, position + lane_bytes))
                third = _crc_step(third, load_le64(buffer, position + 2 * lane_bytes))
            crc = after_lane(after_lane(crc) ^ second) ^ third
            start += 3 * lane_bytes
        return start, crc

    return crc_lanes


_crc_long_lanes, _crc_short_lanes = _lanes(LANE_BYTES), _lanes(SHORT_LANE_BYTES)


@loop
def _crc_words(buffer, start, end, crc):
    """Return the position after all whole words, and the checksum of the words."""
    start, crc = _crc_long_lanes(buffer, start, end, crc)
    start, crc = _crc_short_lanes(buffer, start, end, crc)
    while end - start >= 8:
        crc = _crc_step(crc, load_le64(buffer, start))
        start += 8
    return start, crc


@loop
def crc32c(buffer: Bytes, start: int, end: int) -> int:
    """buffer u8[n], 0 <= start <= end <= n -> CRC-32C of buffer[start:end].

    Definition: the library `crc32c`.
    """
    start, crc = _crc_words(buffer, start, end, np.uint64(0xFFFFFFFF))
    for i in range(start, end):
        crc = crc >> np.uint64(8) ^ _TABLE[(crc ^ np.uint64(buffer[i])) & np.uint64(0xFF)]
    return np.uint32(crc ^ np.uint64(0xFFFFFFFF))
