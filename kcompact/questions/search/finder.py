"""Finds many keys in bytes in one pass.

Of few keys each is looked for by itself. Of many keys, a word at every fourth position is hashed, and the hash is
looked up in a table of bits. Where the table has it, the hash is looked up among those of the words of all keys, and
then the bytes are compared.

    data   . . c u s t o m e r - 0 0 4 7 1 1 . .
           ^       ^       ^       ^       ^         every fourth position
                           ^-------------^           the word there is one of the four that the key has in the table

Wherever a key lies, one of its words is at such a position. Where in the keys these four are is chosen so that they
differ most. The keys are divided by their lengths into classes, each with words of 1, 2, 4 or 8 bytes and a pass of
its own; the shorter ones are looked up at every position, or at every second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kcompact.kernels import Bytes, Column

FEW_KEYS = 4
"""So many keys are looked for one by one: the search of the standard library takes less time for each."""
SLICE_BYTES = 1 << 18
"""So many positions are searched at once."""
_WORDS = 1 << 16
"""So many words are hashed at once: their hashes fit the processor's cache."""
_WORD_BYTES = (8, 4, 2, 1)
_STEPS = (4, 2, 1)
_LEAST_BITS, _MOST_BITS, _BITS_FOR_EACH_WORD = 12, 24, 5
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SAMPLED_KEYS, _SAMPLED_PLACES = 1 << 12, 64
"""The words of so many keys are compared, at so many places."""


class Finder:
    """Finds keys, none of them empty, and each given once. A key is named by its number. Not for several threads."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = tuple(keys)
        self.sizes = np.array([len(key) for key in keys], np.int64)
        self._overlap = max(map(len, keys)) - 1
        self._classes = () if len(keys) <= FEW_KEYS else tuple(_classes(self.keys))

    def find(self, data: Bytes, *, start: int = 0) -> Iterator[tuple[Column, Column]]:
        """Yield the positions in `data` at which keys begin, and the numbers of the keys: once for each slice.

        Keys that end at or before `start` are left out: they were found with the bytes before.
        """
        most = max(SLICE_BYTES, self._overlap)
        for begin in range(0, len(data), most):
            content = data[begin : begin + most + self._overlap].tobytes()
            hits: list[tuple[int, int]] = []
            for each in self._classes:
                hits += each.find(content, most)
            if not self._classes:
                hits += self._one_by_one(content, most)
            if hits:
                positions, numbers = np.array(hits, np.int64).T
                is_new = positions + begin + self.sizes[numbers] > start
                if is_new.any():
                    yield positions[is_new] + begin, numbers[is_new]

    def carried(self, data: Bytes) -> Bytes:
        """Return the end of `data` with which the bytes after it must be searched."""
        return data[len(data) - min(self._overlap, len(data)) :]

    def _one_by_one(self, content: bytes, most: int) -> Iterator[tuple[int, int]]:
        for number, key in enumerate(self.keys):
            position = content.find(key)
            while 0 <= position < most:
                yield position, number
                position = content.find(key, position + 1)


class _KeyClass:
    """Finds the keys whose words have `word_bytes` bytes. `keys` are their numbers."""

    def __init__(self, keys: dict[bytes, int], word_bytes: int) -> None:
        self._keys = keys
        self._word_bytes = word_bytes
        last = min(map(len, keys)) - word_bytes
        self._step = next(step for step in _STEPS if step <= last + 1)
        self._product, self._bits = np.empty(_WORDS, np.uint64), np.empty(_WORDS, np.uint64)
        self._is_in_table = np.empty(_WORDS, np.bool_)

        places: dict[int, set[tuple[int, int]]] = {}
        for rest in range(self._step):
            at = _most_different(list(keys), word_bytes, range(rest, last + 1, self._step))
            for key in keys:
                places.setdefault(int(self._hashes(key, at, 1)[0]), set()).add((at, len(key)))
        self._hashes_of_words = np.array(sorted(places), np.uint64)
        self._places = [sorted(places[each]) for each in sorted(places)]
        """For each hash, where in keys the words are that have it, and the lengths of these keys."""
        bits = min(_MOST_BITS, max(_LEAST_BITS, len(places).bit_length() + _BITS_FOR_EACH_WORD))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, np.bool_)
        self._table[self._hashes_of_words >> self._shift] = True

    def _hashes(self, content: bytes, position: int, count: int) -> Column:
        """Return the hashes u64[count] of the words from a position on, a step apart."""
        words: Column = np.ndarray((count,), f"<u{self._word_bytes}", content, position, (self._step,))
        hashes: Column = np.multiply(words, _FACTOR, out=self._product[:count])
        return hashes

    def find(self, content: bytes, most: int) -> Iterator[tuple[int, int]]:
        """Yield the positions below `most` at which keys begin, and the numbers of the keys."""
        end = len(content) - self._word_bytes + 1
        for start in range(0, end, _WORDS * self._step):
            count = min(_WORDS, -((start - end) // self._step))
            hashes = self._hashes(content, start, count)
            bits = np.right_shift(hashes, self._shift, out=self._bits[:count]).view(np.int64)
            at = np.flatnonzero(self._table.take(bits, mode="clip", out=self._is_in_table[:count]))
            there = hashes[at]
            rows = np.minimum(self._hashes_of_words.searchsorted(there), len(self._places) - 1)
            is_one = self._hashes_of_words[rows] == there
            words = start + self._step * at[is_one]
            for word, row in zip(words.tolist(), rows[is_one].tolist(), strict=True):
                for place, size in self._places[row]:
                    position = word - place
                    number = self._keys.get(content[position : position + size]) if 0 <= position < most else None
                    if number is not None and position + size <= len(content):  # Else it is a shorter key.
                        yield position, number


def _most_different(keys: Sequence[bytes], word_bytes: int, places: range) -> int:
    """Return the place at which the words of keys differ most, the last of such places."""
    keys = keys[:: max(1, len(keys) // _SAMPLED_KEYS)]
    return max(places[-_SAMPLED_PLACES:], key=lambda at: (len({key[at : at + word_bytes] for key in keys}), at))


def _classes(keys: Sequence[bytes]) -> Iterator[_KeyClass]:
    left = {key: number for number, key in enumerate(keys)}
    for word_bytes in _WORD_BYTES:
        own = {key: number for key, number in left.items() if len(key) >= word_bytes}
        left = {key: number for key, number in left.items() if key not in own}
        if own:
            yield _KeyClass(own, word_bytes)
