"""Codecs: the bytes that Kafka writes, the streams that Kafka reads, and damaged or hostile streams."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import random
import struct
import subprocess
import sys
import warnings
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.codec.stream import DamagedStreamError, call_library
from tests.support import sections
from tests.support.damage import cuts_and_flips

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    import kafka.codec

TEXT = b"abcd" * 4
MIB = 1024 * 1024
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]

# TEXT as Kafka 4.3.1's own classes compress it (JDK 17, snappy-java 1.1.10.8, lz4-java 1.11.0, zstd-jni 1.5.7-7).
JVM = {
    Codec.GZIP: "1f8b08000000000000ff4b4c4a4e4944c200d39ab00110000000",
    Codec.SNAPPY: "82534e4150505900000000010000000100000012103c61626364616263646162636461626364",
    Codec.LZ4: "04224d186040820d0000004361626364040050646162636400000000",
    Codec.ZSTD: "28b52ffd005854000020616263640100738e08010000",
}
GZIP, SNAPPY, LZ4, ZSTD = (bytes.fromhex(JVM[codec]) for codec in COMPRESSING)
XERIAL = SNAPPY[:16]


def inflate(codec: Codec, data: bytes, *, max_bytes: int = MIB, magic: int = 2) -> bytes:
    return decompress(codec, data, file="00000000000000000000.log", position=61, max_bytes=max_bytes, magic=magic)


@pytest.mark.parametrize("codec", JVM)
def test_compress_gives_kafkas_bytes(codec: Codec) -> None:
    assert compress(codec, TEXT).hex() == JVM[codec]


@pytest.mark.parametrize(
    ("size", "blocks"),
    [(0, []), (1, [1]), (65536, [65536]), (65537, [65536, 1]), (150_000, [65536, 65536, 18928])],
)
def test_lz4_blocks(size: int, blocks: list[int]) -> None:
    data = random.Random(size).randbytes(size)  # random bytes do not compress, so every block is stored
    frame = compress(Codec.LZ4, data)
    stored = b"".join(
        struct.pack("<I", 0x80000000 | length) + data[n * 65536 : n * 65536 + length] for n, length in enumerate(blocks)
    )
    assert frame == bytes.fromhex("04224d18604082") + stored + bytes(4)


@pytest.mark.parametrize(("size", "blocks"), [(0, 0), (1, 1), (32768, 1), (32769, 2), (98304, 3)])
def test_snappy_blocks(size: int, blocks: int) -> None:
    frame = compress(Codec.SNAPPY, bytes(size))
    assert frame[:16] == XERIAL
    found, position = 0, 16
    while position < len(frame):
        (length,) = struct.unpack_from(">i", frame, position)
        position, found = position + 4 + length, found + 1
    assert (position, found) == (len(frame), blocks)


# SHA-256 of all sections of a kind as Kafka 3.9.2, 4.0.2, 4.3.1 and 4.4.0 compress them with snappy (snappy-java
# 1.1.10.5 and 1.1.10.7, both with libsnappy 1.1.10). tests/oracle/test_codecs_with_kafka.py asks the newest of them.
SNAPPY_DIGESTS = {
    "random": "47df6984445b086fb4588663f197f5389dd5b00321168d7eabc61a2677021cc3",
    "text": "0172dfbeb7ce740b6c5c959e5a843db44b76ea2ff509fdbb6faa5db6344ad675",
    "repeated": "96f98ddf33f13fd0686d6b7dde6d3731232c8140729b7704d66383512dd8e6bf",
    "records": "ebad4ca3913e42eed79d722b96364cc677cef0c6ea6a0f3e310661b7f3ff101b",
    "runs": "ae27057f8ebdde16a60d6349d4c88b48c86cc50cddf6657f7572449d21a660fc",
}


@pytest.mark.parametrize("kind", sections.KINDS)
def test_snappy_has_kafkas_bytes_for_every_kind_of_content(kind: str) -> None:
    written = hashlib.sha256()
    for content in sections.contents_of(kind):
        section = compress(Codec.SNAPPY, content)
        assert inflate(Codec.SNAPPY, section) == content
        written.update(section)
    assert written.hexdigest() == SNAPPY_DIGESTS[kind]


def test_the_lz4_header_of_magic_0() -> None:
    frame = compress(Codec.LZ4, TEXT, magic=0)
    assert frame == LZ4[:6] + b"\x1a" + LZ4[7:]
    assert inflate(Codec.LZ4, frame, magic=0) == inflate(Codec.LZ4, LZ4, magic=0) == TEXT
    with pytest.raises(CorruptBatchError, match="checksum of the lz4 frame header"):
        inflate(Codec.LZ4, frame, magic=1)


@pytest.mark.parametrize("codec", Codec)
@given(
    data=st.one_of(
        st.binary(max_size=300), st.builds(lambda piece, n: piece * n, st.binary(max_size=20), st.integers(0, 9000))
    )
)
def test_decompress_is_the_inverse_of_compress(codec: Codec, data: bytes) -> None:
    assert inflate(codec, compress(codec, data)) == data
    assert inflate(codec, compress(codec, memoryview(data), magic=0), magic=0) == data


KAFKA_PYTHON = {
    Codec.GZIP: (kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    Codec.SNAPPY: (kafka.codec.snappy_encode, kafka.codec.snappy_decode),
    Codec.LZ4: (kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    Codec.ZSTD: (kafka.codec.zstd_encode, kafka.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", KAFKA_PYTHON)
@pytest.mark.parametrize("data", [b"a", TEXT, bytes(200_000), random.Random(1).randbytes(100_000)], ids=len)
def test_kafka_python_and_kcompact_read_each_other(codec: Codec, data: bytes) -> None:
    encode, decode = KAFKA_PYTHON[codec]
    assert bytes(decode(compress(codec, data))) == data
    assert inflate(codec, bytes(encode(data))) == data


def gzip_member(flags: int, extra: bytes = b"") -> bytes:
    return bytes((0x1F, 0x8B, 8, flags)) + bytes(5) + b"\xff" + extra + GZIP[10:]


def with_header_checksum(member: bytes, header_bytes: int) -> bytes:
    checksum = zlib.crc32(member[:header_bytes]) & 0xFFFF
    return member[:header_bytes] + struct.pack("<H", checksum) + member[header_bytes:]


def lz4_frame(data: bytes, **options: object) -> bytes:
    frame: bytes = lz4.frame.compress(data, block_linked=False, **{"store_size": False, **options})
    return frame


def zstd_frame(data: bytes, *, checksum: bool = False, size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size).compress(data)


SKIPPABLE = bytes.fromhex("502a4d1803000000aabbcc")

# Kafka 4.3.1's own classes read each of these to the same bytes.
ACCEPTED = [
    (Codec.GZIP, GZIP + GZIP, TEXT * 2),
    (Codec.GZIP, GZIP + b"\0", TEXT),
    (Codec.GZIP, GZIP + b"not another member, but long", TEXT),
    (Codec.GZIP, GZIP + GZIP[:10], TEXT),
    (Codec.GZIP, gzip_member(0xE0), TEXT),
    (Codec.GZIP, gzip_member(0x10, b"a comment\0"), TEXT),
    (Codec.GZIP, gzip_member(0x0C, b"\2\0xxname\0"), TEXT),
    (Codec.GZIP, with_header_checksum(gzip_member(0x02), 10), TEXT),
    (Codec.GZIP, gzip.compress(TEXT, 9), TEXT),
    (Codec.SNAPPY, XERIAL, b""),
    (Codec.SNAPPY, SNAPPY + SNAPPY, TEXT * 2),
    (Codec.SNAPPY, SNAPPY + SNAPPY[16:], TEXT * 2),
    (Codec.SNAPPY, SNAPPY + b"\1\2\3", TEXT),
    (Codec.SNAPPY, SNAPPY[20:], TEXT),
    (Codec.SNAPPY, SNAPPY[:8] + bytes(4) + SNAPPY[12:], TEXT),
    (Codec.LZ4, LZ4 + b"trailing", TEXT),
    (Codec.LZ4, lz4_frame(TEXT, store_size=True), TEXT),
    (Codec.LZ4, lz4_frame(TEXT, block_checksum=True), TEXT),
    (Codec.LZ4, lz4_frame(bytes(MIB), block_checksum=True), bytes(MIB)),
    (Codec.LZ4, lz4_frame(TEXT, content_checksum=True), TEXT),
    (Codec.LZ4, lz4_frame(TEXT, content_checksum=True)[:-4] + b"nope", TEXT),
    (Codec.LZ4, lz4_frame(bytes(MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB), bytes(MIB)),
    (Codec.ZSTD, b"", b""),
    (Codec.ZSTD, ZSTD + ZSTD, TEXT * 2),
    (Codec.ZSTD, SKIPPABLE + ZSTD + SKIPPABLE, TEXT),
    (Codec.ZSTD, zstd_frame(TEXT), TEXT),
    (Codec.ZSTD, zstd_frame(bytes(MIB), checksum=True), bytes(MIB)),
    (Codec.ZSTD, zstd_frame(TEXT, size=False), TEXT),
]


@pytest.mark.parametrize(("codec", "data", "expected"), ACCEPTED, ids=range(len(ACCEPTED)))
def test_what_kafka_accepts(codec: Codec, data: bytes, expected: bytes) -> None:
    assert inflate(codec, data) == expected


def lz4_descriptor(flags: int, block_size: int) -> bytes:
    return LZ4[:4] + bytes((flags, block_size)) + LZ4[6:]


# Kafka 4.3.1 refuses each of these too, with two exceptions that depend on the buffers of its libraries: a damaged
# repeated snappy header, which they skip, and a last zstd frame that breaks off.
REFUSED = [
    (Codec.GZIP, b"", "ended prematurely"),
    (Codec.GZIP, b"\x1f\x8c" + GZIP[2:], "no gzip header"),
    (Codec.GZIP, GZIP[:-1], "ended prematurely"),
    (Codec.GZIP, GZIP[:-9], "ended prematurely"),
    (Codec.GZIP, GZIP[:-4] + b"\x11\0\0\0", "trailer does not match"),
    (Codec.GZIP, GZIP + GZIP[:25], "ended prematurely"),
    (Codec.GZIP, gzip_member(0x02, b"xx"), "checksum of the gzip header"),
    (Codec.GZIP, gzip_member(0x08)[:10] + b"no end", "ended prematurely"),
    (Codec.GZIP, GZIP[:10] + b"\xff" * 20, "cannot inflate the gzip section"),
    (Codec.SNAPPY, b"", "declares no length"),
    (Codec.SNAPPY, b"\x03", "cannot inflate the snappy section"),
    (Codec.SNAPPY, XERIAL + b"\xff\xff\xff\xff", "a block declares -1 bytes"),
    (Codec.SNAPPY, XERIAL + b"\x7f\xff\xff\xff", "ended prematurely"),
    (Codec.SNAPPY, XERIAL + b"\0\0\0\0", "declares no length"),
    (Codec.SNAPPY, XERIAL + b"\0\0\0\5\xff\xff\xff\xff\x0f", "a block of 5 bytes declares 4,294,967,295"),
    (Codec.SNAPPY, XERIAL + b"\0\0\0\2\0\0", "an empty block has elements"),
    (Codec.SNAPPY, SNAPPY + SNAPPY[:8] + bytes(8), "unknown version"),
    (Codec.SNAPPY, SNAPPY + SNAPPY[:4] + bytes(12), "repeated header is damaged"),
    (Codec.SNAPPY, SNAPPY[:-1], "ended prematurely"),
    (Codec.LZ4, b"", "ended prematurely"),
    (Codec.LZ4, b"\5" + LZ4[1:], "no lz4 magic number"),
    (Codec.LZ4, LZ4[:-4], "ended prematurely"),
    (Codec.LZ4, LZ4[:6] + b"\x83" + LZ4[7:], "checksum of the lz4 frame header"),
    (Codec.LZ4, lz4_descriptor(0xA0, 0x40), "version 2"),
    (Codec.LZ4, lz4_descriptor(0x40, 0x40), "depend on each other"),
    (Codec.LZ4, lz4_descriptor(0x61, 0x40), "reserved bits"),
    (Codec.LZ4, lz4_descriptor(0x60, 0x41), "reserved bits"),
    (Codec.LZ4, lz4_descriptor(0x60, 0xC0), "reserved bits"),
    (Codec.LZ4, lz4_descriptor(0x60, 0x30), "block size 3"),
    (Codec.LZ4, LZ4[:7] + b"\1\0\1\0" + bytes(70_000), "longer than the frame allows"),
    (Codec.LZ4, LZ4[:7] + b"\3\0\0\0\xff\xff\xff\0\0\0\0", "cannot inflate the lz4 section"),
    (Codec.LZ4, lz4_frame(TEXT, block_checksum=True)[:-8] + b"nope" + bytes(4), "cannot inflate"),
    (Codec.LZ4, lz4_frame(TEXT, content_checksum=True)[:-1], "ended prematurely"),
    (Codec.ZSTD, b"\0" + ZSTD[1:], "no zstd frame"),
    (Codec.ZSTD, ZSTD + b"more", "no zstd frame"),
    (Codec.ZSTD, ZSTD + ZSTD[:3], "ended prematurely"),
    (Codec.ZSTD, ZSTD[:-1], "ended prematurely"),
    (Codec.ZSTD, ZSTD[:6] + b"\7\0\0", "reserved type"),
    (Codec.ZSTD, zstd_frame(TEXT, checksum=True)[:-4] + b"nope", "cannot inflate the zstd section"),
    (Codec.ZSTD, ZSTD[:5] + b"\xff" + ZSTD[6:], "cannot inflate the zstd section"),
]


@pytest.mark.parametrize(("codec", "data", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(codec: Codec, data: bytes, problem: str) -> None:
    with pytest.raises(CorruptBatchError, match=problem) as caught:
        inflate(codec, data)
    assert (caught.value.file, caught.value.position) == ("00000000000000000000.log", 61)


def bomb(codec: Codec, size: int) -> bytes:
    if codec is Codec.SNAPPY:
        return bytes(snappy.compress(bytes(size)))
    if codec is Codec.ZSTD:
        return zstd_frame(bytes(size))  # a single segment: the whole output is allocated at once
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", Codec)
def test_the_cap_is_exact(codec: Codec) -> None:
    section = compress(codec, bytes(70_000))
    assert inflate(codec, section, max_bytes=70_000) == bytes(70_000)
    with pytest.raises(BatchTooLargeError, match="inflates to more than 69,999 bytes"):
        inflate(codec, section, max_bytes=69_999)


BOMB_CHECK = """
import resource, sys
sys.path[:0] = {path!r}
import lz4.frame, snappy, zstandard
from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.format.codec import Codec, decompress
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
for line in sys.stdin:
    codec, section = line.split()
    try:
        decompress(Codec(int(codec)), bytes.fromhex(section), file="f", max_bytes=4 << 20)
        sys.exit("it was inflated")
    except (BatchTooLargeError, CorruptBatchError) as error:
        print(error.problem)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_bombs_do_not_take_the_memory() -> None:
    bombs = "".join(f"{codec} {bomb(codec, 64 * MIB).hex()}\n" for codec in COMPRESSING)
    # Declared sizes: 4 GiB in a content size, and a window of 1.75 TiB.
    bombs += f"{Codec.ZSTD} {(ZSTD[:4] + bytes.fromhex('e0ffffffff00000000') + ZSTD[6:]).hex()}\n"
    bombs += f"{Codec.ZSTD} {(ZSTD[:5] + bytes.fromhex('ff') + ZSTD[6:]).hex()}\n"
    check = BOMB_CHECK.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", check], input=bombs, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 6


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_and_every_flipped_bit(codec: Codec) -> None:
    section = compress(codec, TEXT * 3 + bytes(range(40)))
    for damaged in cuts_and_flips(section):
        with contextlib.suppress(CorruptBatchError, BatchTooLargeError):
            assert len(inflate(codec, damaged)) <= MIB


