"""Sections of records are compressed to the bytes of Kafka's own writer, with each codec."""

from __future__ import annotations

import pytest

from kcompact.format.codec import Codec, compress
from tests.oracle.real_kafka import RealKafka
from tests.support.sections import COMPRESSING, KINDS, contents_of

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("kind", KINDS)
def test_sections_have_the_bytes_of_kafka(kind: str, codec: Codec, kafka: RealKafka) -> None:
    contents = contents_of(kind)
    sections = kafka.compressed(codec.name.lower(), contents)
    # An empty section of zstd has no frame in Kafka. No batch has one: a batch without records is not compressed.
    is_wanted = [codec is not Codec.ZSTD or bool(content) for content in contents]
    differing = [
        len(content)
        for content, section, wanted in zip(contents, sections, is_wanted, strict=True)
        if wanted and section != compress(codec, content)
    ]
    assert (len(contents), differing) == (40, [])
