"""What the commands write is what `kcompact.cli.json` declares, and so what `docs/schema` says.

The documents of all commands, on many logs, have the fields of their schema and no others; each declared field has a
value in one of them; unknown numbers are null. `--rewrite` writes the schemas.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from fixtures import checkout
from kcompact.cli.json.fields import Shape
from kcompact.format.batch import Record, build
from kcompact.format.properties import META_PROPERTIES
from tests.support import examples, json_docs, log_dsl, log_writer, replica_logs
from tests.support.command_line import (
    COMPACT,
    LOG0,
    LOG3,
    LOG6,
    NOW,
    flip,
    kcompact,
    leave_swap,
    partition,
    server_properties,
    settings,
)
from tests.support.history_logs import random_text
from tests.support.sick_log_dirs import healthy

MAPS = frozenset(
    path.removesuffix(".*") for shape in json_docs.PRINTED.values() for path, _ in shape.places() if path.endswith(".*")
)
"""Objects whose names are not those of fields."""
KAFKAS = re.compile(r"(partitions\[\]\.config\.\*|files\[\]\.entries\[\]|.*\.evidence\[\])$")
"""Objects with numbers of Kafka's, of which -1 is one."""

pytestmark = pytest.mark.long


# What is written


def objects(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects of a document with their places."""
    if isinstance(value, list):
        for each in value:
            yield from objects(each, f"{place}[]")
    elif isinstance(value, dict):
        if place not in MAPS:
            yield place, value
        for name, each in value.items():
            inside = "*" if place in MAPS else name
            yield from objects(each, f"{place}.{inside}" if place else inside)


def small(log_dir: Path) -> Path:
    """Write a log directory with sound, damaged and unreadable partitions, transactions, and files of other kinds."""
    for name, text in LOGS.items():
        partition(log_dir, f"log name={name}-0 now=10:00{text}")
    partition(log_dir, f"log name=plain-1 now=10:00{LOGS['plain']}")
    flip(log_dir / "damaged-0" / LOG0, -1)
    flip(log_dir / "damaged-at-start-0" / LOG3, 20)
    flip(log_dir / "unknown-end-0" / f"{2:020d}.log", 20)
    leave_swap(log_dir / "interrupted-0")
    (log_dir / "plain-0" / "notes.txt").write_text("")
    (log_dir / "plain-0" / f"{LOG0}.deleted").write_text("")
    os.utime(log_dir / "old-snapshot-0" / f"{1:020d}.snapshot", (0, 0))
    (log_dir / "no-log-0").mkdir()
    (log_dir / f"old-0.{32 * 'a'}-delete").mkdir()
    return log_dir


LOGS = {
    "plain": "\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6",
    "damaged": "\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6",
    "damaged-at-start": "\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6",
    "unknown-end": "\n0: a=1 [b=1](pid=7 epoch=1 txn)\n2: c=1\nsnapshot 2: pid=7 epoch=1 seq=0 last=1 open=1 at=09:00",
    "interrupted": "\n0: a=1\n1: b=1",
    "empty": "\n0:",
    "without-times": "\n0: a=1^-1 [b=1^-1](pid=7 epoch=1 txn) [a=2^-1](pid=8 epoch=0)\n3: c=1^-1",
    "retained": " cleanup.policy=delete retention.ms=1ms\n0: a=1 b=2\n2: c=3\n3: d=4",
    "prefixes": """\n0: "u:1"=1 "u:2"=22 plain=5 ~=6\n4: "o:1"=~""",
    "old-snapshot": "\n0: a=1\n1: b=1\n2: c=1\nsnapshot 1:",
    "sparse-index": f" index.interval.bytes=1000000\n0: {' '.join(f'k{n}=*3000' for n in range(50))}\n50: a=1",
    "gone": "\n5: a=1 b=1@8 [c=1@9]@9..12 []@13..14(pid=5 epoch=0) d=~(horizon=12:00)\n20: b=1",
}


@pytest.fixture(scope="module", params=[2, pytest.param(8, marks=pytest.mark.slow)], ids="{} random logs".format)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """The documents of all commands, on many logs and in all modes."""
    tmp_path = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as monkeypatch:
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for command, *arguments in (map(str, run) for run in runs(tmp_path, monkeypatch, request.param)):
            ran = kcompact(*command.split(), *arguments, "--json")
            found[command] += ran.lines if command in LINES else [ran.json]
    return found


LINES = ("inspect --batches", "records")
KEYS = ("keys", "--print-data", "--prefix", ":", "--older-than", "1s")
READING: tuple[tuple[str, ...], ...] = (("inspect",), ("verify",), ("gaps",), ("transactions",), ("keys",), KEYS)


def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, random_logs: int) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands with their arguments. What a command needs is written just before."""
    logs = [small(tmp_path / "small")]
    logs += [examples.build(name, tmp_path / name) for name in ("transactions", "why-not", "last-compaction")]
    logs += [checkout.copy_directory(name, "before", tmp_path / name) for name in ("legacy", "several-partitions")]
    for seed in range(random_logs):
        log_writer.write(log_dsl.parse(random_text(seed)), tmp_path / "random" / str(seed))
    for log in (*logs, *sorted((tmp_path / "random").iterdir())):
        for words in READING:
            yield *words, *COMPACT, log
        for command in LINES:
            yield command, log
        yield "plan", "--explain", "--compare", "segment.ms=1", *COMPACT, log
        yield "clean", "--dry-run", *IN_PROCESS, log
        yield "doctor", "--now", NOW, log
    logs[2:] = [checkout.copy_directory("broker", "before", tmp_path / "broker-files")]
    files = sorted(path for log in logs for path in log.rglob("*") if path.is_file())
    yield "inspect", *files, logs[0] / "absent"
    yield "verify", *files, logs[0] / "absent"
    yield "groups", examples.build("groups", tmp_path / "groups"), logs[0] / "absent"
    # Each partition of a report has many drawings.
    drawn = (logs[0] / name for name in ("plain-0", "damaged-0", "no-log-0"))
    yield "report", "-o", tmp_path / "report.html", *COMPACT, *drawn
    yield from with_settings(tmp_path / "settings")
    yield from listed(tmp_path / "listed")
    brokers = replica_logs.write(tmp_path / "brokers")
    yield "compare", "--print-data", "--before-start", brokers[1], brokers[0], brokers[2]
    yield "compare", *brokers[::2]
    yield "search-key", "--key", "basket:b", *brokers
    yield from beside_replicas(tmp_path / "replicas")
    yield from changes(tmp_path / "changed", monkeypatch)


IN_PROCESS = ("--engine", "in-process", *COMPACT)


def with_settings(tmp_path: Path) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands on logs whose settings matter: limits, retention, the broker's file, keys that are no text."""
    log_dir = tmp_path / "logs"
    tmp_path.mkdir()
    healthy(log_dir)
    log = partition(log_dir, "log name=binary-0 now=10:00\n0: a=1\n1: b=1\n2: c=1")
    (log / LOG0).write_bytes(build([Record(0, 1_704_100_000_000, b"\xff:\xff", b"1")]))
    options = (*COMPACT, "--broker-config", server_properties(log_dir), "--high-watermark", "leo")
    yield *KEYS, *options, log
    for limit in ("log.cleaner.io.max.bytes.per.second=1000", "log.cleaner.min.compaction.lag.ms=36000000000"):
        yield "plan", "--explain", "--compare", "min.compaction.lag.ms=0", *options, "--config", limit, log_dir
    for deletes in (("retention.ms=1",), ("retention.ms=360000000000",), ("retention.bytes=1",)):
        configs = [word for each in ("cleanup.policy=compact,delete", *deletes) for word in ("--config", each)]
        yield "plan", "--explain", "--compare", "retention.ms=1", *options, *configs, log_dir
        yield "clean", "--dry-run", "--apply-retention", *IN_PROCESS, *options, *configs, log_dir
    of_zookeeper = partition(tmp_path / "zookeeper", "log now=10:00\n0: a=1\n1: b=1").parent
    (of_zookeeper / META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=c\n", encoding="utf-8")
    yield "plan", *COMPACT, of_zookeeper
    yield "doctor", "--verify", "--now", NOW, *options[:2], logs_of_a_broker(tmp_path / "broker" / "logs")


def beside_replicas(tmp_path: Path) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands that hold tombstones back for a replica."""
    log = partition(tmp_path / "logs", "log now=10:00\n0: a=1 b=1 a=~(horizon=09:30)\n3: c=1")
    lagging = partition(tmp_path / "lagging", "log now=10:00\n0: a=1 b=1")
    others = ("--replica", lagging.parent, "--replica", partition(tmp_path / "other", settings("name=other-0")).parent)
    yield "plan", *COMPACT, *others, log
    yield "clean", "--dry-run", *IN_PROCESS, *others, log


def listed(tmp_path: Path) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands that list records of every kind, and gaps with rare evidence."""
    examples.build("another-topic", tmp_path / "another")
    yield "gaps", *COMPACT, tmp_path / "another"
    records = " ".join(f"k{number}=*100" for number in range(400))
    dense = f"log now=10:00 index.interval.bytes=200\n0: {records}\n400: z=1\nsnapshot 1:"
    yield "gaps", *COMPACT, "--config", "index.interval.bytes=1000", partition(tmp_path / "dense", dense)

    log = partition(tmp_path / "control", "log name=__consumer_offsets-0 now=10:00\n0: a=1\n1: b=1") / LOG0
    keys = [b"\0\0" + kind.to_bytes(2, "big") for kind in (2, 3, 4, 5, 6, 9)]
    values = [b"\0\0\0\0\0\1\1\1\0", b"\0\0" + bytes(8) + b"\0", b"\0\0\0", b"\0\0\0\1\0", b"\0\0\1\0", b""]
    content = [
        build([Record(offset, 1000, key, value)], control=True)
        for offset, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    content += [build([Record(10 + offset, 1000, key, key)]) for offset, key in enumerate((b"text", b"\xff"))]
    content += [old_record(20 + offset, *record) for offset, record in enumerate(OLD_RECORDS)]
    log.write_bytes(b"".join(content))
    yield "records", "--print-data", log
    yield "records", "--batches", "--decode", log


OLD_RECORDS = ((b"text", 0, False), (b"text", 1, False), (b"\xff", 1, True))


def old_record(offset: int, data: bytes, magic: int, append_time: bool) -> bytes:
    """Return a message of format 0 or 1 whose key and value are these bytes."""
    body = struct.pack(">bb", magic, 8 * append_time) + struct.pack(">q", 1000) * magic
    body += 2 * (struct.pack(">i", len(data)) + data)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def logs_of_a_broker(log_dir: Path) -> Path:
    """Write a log directory in which a broker stops at damage."""
    log_dir.parent.mkdir()
    flip(healthy(log_dir) / LOG6, 20)
    return log_dir


def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands that change logs, and put back what they have changed."""
    for after in (1, 7):
        yield "recover", interrupted(tmp_path / f"swap-{after}", after, monkeypatch)
    yield "clean", *IN_PROCESS, interrupted(tmp_path / "swap", 7, monkeypatch)
    foreign = partition(tmp_path / "foreign")
    for suffix in (".cleaned", ".deleted"):
        shutil.copy(foreign / LOG0, foreign / f"{LOG0}{suffix}")
    yield "recover", "--foreign", foreign, foreign.parent / "absent-0"
    logs = small(tmp_path / "logs")
    yield from [("clean", "--output", tmp_path / "copy", *IN_PROCESS, logs)] * 2
    yield "clean", "--keep-replaced", tmp_path / "kept", *IN_PROCESS, logs
    yield "restore", "--check", tmp_path / "kept"
    flip(next((tmp_path / "kept").glob("plain-0/*.log")), 80)
    yield "restore", tmp_path / "kept"
    log = partition(tmp_path / "checkpoint", settings("checkpoint=3"))
    yield "clean", "--force", "--keep-replaced", tmp_path / "kept-too", *IN_PROCESS, log
    yield "restore", tmp_path / "kept-too"


def interrupted(log_dir: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a partition whose swap stopped after so many renames."""
    directory, real, left = partition(log_dir), os.rename, [after]

    def rename(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, "gone")
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        assert kcompact("clean", *IN_PROCESS, directory).code == 8
    return directory


# The declaration, the documentation and the commands


def test_the_schemas_say_what_is_declared(rewrite: bool) -> None:
    wanted = {path: json_docs.schema_text(schema) for path, schema in json_docs.schemas().items()}
    if rewrite:
        json_docs.SCHEMAS.mkdir(exist_ok=True)
        for path, content in wanted.items():
            path.write_text(content, encoding="utf-8")
    assert {path: path.read_text(encoding="utf-8") for path in wanted} == wanted
    # That of a file in a bucket is no command's: `tests/unit/bucket/test_manifest_schema.py`.
    schemas = {*json_docs.SCHEMAS.iterdir()} - {json_docs.SCHEMAS / "bucket-manifest.json"}
    assert schemas == wanted.keys()


def test_what_is_written_has_its_schema(written: dict[str, list[dict[str, Any]]]) -> None:
    assert written.keys() == json_docs.PRINTED.keys()
    for command, documents in written.items():
        schema = json.loads(json_docs.file_of(command).read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        for document in documents:
            problem = best_match(validator.iter_errors(document))
            assert problem is None, (command, problem.json_path, problem.message)


def test_every_field_has_a_value_somewhere(written: dict[str, list[dict[str, Any]]]) -> None:
    """Else the logs of this test would not show what a field is."""
    declared: set[tuple[str, str, str]] = set()
    found: set[tuple[str, str, str]] = set()
    for command, documents in written.items():
        shapes = defaultdict[str, set[Shape]](set)
        for place, shape in json_docs.PRINTED[command].places():
            shapes[place].add(shape)
            declared |= {(*part_of(shape, name), name) for name in shape.names}
        for place, fields in (each for document in documents for each in objects(document)):
            for shape in (each for each in shapes[place] if is_of(fields, each)):
                found |= {(*part_of(shape, name), name) for name, value in fields.items() if value is not None}
    assert declared - found == set()


def part_of(shape: Shape, name: str) -> tuple[str, str]:
    """Return the name of the shape that declares a field, and of its variant."""
    for member in shape.declared.members:
        if isinstance(member, Shape) and name in member.names:
            return part_of(member, name)
    return shape.declared.name, shape.variant


def is_of(fields: dict[str, Any], shape: Shape) -> bool:
    """Return whether an object has a shape."""
    constants = {each.name: each.kind.schema.get("const") for each in shape.fields}
    needed = {each.name for each in shape.fields if not each.given}
    return needed <= fields.keys() <= shape.names and all(
        constants[name] in (None, value) for name, value in fields.items()
    )


def test_objects_of_a_kind_have_the_same_fields(written: dict[str, list[dict[str, Any]]]) -> None:
    for command, documents in written.items():
        of_one_kind = {place for place, shape in json_docs.PRINTED[command].places() if shape.variant}
        for document in documents:
            names: dict[str, set[str]] = {}
            for place, fields in objects(document):
                if not any(place.startswith(each) for each in of_one_kind):
                    assert names.setdefault(place, set(fields)) == fields.keys(), (command, place)


def test_unknown_is_null(written: dict[str, list[dict[str, Any]]]) -> None:
    """Kafka stores an unknown time, offset, epoch or sequence as -1."""
    for command, documents in written.items():
        for place, fields in (each for document in documents for each in objects(document)):
            if command not in LINES and not KAFKAS.match(place):
                unknown = [name for name, value in fields.items() if value == -1 and not isinstance(value, bool)]
                assert not unknown, (command, place, unknown)