@given(st.sampled_from(COMPRESSING), st.binary(max_size=200), st.integers(0, 60), st.booleans())
def test_any_bytes_inflate_or_are_corrupt(codec: Codec, data: bytes, kept: int, is_appended: bool) -> None:
    start = bytes.fromhex(JVM[codec])
    with contextlib.suppress(CorruptBatchError, BatchTooLargeError):
        assert len(inflate(codec, start[:kept] + data if is_appended else data, max_bytes=10_000)) <= 10_000


def test_many_small_members_take_linear_time() -> None:
    assert inflate(Codec.GZIP, GZIP * 5_000) == TEXT * 5_000
    assert inflate(Codec.ZSTD, ZSTD * 5_000) == TEXT * 5_000


LIBRARIES = {"lz4", "snappy", "xxhash", "zstandard"}


def test_the_libraries_are_imported_when_needed() -> None:
    check = f"import sys; from kcompact.format import codec; print(*({LIBRARIES} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (MemoryError(), MemoryError),
        (zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory"), MemoryError),
        (zlib.error("Error -4 while decompressing data"), MemoryError),
        (zlib.error("Error -3 while decompressing data: invalid block type"), DamagedStreamError),
        (ValueError(), DamagedStreamError),
    ],
)
def test_a_lack_of_memory_is_no_damage(raised: Exception, expected: type[Exception]) -> None:
    def fails() -> bytes:
        raise raised

    with pytest.raises(expected):
        call_library(fails)
