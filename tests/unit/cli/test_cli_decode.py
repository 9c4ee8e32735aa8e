"""`records --decode`: the records of Kafka's coordinators, as text and as JSON Lines, and records of others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kcompact.format.batch import Record, build
from tests.support import examples
from tests.support.command_line import CONTROL, kcompact, partition

LOG = "00000000000000000000.log"
KEY = b"\0\1\0\1g\0\1t\0\0\0\7"
VALUE = b"\0\0" + (42).to_bytes(8, "big") + b"\0\3a\x1bb" + bytes(8)


def log(log_dir: Path, *records: Record, name: str = "__consumer_offsets-0") -> Path:
    """Write a partition whose only batch has these records, and return its directory."""
    directory = log_dir / name
    directory.mkdir(parents=True)
    (directory / LOG).write_bytes(build(records))
    return directory


def test_text_is_that_of_dump_log_segments(tmp_path: Path) -> None:
    ran = kcompact("records", "--decode", log(tmp_path, Record(0, 5, KEY, VALUE), Record(1, 5, KEY, None)))
    assert (ran.code, ran.err) == (0, "")
    first, second = ran.out.splitlines()[3:]
    key = 'key: {"type":"1","data":{"group":"g","topic":"t","partition":7}}'
    assert first == (
        f"| offset: 0 CreateTime: 5 keySize: 12 valueSize: {len(VALUE)} sequence: -1 headerKeys: [] {key} "
        'payload: {"version":"0","data":{"offset":42,"metadata":"a\\u001bb","commitTimestamp":0}}'
    )
    assert second.endswith(f"{key} payload: <DELETE>")
    assert not CONTROL.search(ran.out)


def test_json_lines(tmp_path: Path) -> None:
    directory = log(tmp_path, Record(0, 5, KEY, VALUE), Record(1, 5, KEY, None))
    first, second = kcompact("records", "--decode", "--json", directory).lines
    assert first["key"] == {"type": 1, "data": {"group": "g", "topic": "t", "partition": 7}}
    assert first["payload"] == {"version": 0, "data": {"offset": 42, "metadata": "a\x1bb", "commitTimestamp": 0}}
    assert (second["key"], second["payload"]) == (first["key"], None)


@pytest.mark.parametrize(
    ("record", "shown", "problem"),
    [
        (Record(0, 5, b"\0\x63", b"x"), {"keyBase64": "AGM=", "payload": "x"}, "record type 99 is unknown"),
        (
            Record(0, 5, KEY, b"\0\x09"),
            {"payloadBase64": "AAk="},
            "version 9 of record type 1 (OffsetCommit) is unknown",
        ),
        (Record(0, 5, None, b"x"), {"key": None, "payload": "x"}, "no key"),
    ],
)
def test_a_record_that_cannot_be_decoded_is_shown_as_it_is(
    record: Record, shown: dict[str, str | None], problem: str, tmp_path: Path
) -> None:
    directory = log(tmp_path, record, Record(1, 5, KEY, VALUE))
    ran = kcompact("records", "--decode", "--json", directory)
    assert ran.code == 0
    bad, good = ran.lines
    assert bad["decodeError"] == problem
    assert {name: bad[name] for name in shown} == shown
    assert "decodeError" not in good
    assert ran.err == (
        f"note: 1 record could not be decoded and is listed without decoding, the first in "
        f"__consumer_offsets-0/{LOG}, offset 0: {problem}\n"
    )
    assert f"decodeError: {problem}" in kcompact("records", "--decode", directory).out


def test_undecodable_records_are_counted(tmp_path: Path) -> None:
    directory = log(tmp_path, *(Record(number, 5, b"\0\x63", b"x") for number in range(3)))
    log(tmp_path, Record(0, 5, b"", b""), name="__transaction_state-0")
    ran = kcompact("records", "--decode", tmp_path)
    assert ran.err.startswith("note: 4 records could not be decoded and are listed without decoding, the first in")
    assert f"{directory.name}/{LOG}, offset 0: record type 99 is unknown" in ran.err


@pytest.mark.parametrize("name", ["__transaction_state-0", "__share_group_state-3", "__consumer_offsets-49"])
def test_a_single_file_is_decoded_by_the_name_of_its_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = log(tmp_path, Record(0, 5, b"\0\0\0\1x" + bytes(20), None), name=name)
    monkeypatch.chdir(directory)
    (line,) = kcompact("records", "--decode", "--json", LOG).lines
    assert line["key"]["type"] == 0


def test_records_of_other_topics_are_listed_without_contents(tmp_path: Path) -> None:
    partition(tmp_path)
    ran = kcompact("records", "--decode", "--json", tmp_path)
    assert ran.code == 0
    assert re.match(
        r"note: --decode has no effect: no log is in a partition directory of __cluster_metadata, ", ran.err
    )
    assert all("key" not in line and "payload" not in line for line in ran.lines)
    printed = kcompact("records", "--decode", "--print-data", "--json", tmp_path)
    assert printed.lines[0]["key"] == "a"


def test_the_example(tmp_path: Path) -> None:
    """Groups of both protocols, a tombstone of each kind, and a transaction."""
    ran = kcompact("records", "--decode", "--json", examples.build("groups", tmp_path / "logs"))
    assert (ran.code, ran.err) == (0, "")
    assert all("decodeError" not in line for line in ran.lines)
    assert {line["key"]["type"] for line in ran.lines} == {0, 1, 2, 3, 5, 6, 7, 8}
    assert sum(line["payload"] is None for line in ran.lines) == 2
    assert json.loads(ran.out.splitlines()[-1])["payload"]["data"]["transactionStatus"] == "CompleteCommit"
