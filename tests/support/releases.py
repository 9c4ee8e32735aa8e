"""Versions of Kafka, and the release whose rules each has."""

from __future__ import annotations

import re

from kcompact import release
from kcompact.release import NEWEST, Release


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version of Kafka."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def release_of(version: str) -> Release:
    """Return the release whose rules a version has; of a newer one than is known the newest."""
    return NEWEST if numbers(version) > numbers(NEWEST.name) else release.release_of(version)
