"""The kernels that inflate and deflate batches, compared with `format.codec`."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zstandard

from kcompact import kernels
from kcompact.errors import BatchTooLargeError, KcompactError
from kcompact.format.batch import Record, build, parse_batches, sealed
from kcompact.format.codec import Codec, compress, decompress, most_compressed_bytes
from kcompact.format.limits import most_inflated_bytes
from kcompact.kernels import (
    ACTION,
    ATTRIBUTES,
    COLUMNS,
    DONE,
    ENCODED,
    FULL,
    HEADER_BYTES,
    OUT_END,
    OUT_START,
    OUTCOMES,
    RECORDS_COUNT,
    SEALED,
    SECTION_END,
    SECTION_START,
    UNDECIDED,
    Codecs,
    Table,
    libraries,
)
from kcompact.log import inflate
from kcompact.log.inflate import Buffers, inflated_runs
from tests.support import sections
from tests.support.kernel_inputs import array

MIB = 1 << 20
TEXT = b"abcd" * 400
FILE = Path("0.log")


def log_of(compressed: list[tuple[Codec, bytes]]) -> bytes:
    """Return batches with these sections. Each says that it has one record."""
    data = b""
    for number, (codec, section) in enumerate(compressed):
        (one,) = parse_batches(build([Record(number, 0, b"", b"")]), file="")
        length = HEADER_BYTES - 12 + len(section)
        data += sealed(one.header._replace(attributes=int(codec), length=length), section)
    return data


def table_of(data: bytes) -> Table:
    table = np.empty((len(data) // HEADER_BYTES + 1, COLUMNS), np.int64)
    count, _, _, code = kernels.parse_batches(array(data), len(data), 0, 1 << 62, -1, table)
    assert code == DONE
    return table[:count]


def inflated(data: bytes, buffers: Buffers, wanted: Any = None) -> tuple[list[bytes], KcompactError | None]:
    """Return the sections of a log as `inflated_runs` inflates them, and the error that ends them."""
    table, found = table_of(data), []
    try:
        for first, end, run in inflated_runs(
            array(data), table, buffers, file=str(FILE), start_position=0, wanted=wanted
        ):
            for number in range(first, end):
                if table[number, ATTRIBUTES] and (wanted is None or wanted[number]):
                    found.append(run[table[number, SECTION_START] : table[number, SECTION_END]].tobytes())
    except KcompactError as problem:
        return found, problem
    return found, None


def expected_of(data: bytes, memory_bytes: int) -> tuple[list[bytes], KcompactError | None]:
    """Return the same by the definition."""
    found = []
    for one in parse_batches(data, file=""):
        compressed = one.data[HEADER_BYTES:]
        max_bytes = most_inflated_bytes(len(compressed), memory_bytes)
        codec = Codec(one.header.codec_id)
        if codec:
            try:
                found.append(decompress(codec, compressed, file=str(FILE), position=one.position, max_bytes=max_bytes))
            except KcompactError as problem:
                return found, problem
    return found, None


@pytest.mark.parametrize("seed", range(40))
def test_runs_of_batches_are_those_of_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(inflate, "INFLATED_BYTES", chance.choice([1, 100, 100_000, 32 * MIB]))
    memory_bytes = chance.choice([MIB, 1 << 30])
    compressed = []
    for _ in range(chance.randrange(1, 12)):
        codec = chance.choice(list(Codec))
        section = sections.section(codec, chance) if codec else b"\x0e" + bytes(7)
        compressed.append((codec, sections.damaged(section, chance) if chance.random() < 0.1 else section))
    data = log_of(compressed)
    found, problem = inflated(data, Buffers(memory_bytes))
    expected, expected_problem = expected_of(data, memory_bytes)
    assert (type(problem), str(problem)) == (type(expected_problem), str(expected_problem))
    assert found == expected[: len(found)]
    assert problem is not None or len(found) == len(expected)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_sections_in_guarded_arrays(rounds: int) -> None:
    command = [sys.executable, "-m", "tests.support.guarded_codecs", "1", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, (done.returncode, done.stderr)
    for line in done.stdout.splitlines():
        by_kernel, by_definition, refused = map(int, line.split()[1:])
        assert by_kernel > rounds * 0.15, line
        assert refused > rounds * 0.2, line
        assert by_definition > rounds * 0.025, line


@pytest.mark.parametrize("codec", sections.COMPRESSING)
def test_the_usual_form_is_inflated_without_the_definition(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    contents = [sections.content(chance) for _ in range(40)]
    data = log_of([(codec, compress(codec, one)) for one in contents])
    monkeypatch.setattr(inflate, "decompress", None)
    assert inflated(data, Buffers()) == (contents, None)
    wanted = np.arange(40) % 3 == 1
    assert inflated(data, Buffers(), wanted) == (contents[1::3], None)


@pytest.mark.parametrize("codec", sections.COMPRESSING)
def test_a_batch_that_inflates_to_too_much(codec: Codec) -> None:
    bomb = compress(codec, bytes(20 * MIB))
    found, problem = inflated(log_of([(codec, compress(codec, TEXT)), (codec, bomb)]), Buffers(4 * MIB))
    assert found == [TEXT]
    assert isinstance(problem, BatchTooLargeError)


@pytest.mark.parametrize("codec", sections.COMPRESSING)
def test_the_kernels_write_what_the_definition_writes(codec: Codec) -> None:
    chance = random.Random(3)
    contents = [sections.content(chance, 80_000) for _ in range(60)] + sections.contents_of("text")
    count, ends = len(contents), np.cumsum([len(one) for one in contents])
    table, outcomes = np.zeros((count, COLUMNS), np.int64), np.zeros((count, OUTCOMES), np.int64)
    table[:, ATTRIBUTES], table[:, RECORDS_COUNT] = codec, 1
    outcomes[:, ACTION] = ENCODED
    outcomes[:, OUT_START], outcomes[:, OUT_END] = np.concatenate(([0], ends[:-1])), ends
    codecs = Codecs()
    codecs.open(codec)
    out = np.empty(sum(HEADER_BYTES + most_compressed_bytes(len(one)) for one in contents), np.uint8)
    header = np.zeros(HEADER_BYTES, np.uint8)
    keeps_header = np.zeros(count, np.uint8)
    kernels.seal_batches(header, array(b"".join(contents)), table, keeps_header, 0, count, codecs.words, out, outcomes)
    assert set(outcomes[:, ACTION]) == {SEALED}
    for one, outcome in zip(contents, outcomes, strict=True):
        section = out[outcome[OUT_START] + HEADER_BYTES : outcome[OUT_END]].tobytes()
        assert decompress(codec, section, file="") == one
        assert section == compress(codec, one)


@pytest.mark.parametrize("space", [0, 8, 254, 255, 1000])
def test_a_zstd_frame_that_declares_a_wrong_size(space: int) -> None:
    """With little space zstd inflates it. It declares 255 bytes and has an empty block."""
    data = log_of([(Codec.ZSTD, bytes.fromhex("28b52ffd20ff010000"))])
    codecs = Codecs()
    codecs.open(Codec.ZSTD)
    out, wanted, most_bytes = np.empty(space + inflate.PADDING_BYTES, np.uint8), np.ones(1, np.uint8), np.array([5000])
    _, _, code = kernels.inflate_batches(
        array(data), table_of(data), wanted, 0, 1, most_bytes, 5000, codecs.words, out, 0
    )
    assert code == (FULL if space < 255 else UNDECIDED)


@pytest.mark.parametrize(("window_byte", "is_sound"), [(0x88, True), (0x89, False), (0xF8, False)])
def test_a_zstd_frame_with_a_window_above_128_mib(window_byte: int, is_sound: bool) -> None:
    """With space for the declared size, the library itself does not look at the window."""
    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=18, write_content_size=True)
    frame = bytearray(zstandard.ZstdCompressor(compression_params=params).compress(bytes(5 * MIB)))
    frame[5] = window_byte
    data = log_of([(Codec.ZSTD, bytes(frame))])
    found, problem = inflated(data, Buffers())
    expected, expected_problem = expected_of(data, Buffers().memory_bytes)
    assert (found, str(problem)) == (expected, str(expected_problem))
    assert (problem is None) == is_sound


def test_a_forked_process_uses_the_contexts_on_its_own() -> None:
    chance = random.Random(5)
    contents = [(codec, sections.content(chance)) for codec in sections.COMPRESSING for _ in range(5)]
    data, buffers = log_of([(codec, compress(codec, one)) for codec, one in contents]), Buffers()
    expected = ([one for _, one in contents], None)
    assert inflated(data, buffers) == expected
    child = os.fork()
    if child == 0:
        is_equal = False
        try:
            is_equal = inflated(data, buffers) == expected
            del buffers
            gc.collect()
        finally:
            os._exit(0 if is_equal else 1)
    assert inflated(data, buffers) == expected
    assert os.waitpid(child, 0)[1] == 0


# Libraries that cannot be called


def missing(*_: object) -> ctypes.CDLL:
    raise ImportError("no such library")


def without_functions(*_: object) -> ctypes.CDLL:
    return ctypes.CDLL(None)  # The interpreter has no function of a codec.


def other_version(*_: object) -> Any:
    return SimpleNamespace(
        ZSTD_versionNumber=lambda: 10_399,
        LZ4_sizeofState=lambda: 1 << 20,
        libdeflate_alloc_decompressor=lambda: 0,
        libdeflate_free_decompressor=lambda _: None,
    )


@pytest.mark.parametrize("library", [missing, without_functions, other_version])
def test_without_libraries_the_definition_inflates(
    library: Callable[..., ctypes.CDLL], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_extension", library)
    monkeypatch.setattr(libraries, "_libz", missing if library is without_functions else library)
    codecs = Codecs()
    for codec in sections.COMPRESSING:
        codecs.open(codec)
    assert not any(codecs.words)
    data = log_of([(codec, compress(codec, TEXT)) for codec in sections.COMPRESSING])
    assert inflated(data, Buffers()) == ([TEXT] * 4, None)
    table = table_of(data)
    out, wanted, most_bytes = np.empty(10_000, np.uint8), np.ones(4, np.uint8), np.full(4, 10_000)
    for number in range(4):
        _, _, code = kernels.inflate_batches(
            array(data), table, wanted, number, number + 1, most_bytes, 10_000, codecs.words, out, 0
        )
        assert code == (DONE if table[number, ATTRIBUTES] == Codec.SNAPPY else UNDECIDED)


def test_contexts_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    released = []
    monkeypatch.setattr(libraries, "_OPENERS", {Codec.ZSTD: lambda _: iter([lambda: released.append(1)])})
    codecs = Codecs()
    codecs.open(Codec.ZSTD)
    codecs.open(Codec.ZSTD)
    assert released == []
    del codecs
    gc.collect()
    assert released == [1]


def test_many_contexts_take_no_memory() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    data = log_of([(codec, compress(codec, bytes(100_000))) for codec in sections.COMPRESSING])
    for _ in range(10):
        assert inflated(data, Buffers())[1] is None
    before = resident_bytes()
    for _ in range(200):
        inflated(data, Buffers())
    assert resident_bytes() - before < 20 * MIB
