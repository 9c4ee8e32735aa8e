"""`tests.oracle.new_releases`: which versions of Kafka are new, and which release a version has."""

from __future__ import annotations

import pytest

from tests.oracle.new_releases import new_versions
from tests.support.releases import release_of


def test_new_are_later_patches_and_newer_releases() -> None:
    published = ["3.8.1", "3.9.2", "3.9.3", "4.1.9", "4.3.2", "4.4.0", "4.4.1", "4.5.0-rc1", "4.5.0", "4.10.0"]
    assert list(new_versions(published)) == ["3.9.3", "4.3.2", "4.4.1", "4.5.0", "4.10.0"]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.8.2", "3.9"),
        ("3.9.0", "3.8"),
        ("3.6.2", "3.8"),
        ("4.1.2", "4.0"),
        ("4.2.2", "4.0"),
        ("4.3.0", "4.3"),
        ("4.10.1", "4.4"),
    ],
)
def test_a_version_has_the_newest_release_up_to_it(version: str, name: str) -> None:
    assert release_of(version).name == name
