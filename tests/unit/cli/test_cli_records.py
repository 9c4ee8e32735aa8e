"""`records`: filters, decoders and what they say on standard error."""

from __future__ import annotations

import hashlib
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
from tests.support.command_line import flip, kcompact

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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["t-0 0", "t-0 1", "t-0 2", "t-0 3", "t-0 4", "t-0 5", "t-1 0"]),
        (["--key", "a"], ["t-0 0", "t-0 3", "t-1 0"]),
        (["--key", "hex:61", "--key", "d"], ["t-0 0", "t-0 3", "t-0 5", "t-1 0"]),
        (["--key-prefix", "c"], ["t-0 2"]),
        (["--key-hash", hashlib.sha256(b"b").hexdigest()[:16].upper()], ["t-0 1", "t-0 4"]),
        (["--offset", "1", "--offset", "5"], ["t-0 1", "t-0 5"]),
        (["--from-offset", "4"], ["t-0 4", "t-0 5"]),
        (["--until-offset", "1"], ["t-0 0", "t-1 0"]),
        (["--from-offset", "0", "--limit", "1"], ["t-0 0"]),
        (["--since", "0", "--partition", "1"], ["t-1 0"]),
        (["--until", "0"], []),
        (["--since", "1970-01-01T00:00:04"], ["t-0 4", "t-0 5"]),
        (["--until", "1970-01-01T00:00:01Z", "--partition", "0"], ["t-0 0"]),
        (["--tombstones"], ["t-0 5"]),
        (["--partition", "1"], ["t-1 0"]),
        (["--producer-id", "-1", "--leader-epoch", "0", "--transaction", "none", "--from-offset", "5"], ["t-0 5"]),
    ],
)
def test_chosen_records(
    options: list[str], expected: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kcompact("records", "--json", *options, log_dir(tmp_path))
    assert (ran.code, ran.err) == (0, "" if expected else "note: no record matches\n")
    assert [f"{line['file'].split('/')[0]} {line['offset']}" for line in ran.lines] == expected


def test_text_has_the_batches_of_chosen_records_only(tmp_path: Path) -> None:
    lines = kcompact("records", "--key", "d", log_dir(tmp_path)).out.splitlines()
    assert [line.split(" lastOffset")[0].split(" CreateTime")[0] for line in lines] == [
        *("Dumping t-0/00000000000000000003.log", "Log starting offset: 3"),
        *("baseOffset: 5", "| offset: 5"),
    ]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (["--key", "nobody"], "no record matches"),
        (["--from-offset", "6", "--partition", "0"], "no record matches: the log t-0 ends at offset 6"),
        (["--until-offset", "0"], "no record can match: no offset is below 0"),
        (["--from-offset", "5", "--until-offset", "5"], "no record can match: the offsets exclude each other"),
        (["--partition", "7"], "no log of partition 7 is in the paths"),
    ],
)
def test_a_filter_that_matches_nothing_says_so(options: list[str], note: str, tmp_path: Path) -> None:
    ran = kcompact("records", *options, log_dir(tmp_path))
    assert (ran.code, ran.out, ran.err) == (0, "", f"note: {note}\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--key", "hex:6"], "is not hex: and pairs"),
        (["--key-hash", "xyz"], "is not the first 4 to 64 hexadecimal digits"),
        (["--offset", "-1"], "'-1' is not a number from 0 on"),
        (["--decode", "--key-decoder", "hex"], "--decode excludes --key-decoder and --value-decoder"),
    ],
)
def test_wrong_usage(options: list[str], problem: str, tmp_path: Path) -> None:
    ran = kcompact("records", *options, log_dir(tmp_path))
    assert ran.code == 2
    assert problem in ran.err


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


def test_decoders_list_the_data_and_a_failure_is_a_note(tmp_path: Path) -> None:
    ran = kcompact("records", "--json", "--key-decoder", "hex", "--value-decoder", "long", log_dir(tmp_path) / "t-0")
    assert (ran.code, [(line["key"], line["payload"]) for line in ran.lines][:2]) == (0, [("61", "v"), ("62", "v")])
    assert "note: 5 values could not be decoded as long and are listed" in ran.err


# The latest records


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["t-0 2", "t-0 3", "t-0 4", "t-0 5", "t-1 0"]),
        (["--key", "a"], ["t-0 3", "t-1 0"]),
        (["--from-offset", "4"], ["t-0 4", "t-0 5"]),
        (["--until-offset", "3"], ["t-0 2", "t-1 0"]),
    ],
)
def test_latest(
    options: list[str], expected: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = kcompact("records", "--latest", "--json", *options, log_dir(tmp_path))
    assert (ran.code, ran.err) == (0, "")
    assert [f"{line['file'].split('/')[0]} {line['offset']}" for line in ran.lines] == expected


def test_latest_of_a_damaged_log_is_not_known(tmp_path: Path) -> None:
    log = log_dir(tmp_path) / "t-0" / "00000000000000000003.log"
    data = bytearray(log.read_bytes())
    data[40] ^= 1
    log.write_bytes(bytes(data))
    ran = kcompact("records", "--latest", "--json", tmp_path)
    assert (ran.code, [line["file"] for line in ran.lines]) == (3, ["t-1/00000000000000000000.log"])
    assert ran.err.count("error: ") == 1
    nothing = kcompact("records", "--latest", "--key", "b", tmp_path)
    assert (nothing.code, "no record" in nothing.err) == (3, False)


def test_what_could_not_be_read_may_match(compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(log_dir(tmp_path) / "t-0" / "00000000000000000003.log", 40)
    ran = kcompact("records", "--key", "nobody", tmp_path)
    assert (ran.code, ran.err.splitlines()[-1]) == (3, "note: no record that could be read matches")


def test_latest_needs_a_directory(tmp_path: Path) -> None:
    ran = kcompact("records", "--latest", log_dir(tmp_path) / "t-0" / "00000000000000000003.log")
    assert (ran.code, "--latest needs partition directories" in ran.err) == (4, True)
