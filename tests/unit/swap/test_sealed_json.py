"""A document with a checksum: what was written is read, and no bit of it can change unnoticed."""

from __future__ import annotations

import json

import pytest
from crc32c import crc32c

from kcompact.swap.sealed_json import sealed, unsealed
from tests.support.sealed import with_checksum

DOCUMENT = {"version": 2, "end_offset": 10, "groups": [{"name": "a\u00e4\ud800"}], "ratio": 0.5, "none": None}


def test_it_is_one_line_of_json_that_ends_with_its_checksum() -> None:
    content = sealed(DOCUMENT)
    assert unsealed(content) == DOCUMENT
    assert content.isascii()
    assert content.index(b"\n") == len(content) - 1
    found = json.loads(content)
    assert list(found) == [*DOCUMENT, "crc32c"]
    assert found["crc32c"] == crc32c(content[: content.rindex(b',"crc32c"')])


def test_every_bit_counts() -> None:
    content = sealed(DOCUMENT)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            unsealed(bytes(flipped))


@pytest.mark.parametrize("length", [0, 1, 20, -2, -1])
def test_a_part_of_it_does_not_count(length: int) -> None:
    with pytest.raises(ValueError, match="checksum"):
        unsealed(sealed(DOCUMENT)[:length])


def test_more_than_it_does_not_count() -> None:
    for content in (sealed(DOCUMENT) + b"\n", sealed(DOCUMENT) * 2, b" " + sealed(DOCUMENT)):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(content)


@pytest.mark.parametrize("content", [b'{"a":1,"a":2}', b'{"a":}', b'["a"]', b'{"a":"\xff"}', b"}"])
def test_the_right_checksum_is_not_enough(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        unsealed(with_checksum(content))
    assert "checksum" not in str(refused.value)
