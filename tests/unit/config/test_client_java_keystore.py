"""`config.client.stores`: certificates of stores in Java's old format."""

from __future__ import annotations

import pytest

from kcompact.config.client.stores import jks_certificates
from tests.support.certificates import PASSWORD, authority, jks, sign

OTHER = sign("other", names=["other"])


@pytest.mark.parametrize("version", [1, 2])
def test_certificates(version: int) -> None:
    store = jks(authority(), OTHER, version=version)
    assert jks_certificates(store, password=PASSWORD) == [authority().der, OTHER.der]
    assert jks_certificates(store, password=None) == [authority().der, OTHER.der]


def test_the_certificate_of_a_key_is_trusted() -> None:
    assert jks_certificates(jks(authority(), keys=[OTHER]), password=PASSWORD) == [OTHER.der, authority().der]


def test_a_wrong_password() -> None:
    with pytest.raises(ValueError, match="the password is wrong, or the file is damaged"):
        jks_certificates(jks(authority()), password="other")


def test_every_cut_and_every_flipped_byte_is_noticed() -> None:
    store = jks(authority())
    for at in range(len(store)):
        flipped = bytes([*store[:at], store[at] ^ 1, *store[at + 1 :]])
        for damaged in (store[:at], flipped):
            with pytest.raises(ValueError, match=r"damaged|unknown"):
                jks_certificates(damaged, password=PASSWORD)


def test_lengths_that_lie() -> None:
    store = jks(authority())
    for at in range(12, len(store) - 24):
        lying = store[:at] + b"\x7f\xff\xff\xff" + store[at + 4 :]
        try:
            jks_certificates(lying, password=None)
        except ValueError as problem:
            assert "damaged" in str(problem) or "unknown" in str(problem)  # noqa: PT017
