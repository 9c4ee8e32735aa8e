"""Lines of `inspect --batches` and `records` that only some logs have, in the words of `kafka-dump-log.sh`.

`tests/oracle/test_dump_log_segments.py` compares them with the tool.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kcompact.cli.output.dump import LineForm
from kcompact.format.batch import Record, build, read_records
from kcompact.log.files import LogFile
from kcompact.log.segment_reader import batches
from tests.support.command_line import ROOT, kcompact

LEGACY = ROOT / "fixtures/logs/legacy/before/archive-0/00000000000000000000.log"
METADATA = ROOT / "fixtures/logs/broker/before/__cluster_metadata-0/00000000000000000000.log"
BOOTSTRAP = ROOT / "fixtures/logs/broker/before/bootstrap.checkpoint"


def lines(path: Path, *options: str) -> list[str]:
    return kcompact("records", *options, path).out.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "offset: 0 position: 0 NoTimestampType: -1 size: 30 magic: 0 compresscodec: none crc: 2258072140 isvalid: true",
        "| offset: 0 NoTimestampType: -1 keySize: 2 valueSize: 2 isValid: true crc: 2258072140",
        "| offset: 4 CreateTime: 1700000000001 keySize: 3 valueSize: 2 isValid: true crc: 29524722",
        "offset: 11 position: 272 NoTimestampType: -1 size: 109 magic: 0 compresscodec: gzip crc: 1157584027 "
        "isvalid: true",
        "| offset: 8 NoTimestampType: -1 keySize: 3 valueSize: 2 isValid: true crc: 3822593301",
    ],
)
def test_old_formats(line: str) -> None:
    assert line in lines(LEGACY)
    by_runs = lines(LEGACY, "--limit", "1000")
    assert line in by_runs


@pytest.mark.parametrize("size_bytes", [280, 0])
def test_a_wrapper_that_is_cut_off_before_its_records_are_printed(size_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / LEGACY.name
    path.write_bytes(LEGACY.read_bytes())
    file = LogFile.at(path)
    (wrapper,) = batches(file, start_position=272, end_position=381)
    record = read_records(wrapper, file=LEGACY.name)[0]
    os.truncate(path, size_bytes)
    fields = LineForm(label="log", file=file).record_fields(wrapper.header, wrapper.position, record)
    assert (fields["offset"], fields["crc"]) == (8, None)


def test_a_change_of_leader() -> None:
    content = '{"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}'
    assert lines(METADATA)[3].endswith(f" headerKeys: [] LeaderChange: {content}")
    as_json = kcompact("records", "--json", METADATA).lines[0]
    assert as_json["LeaderChange"] == json.loads(content)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (3, b"\0\0" + (7).to_bytes(8, "big") + b"\0", 'SnapshotHeader: {"version":0,"lastContainedLogTimestamp":7}'),
        (4, b"\0\0\0", 'SnapshotFooter: {"version":0}'),
        (5, b"\0\0\0\1\0", 'KRaftVersion: {"version":0,"kRaftVersion":1}'),
        (6, b"\0\0\1\0", 'KRaftVoters: {"version":0,"voters":[]}'),
        (9, b"", "controlType: 9"),
        (2, b"\0\x09", "decodeError: version 9 of record type 2 (LeaderChange) is unknown"),
        (2, b"\0", "decodeError: a field of 2 bytes, 1 are left"),
        (2, None, "decodeError: no value"),
    ],
)
def test_control_records(kind: int, value: bytes | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build([Record(0, 1000, b"\0\0" + kind.to_bytes(2, "big"), value)], control=True))
    assert lines(path)[-1].endswith(f"headerKeys: [] {expected}")


def test_control_records_of_a_newer_kafka_are_shown_as_they_are_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    rows = [(7, b"ab\xff"), (2, b"\0\x09new"), (4, b"\0\0\0")]
    records = [Record(offset, 0, b"\0\0\0" + bytes([kind]), value) for offset, (kind, value) in enumerate(rows)]
    path.write_bytes(b"".join(build([each], control=True) for each in records))
    ran = kcompact("records", "--decode", "--json", path)
    unknown, later, _ = ran.lines
    assert (unknown["controlType"], unknown["payloadBase64"]) == (7, "YWL/")
    assert later["decodeError"] == "version 9 of record type 2 (LeaderChange) is unknown"
    assert later["payloadBase64"] == "AAluZXc="
    assert ran.code == 0
    assert ran.err.startswith("note: 2 records could not be decoded")
    assert ran.err.endswith("offset 0: control record type 7 is unknown\n")
    shown = kcompact("records", "--print-data", "--json", path).lines[0]
    assert shown["payloadBase64"] == "YWL/"


def test_metadata_records(tmp_path: Path) -> None:
    decoded = [line for line in kcompact("records", "--decode", METADATA).out.splitlines() if "payload: " in line]
    assert decoded[1].endswith(
        ' payload: {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":30}}'
    )
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    values = [None, b"\x02\x02\0", b"\x01\x63\0", b"\x01\x02\x09", b"\x01\x17\0\0rest"]
    path.write_bytes(b"".join(build([Record(offset, 0, None, value)]) for offset, value in enumerate(values)))
    errors = [line.get("decodeError") for line in kcompact("records", "--decode", "--json", path).lines]
    assert errors == [
        "no value",
        "frame version 2 is unknown",
        "record type 99 is unknown",
        "version 9 of record type 2 (TOPIC_RECORD) is unknown",
        "4 bytes after the last field",
    ]


def test_snapshots_of_the_metadata_log(tmp_path: Path) -> None:
    assert lines(BOOTSTRAP)[1] == "KRaft bootstrap snapshot"
    snapshot = tmp_path / "00000000000000000042-0000000003.checkpoint"
    snapshot.write_bytes(BOOTSTRAP.read_bytes())
    assert lines(snapshot)[1] == "Snapshot end offset: 42, epoch: 3"
    assert kcompact("inspect", snapshot).code == kcompact("verify", snapshot).code == 0


def test_the_first_sequence_number_in_a_snapshot() -> None:
    snapshot = next((ROOT / "fixtures/logs/producers/before").rglob("*.snapshot"))
    for entry in kcompact("inspect", "--json", snapshot).json["files"][0]["entries"]:
        last, delta = entry["lastSequence"], entry["offsetDelta"]
        assert entry["firstSequence"] == (-1 if entry["lastOffset"] < 0 else last - delta)
