"""Inflates damaged sections with the kernels, in arrays beside pages without access. Not a test by itself.

python -m tests.support.guarded_codecs SEED ROUNDS  compares each section with the definition, and prints how many
sections the kernels inflated, how many they left to the definition, and how many of these the definition inflated
"""

from __future__ import annotations

import contextlib
import random
import sys

import numpy as np

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.format.codec import Codec, decompress, most_compressed_bytes
from kcompact.kernels import (
    ACTION,
    ATTRIBUTES,
    CODEC_WORDS,
    COLUMNS,
    DONE,
    ENCODED,
    FULL,
    HEADER_BYTES,
    OUT_END,
    OUT_START,
    OUTCOMES,
    POSITION,
    SEALED,
    SECTION_END,
    SECTION_START,
    SIZE,
    UNDECIDED,
    Codecs,
)
from tests.support import sections
from tests.support.guarded_kernels import Guarded

sources, outs, words_ = Guarded(200), Guarded(400), Guarded(20)
FILL = 0xA5
PADDING_BYTES = 8


def inflate(codec: Codec, data: bytes, codecs: Codecs, chance: random.Random) -> str:
    """Inflate one section at the end of guarded arrays; return who inflated it, or "refused"."""
    most_bytes = chance.choice([0, 100, 10_000, *[1 << 20] * 5])
    expected = None
    with contextlib.suppress(KcompactError):
        expected = decompress(codec, data, file="", max_bytes=most_bytes)
    exact = [] if expected is None else [len(expected) + PADDING_BYTES]
    buffer = sources.put(bytes(HEADER_BYTES) + data)
    start = chance.choice([0, 0, 13])
    out = outs.array(np.uint8, start + chance.choice([PADDING_BYTES, 20_000, 1 << 20, 1 << 20, *exact, *exact]))
    out[:] = FILL
    table = np.zeros((1, COLUMNS), np.int64)
    table[0, [POSITION, SIZE, ATTRIBUTES]] = 0, len(buffer), codec
    wanted, most = np.ones(1, np.uint8), np.array([most_bytes])
    row, end, code = kernels.inflate_batches(buffer, table, wanted, 0, 1, most, 1 << 30, codecs.words, out, start)
    space_end = min(start + most_bytes, len(out) - PADDING_BYTES)
    assert (out[:start] == FILL).all(), "written before the output"
    assert (out[space_end:] == FILL).all(), "written behind the output"
    if code == DONE:
        assert expected is not None, "the kernel inflates what the definition refuses"
        assert (row, table[0, SECTION_START], table[0, SECTION_END]) == (1, start, end)
        assert out[start:end].tobytes() == expected, "other bytes"
        return "kernel"
    assert (row, end) == (0, start)
    if code == FULL:
        assert most_bytes > len(out) - PADDING_BYTES - start
    else:
        assert code == UNDECIDED
    return "refused" if expected is None else "definition"


def deflate(codec: Codec, codecs: Codecs, chance: random.Random) -> None:
    """Compress content at the end of a guarded array; the definition must inflate it."""
    data = sections.content(chance)
    table, outcomes = np.zeros((1, COLUMNS), np.int64), np.zeros((1, OUTCOMES), np.int64)
    table[0, ATTRIBUTES] = codec
    outcomes[0, [ACTION, OUT_START, OUT_END]] = ENCODED, 0, len(data)
    space = HEADER_BYTES + chance.choice(
        [most_compressed_bytes(len(data)), chance.randrange(most_compressed_bytes(len(data)))]
    )
    out = outs.array(np.uint8, space)
    header, keeps_header = np.zeros(HEADER_BYTES, np.uint8), np.zeros(1, np.uint8)
    end = kernels.seal_batches(header, sources.put(data), table, keeps_header, 0, 1, codecs.words, out, outcomes)
    if outcomes[0, ACTION] == ENCODED:
        assert space < HEADER_BYTES + most_compressed_bytes(len(data)), "it must fit"
        return
    assert outcomes[0, [ACTION, OUT_START, OUT_END]].tolist() == [SEALED, 0, end]
    assert decompress(codec, out[HEADER_BYTES:end].tobytes(), file="") == data


def main(seed: int, rounds: int) -> None:
    """Do so many rounds with each codec."""
    chance = random.Random(seed)
    for codec in sections.COMPRESSING:
        codecs = Codecs()
        words = words_.array(np.int64, CODEC_WORDS)
        words[:] = 0
        codecs.words = words  # type: ignore[assignment]  # At the end of a page that can be read.
        codecs.open(codec)
        seen = {"kernel": 0, "definition": 0, "refused": 0}
        for _ in range(rounds):
            seen[inflate(codec, sections.damaged(sections.section(codec, chance), chance), codecs, chance)] += 1
            deflate(codec, codecs, chance)
        print(codec.name, *seen.values())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
