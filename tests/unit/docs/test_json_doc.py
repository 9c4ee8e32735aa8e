"""`docs/json.md` lists the fields that the commands write, all of them and no others, and unknown numbers are null.

A heading of the page names the place of an object, such as `partitions[].segments[]`, and the commands that write it;
the first column of the table below has its fields. `*` stands for the names of a map.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fixtures import checkout
from kcompact.format.batch import Record, build
from tests.support import examples, log_dsl, log_writer
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

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
HEADING = re.compile(r"^#+ (The document|A line|`.+`) of (.+)$")
CODE = re.compile(r"`([^`]+)`")
MAPS = frozenset({"partitions[].config", "partitions[].keys.sections", "partitions[].transactions.totals"})
"""Objects whose names are not those of fields."""
EVIDENCE = "partitions[].gaps.evidence[]"
OF_ONE_KIND = frozenset({EVIDENCE, f"{EVIDENCE}.segments[]", "files[].entries[]"})
"""Objects that have the fields of their kind."""
KAFKAS = re.compile(r"(partitions\[\]\.config\.\*|files\[\]\.entries\[\]|.*\.evidence\[\])$")
"""Objects with numbers of Kafka's, of which -1 is one."""

Fields = dict[str, set[str]]
"""Names of fields by the place of their object."""

pytestmark = pytest.mark.long


class Section(NamedTuple):
    """A table of the page: the names of its fields, the objects that have them, and the commands that write these."""

    places: tuple[str, ...]
    commands: tuple[str, ...]
    names: frozenset[str]


def sections() -> list[Section]:
    found: list[Section] = []
    for text in re.split(r"^(?=#)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, *lines = text.splitlines()
        if match := HEADING.match(heading):
            cells = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
            names = frozenset(name for cell in cells for name in CODE.findall(cell))
            found.append(Section(tuple(CODE.findall(match[1])) or ("",), tuple(CODE.findall(match[2])), names))
    return found


SECTIONS = sections()


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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The documents of all commands, on many logs and in all modes."""
    tmp_path = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for command, *arguments in (map(str, run) for run in runs(tmp_path, monkeypatch)):
            ran = kcompact(*command.split(), *arguments, "--json")
            found[command] += ran.lines if command in LINES else [ran.json]
    return found


LINES = ("inspect --batches", "records")
KEYS = ("keys", "--print-data", "--prefix", ":", "--older-than", "1s")
READING: tuple[tuple[str, ...], ...] = (("inspect",), ("verify",), ("gaps",), ("transactions",), ("keys",), KEYS)


def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str | Path, ...]]:
    """Yield commands with their arguments. What a command needs is written just before."""
    logs = [small(tmp_path / "small")]
    logs += [examples.build(name, tmp_path / name) for name in ("transactions", "why-not", "last-compaction")]
    logs += [checkout.copy_directory(name, "before", tmp_path / name) for name in ("legacy", "several-partitions")]
    for seed in range(8):
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
    yield "report", "-o", tmp_path / "report.html", *COMPACT, logs[0]
    yield from with_settings(tmp_path / "settings")
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
    yield "doctor", "--verify", "--now", NOW, *options[:2], logs_of_a_broker(tmp_path / "broker" / "logs")


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


# The page and the commands


def test_the_page_lists_what_is_written(written: dict[str, list[dict[str, Any]]]) -> None:
    found = {command: defaultdict[str, set[str]](set) for command in written}
    for command, documents in written.items():
        for place, fields in (each for document in documents for each in objects(document)):
            found[command][place] |= fields.keys()
    listed = {command: defaultdict[str, set[str]](set) for command in found}
    for section in SECTIONS:
        for command in section.commands:
            for place in section.places:
                listed[command][place] |= section.names
    places = {(command, place) for both in (found, listed) for command in both for place in both[command]}
    differing = {at: sorted(found[at[0]][at[1]] ^ listed[at[0]][at[1]]) for at in sorted(places)}
    assert {at: names for at, names in differing.items() if names} == {}


def test_every_field_has_a_value_somewhere(written: dict[str, list[dict[str, Any]]]) -> None:
    """Else the logs of this test would not show what a field is."""
    known: set[tuple[str, str, str]] = set()
    for command, documents in written.items():
        for place, fields in (each for document in documents for each in objects(document)):
            known |= {(command, place, name) for name, value in fields.items() if value is not None}
    for section in SECTIONS:
        somewhere = {name for command, place, name in known if command in section.commands and place in section.places}
        assert section.names <= somewhere, (section, sorted(section.names - somewhere))


def test_objects_of_a_kind_have_the_same_fields(written: dict[str, list[dict[str, Any]]]) -> None:
    for command, documents in written.items():
        for document in () if command in LINES else documents:
            names: Fields = {}
            for place, fields in objects(document):
                if place not in OF_ONE_KIND:
                    assert names.setdefault(place, set(fields)) == fields.keys(), (command, place)


def test_unknown_is_null(written: dict[str, list[dict[str, Any]]]) -> None:
    """Kafka stores an unknown time, offset, epoch or sequence as -1."""
    for command, documents in written.items():
        for place, fields in (each for document in documents for each in objects(document)):
            if command not in LINES and not KAFKAS.match(place):
                unknown = [name for name, value in fields.items() if value == -1 and not isinstance(value, bool)]
                assert not unknown, (command, place, unknown)
