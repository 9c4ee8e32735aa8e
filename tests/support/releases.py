"""Versions of Kafka, and the release whose rules each has."""

from __future__ import annotations

import re

from kcompact.release import OLDEST, RELEASES, Release


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Kafka."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def release_of(version: str) -> Release:
    """Return the release whose rules a version has, as far as they are known: the newest one up to it."""
    known = [release for name, release in RELEASES.items() if numbers(name) <= numbers(version)]
    return known[0] if known else OLDEST
