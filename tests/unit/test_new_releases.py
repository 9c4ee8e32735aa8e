"""`tests.oracle.new_releases`: which versions of Kafka are new, and which release a version has."""

from __future__ import annotations

import pytest

from tests.oracle.new_releases import new_versions
from tests.support.releases import Likeness, likeness_of, release_of


def test_new_are_later_patches_and_newer_releases() -> None:
    published = ["3.8.1", "3.9.2", "3.9.3", "4.1.9", "4.3.2", "4.4.0", "4.4.1", "4.5.0-rc1", "4.5.0", "4.10.0"]
    assert list(new_versions(published)) == ["3.9.3", "4.3.2", "4.4.1", "4.5.0", "4.10.0"]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.8.2", "3.9"),
        ("3.9.0", "3.8"),
        ("3.6.2", "3.8"),
        ("3.0.2", "3.9"),
        ("3.9.2", "3.9"),
        ("4.1.2", "4.0"),
        ("4.2.2", "4.0"),
        ("4.3.0", "4.3"),
        ("4.10.1", "4.4"),
    ],
)
def test_a_version_has_the_newest_release_up_to_it(version: str, name: str) -> None:
    assert release_of(version).name == name


@pytest.mark.parametrize(
    ("version", "likeness"),
    [
        ("4.4.0", Likeness()),
        ("3.9.1", Likeness()),
        ("3.8.1", Likeness(indexes=False)),
        ("3.2.3", Likeness(indexes=False)),
        ("3.1.2", Likeness(indexes=False, lost_snapshots=False)),
        ("3.0.2", Likeness(files=False, indexes=False, lost_snapshots=False)),
    ],
)
def test_less_of_an_older_version_is_compared(version: str, likeness: Likeness) -> None:
    assert likeness_of(version) == likeness
