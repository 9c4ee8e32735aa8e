"""Versions of Kafka, the release whose rules each has, and how far its cleaner is like these rules."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcompact.release import RELEASES, Release

OLDER_RULES = {"3.9.0": "3.8", "3.9.1": "3.8"}
"""Versions with the rules of the release before their own: KAFKA-17076 was corrected in a later patch."""
FIRST_WITH_RULES = (3, 1)


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Kafka."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def release_of(version: str) -> Release:
    """Return the release whose rules a version has, as far as they are known: the newest one up to it.

    The rules of 2.8 and 3.0 are those of no release. Their logs are cleaned by the rules of 3.9.
    """
    if numbers(version) < FIRST_WITH_RULES:
        return RELEASES["3.9"]
    newest = numbers(OLDER_RULES.get(version, version))
    known = [release for name, release in RELEASES.items() if numbers(name) <= newest]
    return known[0] if known else [*RELEASES.values()][-1]


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
