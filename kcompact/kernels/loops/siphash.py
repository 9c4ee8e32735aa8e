"""SipHash with a result of 128 bits: the keyed hash of a record's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.loops.memory import load_le64, loop

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes


@loop
def _rotl(value, bits):
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


@loop
def _sip_round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotl(v1, 13) ^ v0
    v0 = _rotl(v0, 32)
    v2 += v3
    v3 = _rotl(v3, 16) ^ v2
    v0 += v3
    v3 = _rotl(v3, 21) ^ v0
    v2 += v1
    v1 = _rotl(v1, 17) ^ v2
    v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


@loop
def siphash128(buffer: Bytes, start: int, end: int, k0: int, k1: int, c_rounds: int, d_rounds: int) -> tuple[int, int]:
    """buffer u8[n], 0 <= start <= end <= n -> the two halves of SipHash-c-d-128 of buffer[start:end], low first.

    Definition: the reference implementation of its authors (Aumasson, Bernstein); tests use their published vectors.
    """
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    length = end - start
    position = start
    for _ in range(length >> 3):
        word = load_le64(buffer, position)
        v3 ^= word
        for _ in range(c_rounds):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        position += 8
    word = np.uint64(length & 0xFF) << np.uint64(56)
    left = end - position
    if position + 8 <= buffer.shape[0]:
        if left:
            word |= load_le64(buffer, position) & (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
    else:
        for i in range(left):
            word |= np.uint64(buffer[position + i]) << np.uint64(8 * i)
    v3 ^= word
    for _ in range(c_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(d_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(d_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3
