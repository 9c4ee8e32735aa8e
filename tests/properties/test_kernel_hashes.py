"""CRC-32C and SipHash of the kernels, compared with a library, published vectors and a plain implementation."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.stages.collector import key_hash
from tests.support.jobs import JOB
from tests.support.kernel_inputs import K0, K1, array, siphash128


def test_crc32c_is_the_librarys_at_every_alignment_and_length() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, np.uint8)
    for start in range(17):
        for end in range(start, 200):
            assert kernels.crc32c(data, start, end) == crc32c.crc32c(data[start:end].tobytes())


@pytest.mark.parametrize("size", [0, 1, 4095, 65_537, 1_000_003])
def test_crc32c_of_larger_buffers(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert kernels.crc32c(data, 0, size) == crc32c.crc32c(data.tobytes())


@pytest.mark.parametrize(
    ("rounds", "first", "last", "digest"),
    [
        # `vectors_sip128` of the authors' reference implementation.
        (
            (2, 4),
            "a3817f04ba25a8e66df67214c7550293",
            "5150d1772f50834a503e069a973fbd7c",
            "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9",
        ),
        # Test vectors of Rust's `rustc-stable-hash`.
        (
            (1, 3),
            "e77ebcb22788a5befd62db6add303001",
            "4c5800e34efe426f079f6b0aa75260ad",
            "58cbba5178d829c27ef56e1b54bdf3db60957320e97f2fd6c8b270a7eecc0cca",
        ),
    ],
)
def test_siphash_of_the_published_vectors(rounds: tuple[int, int], first: str, last: str, digest: str) -> None:
    """64 hashes, of the first 0 to 63 of the bytes 00 01 02 ..., with the key 00 ... 0f."""
    data = np.arange(63, dtype=np.uint8)
    found = [kernels.siphash128(data, 0, length, K0, K1, *rounds) for length in range(64)]
    assert (found[0].hex(), found[-1].hex()) == (first, last)
    assert hashlib.sha256(b"".join(found)).hexdigest() == digest
    assert found == [siphash128(bytes(range(length)), bytes(range(16)), *rounds) for length in range(64)]


@given(st.binary(max_size=300), st.integers(0, 20), st.integers(0, 20), st.binary(min_size=16, max_size=16))
def test_siphash_anywhere_in_a_buffer(data: bytes, before: int, after: int, key: bytes) -> None:
    k0, k1 = np.frombuffer(key, "<u8").tolist()
    buffer = array(b"x" * before + data + b"y" * after)
    expected = siphash128(data, key, 1, 3)
    assert kernels.siphash128(buffer, before, before + len(data), k0, k1) == expected
    assert key_hash(replace(JOB, hash_key=key))(data) == expected
