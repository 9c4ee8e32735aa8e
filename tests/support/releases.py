"""Versions of Kafka, the release whose rules each has, and how far its cleaner is like these rules."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcompact import release
from kcompact.release import NEWEST, Release


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Kafka."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def release_of(version: str) -> Release:
    """Return the release whose rules a version has; of a newer one than is known the newest."""
    return NEWEST if numbers(version) > numbers(NEWEST.name) else release.release_of(version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What the cleaner of a version of Kafka does as kcompact does it by the rules of `release_of`.

    `files`: it leaves the same files; without, only the newest values are the same. `indexes`: these are the same bytes
    too; without, a segment has an entry for each append, not for each batch. `lost_snapshots`: also when snapshots of
    the producers are missing.
    """

    files: bool = True
    indexes: bool = True
    lost_snapshots: bool = True

    @property
    def told(self) -> str:
        """In words; empty if all is compared."""
        if not self.files:
            return "the newest values"
        if not self.indexes:
            return "all but the bytes of indexes" + ("" if self.lost_snapshots else ", with all snapshots of producers")
        return ""


LIKENESSES = {
    "3.9": Likeness(),
    "3.2": Likeness(indexes=False),
    "3.1": Likeness(indexes=False, lost_snapshots=False),
    "2.8": Likeness(files=False, indexes=False, lost_snapshots=False),
}
"""By the first version that has it, newest first."""


def likeness_of(version: str) -> Likeness:
    """Return how far the cleaner of a version since 2.8 is like kcompact."""
    return next(likeness for first, likeness in LIKENESSES.items() if numbers(first) <= numbers(version))
