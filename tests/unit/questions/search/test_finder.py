"""`kcompact.questions.search.finder`: what it finds is what a comparison at each position finds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kcompact.questions.search import finder
from kcompact.questions.search.finder import Finder
from tests.support.parameters import one_in


def found(keys: list[bytes], data: bytes, start: int = 0) -> list[tuple[int, int]]:
    pairs = Finder(keys).find(np.frombuffer(data, np.uint8), start=start)
    return sorted((position, number) for each in pairs for position, number in np.array(each).T.tolist())


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_every_key_at_every_position(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(finder, "SLICE_BYTES", chance.choice([16, 64, 1 << 16]))
    monkeypatch.setattr(finder, "_WORDS", chance.choice([2, 16, 1 << 16]))
    letters = chance.choice([2, 4, 256])

    def text(size: int) -> bytes:
        return bytes(chance.randrange(letters) for _ in range(size))

    for _ in range(5):
        data = text(chance.randrange(400))
        keys = list(
            {text(chance.choice([1, 2, 3, 4, 5, 7, 8, 9, 12, 30])) for _ in range(chance.choice([1, 4, 5, 200]))}
        )
        keys += [data[at : at + 9] for at in range(0, len(data) - 9, 50)]
        keys = list(dict.fromkeys(keys))
        start = chance.randrange(50)
        expected = [
            (at, number)
            for number, key in enumerate(keys)
            for at in range(len(data))
            if data.startswith(key, at) and at + len(key) > start
        ]
        assert found(keys, data, start) == sorted(expected)


def test_keys_with_a_common_beginning() -> None:
    keys = [b"customer-%d" % number for number in range(1000)]
    data = b"".join(b"customer-%d," % number for number in range(0, 2000, 7))
    begins = [at for at in range(len(data)) if data.startswith(b"customer-", at)]
    expected = [(at, number) for number, key in enumerate(keys) for at in begins if data.startswith(key, at)]
    assert found(keys, data) == sorted(expected)
