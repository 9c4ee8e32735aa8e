"""What was found of each key: how often, in what, and where first."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column
from kcompact.values import dataclass

MOST_IN_A_FILE = 3
"""So many places of a key in a file are listed; all are counted."""
_MOST_OF_ONE, _LEAST_OF_EACH, _MOST_OF_ALL = 100, 5, 100_000
"""So many places are listed of one key, at least of each key, and about of all keys together."""


class Place(StrEnum):
    """Where a key was found."""

    KEY = "key"
    """It is the key of a record with a value."""
    TOMBSTONE = "tombstone"
    """It is the key of a record without a value."""
    IN_KEY = "in-key"
    """It is a part of another key."""
    IN_VALUE = "in-value"
    IN_HEADERS = "in-headers"
    IN_BYTES = "in-bytes"
    """In bytes that are no readable record: an index, a damaged batch, the gap between two batches."""


class Hit(NamedTuple):
    """A place of a key. `position` is that of the batch in the file, or that of bytes which are no record.

    `offset` is that of the record, None outside of records.
    """

    file: Path
    place: Place
    position: int
    offset: int | None


@dataclass(slots=True)
class KeyFindings:
    """What was found of one key: how often in what, in how many files, and the first places."""

    hits: dict[Place, int] = field(default_factory=dict)
    files: int = 0
    places: list[Hit] = field(default_factory=list)
    _last_file: Path | None = None
    _listed_of_file: int = 0

    def add(
        self, file: Path, place: Place, count: int, positions: Column, offsets: Column | None, *, most_listed: int
    ) -> None:
        """Add `count` hits, of which the first have these positions, and these offsets of records."""
        if file != self._last_file:
            self.files, self._last_file, self._listed_of_file = self.files + 1, file, 0
        self.hits[place] = self.hits.get(place, 0) + count
        wanted = min(len(positions), most_listed - len(self.places), MOST_IN_A_FILE - self._listed_of_file)
        for row in range(wanted):
            self._listed_of_file += 1
            offset = None if offsets is None else int(offsets[row])
            self.places.append(Hit(file, place, int(positions[row]), offset))


class Findings:
    """What was found of each key, by the numbers of the keys. Holds a bounded number of places for each."""

    def __init__(self, keys: int) -> None:
        self.keys = [KeyFindings() for _ in range(keys)]
        self._most_listed = min(_MOST_OF_ONE, max(_LEAST_OF_EACH, _MOST_OF_ALL // keys))

    def add(self, file: Path, place: Place, numbers: Column, positions: Column, offsets: Column | None = None) -> None:
        """Add the hits of keys at positions of a file, in records with these offsets if in any."""
        order = np.argsort(numbers, kind="stable")
        each, first, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        for number, start, count in zip(each.tolist(), first.tolist(), counts.tolist(), strict=True):
            rows = order[start : start + min(count, MOST_IN_A_FILE)]
            own = None if offsets is None else offsets[rows]
            self.keys[number].add(file, place, count, positions[rows], own, most_listed=self._most_listed)
