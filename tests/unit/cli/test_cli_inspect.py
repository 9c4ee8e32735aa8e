"""`inspect`: its JSON, its dumps, its findings and its exit codes."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import checkout
from kcompact.cli.json.inspect import INSPECTED, INSPECTED_SEGMENT
from kcompact.format.batch import Record, build
from tests.support.command_line import (
    COMPACT,
    CONTROL,
    DIRTY,
    EVERY_COMMAND,
    command,
    digest,
    environment,
    flip,
    kcompact,
    partition,
)

CONTRACT = {"base_offset", "size_bytes", "role", "first_timestamp_ms", "largest_timestamp_ms", "last_modified_ms"}


def test_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = kcompact("inspect", "--json", *COMPACT, directory)
    assert (ran.code, ran.complaints) == (0, "")
    assert (ran.json["version"], ran.json["command"], ran.json["now_ms"]) == (2, "inspect", 1704103200000)
    entry = ran.partition
    assert entry.keys() == INSPECTED.names
    verified = kcompact("verify", "--json", *COMPACT, directory)
    assert (verified.json["command"], verified.partition["findings"]) == ("verify", [])
    assert verified.partition.keys() == {*entry.keys(), "findings"}
    assert (entry["topic"], entry["partition"], entry["directory"]) == ("orders", 0, str(directory))
    for segment in entry["segments"]:
        assert segment.keys() == INSPECTED_SEGMENT.names
        assert segment.keys() >= CONTRACT | {"batches", "records"}
    assert [(s["base_offset"], s["role"], s["batches"], s["records"]) for s in entry["segments"]] == [
        (0, "dirty", 3, 3),
        (3, "dirty", 3, 3),
        (6, "active", 1, 1),
    ]


@pytest.mark.parametrize(
    ("settings", "roles", "below"),
    [
        ("checkpoint=3", ["clean", "dirty", "active"], [None, None, None]),
        ("checkpoint=4", ["clean", "dirty", "active"], [None, 4, None]),
        ("checkpoint=1", ["dirty", "dirty", "active"], [1, None, None]),
        ("hw=4", ["dirty", "uncleanable", "active"], [None, None, None]),
        ("checkpoint=6", ["clean", "clean", "active"], [None, None, None]),
    ],
)
def test_roles(settings: str, roles: list[str], below: list[int | None], tmp_path: Path) -> None:
    partition(tmp_path, DIRTY.replace("now=10:00", f"now=10:00 {settings}"))
    segments = kcompact("inspect", "--json", *COMPACT, tmp_path).partition["segments"]
    assert [segment["role"] for segment in segments] == roles
    assert [segment["clean_below_offset"] for segment in segments] == below
    assert all(segment["role_reason"] for segment in segments)


def test_every_partition_of_a_log_directory(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "users-0"):
        partition(tmp_path, DIRTY.replace("now=10:00", f"now=10:00 name={name}"))
    shown = kcompact("inspect", *COMPACT, tmp_path)
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines() if re.match(r"\w+-\d ", line)] == [
        "orders-0",
        "orders-1",
        "users-0",
    ]
    only = kcompact("inspect", "--json", "--topic", "u*", *COMPACT, tmp_path)
    assert only.partition["topic"] == "users"


def test_batches_as_json_lines(tmp_path: Path) -> None:
    lines = kcompact("inspect", "--batches", "--json", partition(tmp_path)).lines
    assert len(lines) == 7
    assert " ".join(lines[0]) == (
        "file baseOffset lastOffset count baseSequence lastSequence producerId producerEpoch partitionLeaderEpoch "
        "isTransactional isControl deleteHorizonMs position CreateTime size magic compresscodec crc isvalid"
    )
    assert lines[3]["file"] == "orders-0/00000000000000000003.log"
    assert (lines[3]["baseOffset"], lines[3]["position"], lines[3]["isvalid"]) == (3, 0, True)


def test_records_as_json_lines(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    lines = kcompact("records", "--json", directory).lines
    assert list(lines[5]) == ["file", "offset", "CreateTime", "keySize", "valueSize", "sequence", "headerKeys"]
    assert (lines[5]["offset"], lines[5]["keySize"], lines[5]["valueSize"]) == (5, 1, -1)
    printed = kcompact("records", "--print-data", "--json", directory).lines
    assert (printed[0]["key"], printed[0]["payload"], printed[5]["payload"]) == ("a", "1", None)


def test_data_that_is_no_text_is_base64(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    batch = build([Record(6, 1, b"\xff\x00", b"\x1b[31m", ((b"h\x1b", b""),))])
    (directory / "00000000000000000006.log").write_bytes(batch)
    last = kcompact("records", "--print-data", "--json", directory).lines[-1]
    assert (last["keyBase64"], last["payloadBase64"]) == ("/wA=", "G1szMW0=")
    shown = kcompact("records", "--print-data", directory)
    assert not CONTROL.search(shown.out)


def test_lines_are_those_of_dump_log_segments(tmp_path: Path) -> None:
    log = partition(tmp_path) / "00000000000000000003.log"
    lines = kcompact("records", log).out.splitlines()
    assert lines[:2] == ["Dumping 00000000000000000003.log", "Log starting offset: 3"]
    assert re.fullmatch(
        r"baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        r"partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        r"position: 0 CreateTime: \d+ size: 70 magic: 2 compresscodec: none crc: \d+ isvalid: true",
        lines[2],
    )
    assert re.fullmatch(r"\| offset: 3 CreateTime: \d+ keySize: 1 valueSize: 1 sequence: -1 headerKeys: \[\]", lines[3])


FILES = [
    ("{p}/00000000000000000000.log", "log"),
    ("{p}/00000000000000000000.index", "index"),
    ("{p}/00000000000000000000.timeindex", "timeindex"),
    ("{p}/00000000000000000006.snapshot", "snapshot"),
    ("cleaner-offset-checkpoint", "cleaner-offset-checkpoint"),
    ("replication-offset-checkpoint", "replication-offset-checkpoint"),
    ("meta.properties", "meta.properties"),
]


@pytest.mark.parametrize(("name", "kind"), FILES)
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_single_file(name: str, kind: str, command: str, tmp_path: Path) -> None:
    lines = DIRTY.replace("now=10:00", "now=10:00 checkpoint=3 hw=6") + "snapshot 6: pid=7 last=4\n"
    partition(tmp_path, lines)
    path = tmp_path / name.format(p="orders-0")
    ran = kcompact(command, "--json", path)
    assert (ran.code, ran.json["partitions"]) == (0, [])
    (look,) = ran.json["files"]
    assert (look["kind"], look["error"]) == (kind, None)
    assert (look["contents"] is not None) == (kind == "log")
    assert kcompact(command, path).code == 0


def test_more_entries_than_memory_can_hold_are_not_listed(tmp_path: Path) -> None:
    index = partition(tmp_path) / "00000000000000000000.index"
    index.write_bytes(b"".join(struct.pack(">ii", number + 1, number + 1) for number in range(2000)))
    shown = kcompact("inspect", "--memory", "1m", index)
    assert shown.code == 4
    assert "2,000 entries are too many to list" in shown.out


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def overlap(path: Path) -> None:
    flip(path, 7, 0x40)


LOG0, LOG3 = "00000000000000000000.log", "00000000000000000003.log"
BAD: list[tuple[str, Callable[[Path], Any], tuple[str, ...], int, str]] = [
    ("corrupt batch", lambda d: flip(d / LOG0, 65), ("verify",), 3, "checksum"),
    ("torn segment", lambda d: cut(d / LOG3), ("verify",), 3, "not a complete batch"),
    ("torn active segment", lambda d: cut(d / "00000000000000000006.log"), ("verify",), 3, "torn tail"),
    ("overlapping segments", lambda d: overlap(d / LOG0), ("verify",), 3, "overlaps the next segment"),
    ("torn segment dumped", lambda d: cut(d / LOG3), ("inspect", "--batches"), 3, "the file"),
    (
        "corrupt checkpoint",
        lambda d: (d.parent / "cleaner-offset-checkpoint").write_text("x\n"),
        ("inspect", "--json"),
        3,
        "",
    ),
]


@pytest.mark.parametrize(
    ("damage", "arguments", "code", "problem"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_damage(
    damage: Callable[[Path], None], arguments: tuple[str, ...], code: int, problem: str, tmp_path: Path
) -> None:
    directory = partition(tmp_path)
    damage(directory)
    before = digest(tmp_path)
    ran = kcompact(*arguments, *COMPACT, directory)
    assert ran.code == code
    assert problem in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["nowhere"], 4, "nowhere: no such file or directory"),
        (["--now", "yesterday", "."], 2, "ISO 8601"),
        (["--high-watermark", "much", "."], 2, "neither an offset nor leo"),
        (["--config", "cleanup.policy", "."], 2, "NAME=VALUE"),
        (["--config", "cleanup.polici=compact", "."], 2, "Did you mean cleanup.policy?"),
        (["--nonsense", "."], 2, "No such option"),
        ([], 2, "PATH..."),
    ],
)
def test_bad_usage(
    arguments: list[str], code: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = kcompact("inspect", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert problem in ran.err


@pytest.mark.parametrize(
    ("value", "now_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ],
)
def test_now(value: str, now_ms: int, tmp_path: Path) -> None:
    assert kcompact("inspect", "--json", "--now", value, partition(tmp_path)).json["now_ms"] == now_ms


@pytest.mark.parametrize("name", checkout.names())
def test_real_directories_are_sound(name: str, tmp_path: Path) -> None:
    manifest = checkout.read_manifest(name)
    for directory in manifest["directories"]:
        target = checkout.copy_directory(name, directory, tmp_path / directory)
        ran = kcompact("verify", "--json", "--now", "0", target)
        findings = [each for entry in ran.json["partitions"] for each in entry["findings"] or []]
        assert ran.code == 0, [entry["error"] for entry in ran.json["partitions"]]
        assert [each for each in findings if each["severity"] == "damage"] == []
        assert [entry["foreign"] for entry in ran.json["partitions"] if entry["foreign"]] == []


@pytest.mark.parametrize("lists", [["inspect", "--batches"], ["records"], ["records", "--batches"]])
def test_damage_in_json_lines(lists: list[str], tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / "00000000000000000000.log", 65)
    for target in (directory, directory / "00000000000000000000.log"):
        ran = kcompact(*lists, "--json", *COMPACT, target)
        assert ran.code == 3
        assert [each["position"] for each in ran.lines if "unreadable" in each] == [0]
        verified = kcompact("verify", *COMPACT, target)
        assert (verified.code, bool(re.search(r"damage:? .*checksum", verified.out))) == (3, True)
    sound = kcompact("verify", *COMPACT, partition(tmp_path / "sound"))
    assert (sound.code, "verified: nothing is wrong" in sound.out) == (0, True)


@pytest.mark.parametrize("command", ["inspect", "verify", "records"])
def test_a_missing_path_beside_others(command: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    missing = directory / "00000000000000000009.log"
    ran = kcompact(command, *COMPACT, missing, directory)
    assert (ran.code, f"error: {missing}: no such file or directory\n" in ran.err) == (4, True)
    assert ("00000000000000000000.log" if command == "records" else "orders-0") in ran.out


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: " + " ".join(f"k{n}=v" for n in range(5000)) + "\n5000: x=1")
    shell = subprocess.Popen(
        command("records", directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert shell.stdout is not None
    assert shell.stderr is not None
    shell.stdout.readline()
    shell.stdout.close()
    assert shell.stderr.read() == b""
    shell.stderr.close()
    assert shell.wait() == 141


@pytest.mark.parametrize("arguments", [[], *([name] for name in EVERY_COMMAND)])
def test_help(arguments: list[str]) -> None:
    ran = kcompact(*arguments, "--help")
    assert ran.code == 0
    assert arguments == [] or "Example" in ran.out
