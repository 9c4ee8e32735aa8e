"""`records`: what no case file of `tests/cases/commands` can say: an index that says where to begin, every decoder."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.commands.records import DECODER_NAMES
from kcompact.cli.output.dump import raw_field
from kcompact.cli.output.field_decoder import DECODERS, FieldDecoder
from kcompact.format.batch import Record, build
from kcompact.format.index import OFFSET_ENTRY_BYTES
from tests.support.command_line import kcompact

NAN, INFINITE = struct.pack(">d", float("nan")), struct.pack(">d", float("-inf"))


def log_dir(directory: Path) -> Path:
    """Two partitions of a topic: offsets 0 to 5 in two segments, and one record."""
    for name, base, keys in (("t-0", 0, b"abc"), ("t-0", 3, b"abd"), ("t-1", 0, b"a")):
        partition = directory / name
        partition.mkdir(parents=True, exist_ok=True)
        batches = [
            build([Record(base + number, 1000 * (base + number), bytes([key]), None if key == 100 else b"v")])
            for number, key in enumerate(keys)
        ]
        (partition / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


def test_an_index_says_where_to_begin_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    partition = log_dir(tmp_path) / "t-0"
    log = partition / "00000000000000000000.log"
    batch_bytes = log.stat().st_size // 3
    data = bytearray(log.read_bytes())
    data[40] ^= 1  # Damage in the first batch: it is not read if the reading begins behind it.
    log.write_bytes(bytes(data))
    index = log.with_suffix(".index")
    for entry, code in ((struct.pack(">ii", 1, batch_bytes), 0), (struct.pack(">ii", 1, 2 * batch_bytes), 3)):
        assert len(entry) == OFFSET_ENTRY_BYTES
        index.write_bytes(entry)
        assert kcompact("records", "--json", "--offset", "2", partition).code == code


# Decoders


@pytest.mark.parametrize(
    ("name", "data", "in_json", "in_text"),
    [
        ("utf8", "grün\n".encode(), "grün\n", "grün\n"),
        ("utf8", b"\xff", None, None),
        ("hex", b"\0\xff", "00ff", "00ff"),
        ("base64", b"\0\xff", "AP8=", "AP8="),
        ("int", b"\xff\xff\xff\xfe", -2, "-2"),
        ("int", bytes(7) + b"\x05", 5, "5"),
        ("int", b"\5", None, None),
        ("long", bytes(7) + b"\x05", 5, "5"),
        ("long", bytes(4), None, None),
        ("double", struct.pack(">d", 1.5), 1.5, "1.5"),
        ("double", NAN, "NaN", "NaN"),
        ("double", INFINITE, "-Infinity", "-Infinity"),
        ("double", b"1.5", None, None),
        ("json", b' {"a": [1, null, "\xc3\xbc"]}', {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
        ("json", b"null", None, "null"),
        ("json", b"{", None, None),
        ("json", b"NaN", None, None),
        ("json", b'"\\ud83c\\udf89"', "\U0001f389", "\U0001f389"),
        ("json", b'{"\\udf89": 1}', None, None),
        ("json", b"1e999", None, None),
        ("json", b"[" * 100_000, None, None),
        (
            "confluent",
            b"\0\0\0\1\x02xyz",
            {"schemaId": 258, "base64": "eHl6"},
            '{"schemaId":258,"base64":"eHl6"}',
        ),
        ("confluent", b"\1\0\0\0\1", None, None),
        ("confluent", b"\0\0\0\1", None, None),
    ],
)
def test_a_decoder(name: str, data: bytes, in_json: Any, in_text: str | None) -> None:
    record = Record(7, 0, None, data)
    for as_json, expected in ((True, in_json), (False, in_text)):
        decoder = FieldDecoder(None, name, as_json=as_json)
        content = decoder.content(record)
        assert content.pop("key") is None
        json.dumps(content, allow_nan=False)
        if in_text is None:  # It is shown as it is, and counted.
            assert content == raw_field("payload", data)
            assert decoder.failed == {"key": 0, "payload": 1}
            assert decoder.notes()[0].text.startswith(
                f"1 value could not be decoded as {name} and is listed as without a decoder, the first at offset 7: "
            )
        else:
            assert content == {"payload": expected}
            assert decoder.notes() == []


def test_every_decoder_is_an_option() -> None:
    assert tuple(DECODERS) == DECODER_NAMES
