"""Every fact that the real `kafka-dump-log.sh` prints of a file is in what `kcompact inspect` prints of it.

What the tool prints is made again from our JSON, and compared as a whole: its batches, its records, and its entries of
indexes and snapshots. Our text is compared too.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kcompact.format.batch import Record, build, java_string
from tests.oracle.real_kafka import RealKafka
from tests.support.command_line import ROOT, kcompact

pytestmark = pytest.mark.oracle

LOGS = ROOT / "fixtures" / "logs"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
FILES = sorted(path for path in LOGS.rglob("*") if path.suffix in SUFFIXES)
BATCHES = [path for path in FILES if path.suffix in (".log", ".checkpoint")]
OLDER = ("older-cleaner", "older-follower")
"""Fixtures whose indexes have an entry for each append: sound for a broker, a mismatch for the tool."""
INDEXES = [path for path in FILES if path.suffix in (".index", ".timeindex")]
ENTRIES = [path for path in FILES if path not in BATCHES]

Fields = dict[str, Any]


def dumped(kafka: RealKafka, files: Sequence[Path], *options: str) -> dict[Path, list[str]]:
    """What the tool prints of each file."""
    reply = kafka.dump(*options, "--files", ",".join(map(str, files)))
    assert "failure" not in reply, reply["failure"]
    found: dict[Path, list[str]] = {}
    for line in reply["out"].split("\n")[:-1]:
        if line.startswith(f"Dumping {LOGS}/"):
            lines = found[Path(line.removeprefix("Dumping "))] = []
        else:
            lines.append(line)
    assert list(found) == list(files)
    return found


def ours(files: Sequence[Path], *options: str) -> dict[Path, list[Fields]]:
    """Our batches and records of each file."""
    found: dict[Path, list[Fields]] = {}
    for path in files:
        ran = kcompact("records", "--json", *options, path)
        assert ran.code == 0, ran.err
        found[path] = [{name: value for name, value in line.items() if name != "file"} for line in ran.lines]
    return found


@cache
def batches_and_records() -> dict[Path, list[Fields]]:
    return ours(BATCHES, "--batches", "--print-data")


def is_batch(fields: Fields) -> bool:
    return "magic" in fields


# What the tool prints, from our JSON


def heading(path: Path) -> str:
    if path.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    snapshot = re.fullmatch(r"(\d{20})-(\d{10})\.checkpoint", path.name)
    if snapshot:
        return f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    return f"Log starting offset: {int(path.stem)}"


def batch_line(fields: Fields) -> str:
    return " ".join(f"{name}: {printed(name, value)}" for name, value in fields.items())


def printed(name: str, value: object) -> str:
    if name == "deleteHorizonMs":
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


CONTENTS = ("key", "keyBase64", "payload", "payloadBase64")
QUORUM = {"LeaderChange": ": ", "SnapshotHeader": " ", "SnapshotFooter": " ", "KRaftVersion": " ", "KRaftVoters": " "}


def metadata(fields: Fields) -> str:
    parts = [
        f"{name}{QUORUM[name]}{json.dumps(value, separators=(',', ':'))}"
        if name in QUORUM
        else f"{name}: {printed(name, value)}"
        for name, value in fields.items()
        if name not in CONTENTS
    ]
    return "| " + " ".join(parts)


def contents(fields: Fields, prefix: str) -> str:
    line = ""
    for name in ("key", "payload"):
        text = fields.get(name)
        if f"{name}Base64" in fields:
            text = java_string(base64.b64decode(fields[f"{name}Base64"]))
        if text is not None:
            line, prefix = f"{line}{prefix}{name}: {text}", " "
    return line


def expected_lines(path: Path, record: Callable[[Fields], str] | None) -> list[str]:
    lines = [heading(path)]
    for fields in batches_and_records()[path]:
        if is_batch(fields):
            lines.append(batch_line(fields))
        elif record is not None:
            lines.append(record(fields))
    return "\n".join(lines).split("\n")


# Logs


def test_batches(kafka: RealKafka) -> None:
    assert dumped(kafka, BATCHES) == {path: expected_lines(path, None) for path in BATCHES}


def test_records(kafka: RealKafka) -> None:
    found = dumped(kafka, BATCHES, "--deep-iteration")
    assert found == {path: expected_lines(path, metadata) for path in BATCHES}


@pytest.mark.parametrize("option", ["--print-data-log", "--key-decoder-class=org.apache.kafka.tools.api.StringDecoder"])
def test_records_with_data(option: str, kafka: RealKafka) -> None:
    def line(fields: Fields) -> str:
        return metadata(fields) + contents(fields, " ")

    assert dumped(kafka, BATCHES, option) == {path: expected_lines(path, line) for path in BATCHES}


@pytest.mark.parametrize(("kind", "ours", "width"), [("Integer", "int", 4), ("Long", "int", 8), ("Long", "long", 8)])
def test_numbers(kind: str, ours: str, width: int, kafka: RealKafka, tmp_path: Path) -> None:
    numbers = (0, 1, -1, 300, 2 ** (8 * width - 1) - 1, -(2 ** (8 * width - 1)))
    path = tmp_path / "numbers-0" / f"{0:020d}.log"
    path.parent.mkdir()
    encoded = [number.to_bytes(width, "big", signed=True) for number in numbers]
    path.write_bytes(b"".join(build([Record(at, 1000, one, encoded[-1 - at])]) for at, one in enumerate(encoded)))
    classes = [f"--{field}-decoder-class=org.apache.kafka.tools.api.{kind}Decoder" for field in ("key", "value")]
    reply = kafka.dump(*classes, "--files", path)
    theirs = [
        tuple(re.findall(r"(?:key|payload): (\S+)", line)) for line in reply["out"].splitlines() if "key:" in line
    ]
    ran = kcompact("records", "--key-decoder", ours, "--value-decoder", ours, path)
    assert (ran.code, reply.get("failure")) == (0, None)
    found = [tuple(re.findall(r"(?:key|payload): (\S+)", line)) for line in ran.out.splitlines() if "key:" in line]
    assert found == theirs == [(str(one), str(numbers[-1 - at])) for at, one in enumerate(numbers)]


def test_records_without_metadata(kafka: RealKafka) -> None:
    def line(fields: Fields) -> str:
        return contents(fields, "| ")

    found = dumped(kafka, BATCHES, "--print-data-log", "--skip-record-metadata")
    assert found == {path: expected_lines(path, line) for path in BATCHES}


def test_the_text_is_the_same(kafka: RealKafka) -> None:
    found = dumped(kafka, BATCHES, "--deep-iteration")
    for path in BATCHES:
        text = kcompact("records", path).out
        assert text.splitlines() == [f"Dumping {path.name}", *map(with_colon, found[path])]


def with_colon(line: str) -> str:
    """Kafka puts a colon behind `LeaderChange` only; we put it behind every name."""
    return re.sub(r" (Snapshot(?:Header|Footer)|KRaftVersion|KRaftVoters) \{", r" \1: {", line)


def test_the_first_bytes_of_a_log(kafka: RealKafka) -> None:
    """`--max-bytes N` lists whole batches; the first batches of our list are the same."""
    path = LOGS / "mixed/before/events-0/00000000000000000000.log"
    positions = [fields["position"] for fields in batches_and_records()[path] if is_batch(fields)]
    for limit in (0, positions[1] - 1, positions[1], positions[5] + 1):
        found = dumped(kafka, [path], "--max-bytes", str(limit))[path]
        whole = sum(position <= limit for position in positions[1:])
        assert found == expected_lines(path, None)[: 1 + whole]


def test_gaps_of_a_cleaning_are_no_news(kafka: RealKafka) -> None:
    """The tool complains of "Non-consecutive offsets", for which there is no reason on a compacted log."""
    path = LOGS / "mixed/after/events-0/00000000000000001226.log"
    assert "Non-consecutive offsets" in kafka.dump("--deep-iteration", "--files", path)["err"]
    ran = kcompact("records", path)
    assert (ran.code, ran.err) == (0, "")


# Records of Kafka's own topics


DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


@pytest.mark.parametrize("topic", DECODERS)
def test_decoders(topic: str, kafka: RealKafka, tmp_path: Path) -> None:
    records = [each for each in kafka.coordinator_records(seed=7, rounds=3) if each.topic == topic]
    path = tmp_path / f"{topic}-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(
        b"".join(build([Record(offset, 1000, each.key, each.value)]) for offset, each in enumerate(records))
    )
    assert_decoded(path, kafka.dump(DECODERS[topic], "--files", path)["out"].splitlines()[1:])


def test_metadata_decoder(kafka: RealKafka) -> None:
    files = [path for path in BATCHES if path.parent.name == "__cluster_metadata-0" or path.suffix == ".checkpoint"]
    for path, lines in dumped(kafka, files, "--cluster-metadata-decoder").items():
        assert_decoded(path, lines)


def assert_decoded(path: Path, lines: Sequence[str]) -> None:
    text = kcompact("records", "--decode", path).out.splitlines()
    assert [canonical(line) for line in text[1:]] == [canonical(with_colon(line)) for line in lines]
    assert any("payload: {" in line for line in text)


def canonical(line: str) -> str:
    """The line with its JSON in one form, because the tools escape other characters."""
    before, name, payload = line.partition(" payload: ")
    before, key_name, key = before.partition(" key: ")
    return before + key_name + one_form(key) + name + one_form(payload)


def one_form(text: str) -> str:
    return json.dumps(json.loads(text)) if text.startswith("{") else text


# Indexes and snapshots


def entries(path: Path) -> list[Fields]:
    ran = kcompact("inspect", "--json", path)
    assert ran.code == 0, ran.err
    (file,) = ran.json["files"]
    found: list[Fields] = file["entries"]
    return found


def entry_line(path: Path, fields: Fields) -> str:
    if path.suffix == ".snapshot":
        fields = dict(fields)
        first = fields["currentTxnFirstOffset"]
        fields["currentTxnFirstOffset"] = "OptionalLong.empty" if first == -1 else f"OptionalLong[{first}]"
        if fields["lastOffset"] < 0:
            for name in ("firstSequence", "lastSequence", "lastOffset", "offsetDelta"):
                del fields[name]
        else:
            fields["timestamp"] = fields["lastTimestamp"]
    return " ".join(f"{name}: {value}" for name, value in fields.items())


def test_entries(kafka: RealKafka) -> None:
    for path, lines in dumped(kafka, ENTRIES).items():
        expected = [entry_line(path, fields) for fields in entries(path)]
        if path.suffix == ".index" and not expected:
            expected = [f"{path} is empty."]
        assert sorted(lines) == sorted(expected), path


@pytest.mark.parametrize("options", [[], ["--max-message-size", "1000000"]])
def test_what_the_tool_finds_wrong_with_an_index_we_find_too(options: list[str], kafka: RealKafka) -> None:
    reply = kafka.dump("--verify-index-only", *options, "--files", ",".join(map(str, INDEXES)))
    wrong = set(re.findall(r"(?:Mismatches in|timestamp mismatch in|not found in) :(\S+)", reply["err"]))
    assert any("/older-cleaner/" in path for path in wrong), "the tool knows only entries for single batches"
    for path in INDEXES:
        is_damaged = kcompact("verify", "--json", path).code == 3
        assert is_damaged == (str(path) in wrong and path.relative_to(LOGS).parts[0] not in OLDER), path


def test_sanity_checks(kafka: RealKafka) -> None:
    found = dumped(kafka, INDEXES, "--index-sanity-check")
    for path, lines in found.items():
        assert lines in ([f"{path} passed sanity check."], [f"{path} is empty."])


# Damage


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "torn batch", data[:-7]
    yield "torn header", data + data[:30]
    yield "wrong checksum", data[:70] + bytes([data[70] ^ 1]) + data[71:]


def test_a_torn_log(kafka: RealKafka, tmp_path: Path) -> None:
    """The tool says how many bytes are left at the end, and so do we."""
    data = (LOGS / "none/before/events-0/00000000000000000000.log").read_bytes()
    for number, (name, content) in enumerate(damaged(data)):
        path = tmp_path / str(number) / "00000000000000000000.log"
        path.parent.mkdir()
        path.write_bytes(content)
        theirs = kafka.dump("--files", path)["out"].splitlines()
        ran = kcompact("inspect", "--batches", path)
        assert ran.code == 3
        listed = [line for line in ran.out.splitlines() if not line.startswith("unreadable: ")]
        assert [f"Dumping {path}", *listed[1:]] == theirs, name
