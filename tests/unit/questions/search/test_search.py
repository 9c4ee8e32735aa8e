"""`kcompact.search`: a key is found wherever a file can hold its bytes, and nothing else is called absent."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.plan.selection import EVERY_PARTITION, Selection
from kcompact.questions.search.findings import Place
from kcompact.questions.search.keys import named_keys
from kcompact.questions.search.statement import SearchOutcome, SearchScope, Statement, listed, search
from tests.support import log_dsl, log_writer
from tests.support.command_line import partition, running_broker

KEY = b"customer-17"
OTHER = "log\n0: [other=1 third=~]\n"


def searched(
    *paths: Path,
    key: bytes = KEY,
    scope: SearchScope | None = None,
    selection: Selection = EVERY_PARTITION,
    is_exact: bool = False,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> Statement:
    return search(
        scope or listed(paths, selection),
        named_keys([("", key)]),
        is_exact=is_exact,
        salt=b"s",
        shows_salt=True,
        version="1",
        clock_ms=lambda: 5,
        memory_bytes=1 << 26,
        advance=advance,
    )


def outcome(*paths: Path, key: bytes = KEY) -> tuple[SearchOutcome, dict[Place, int]]:
    (found,) = searched(*paths, key=key).keys
    return found.outcome, found.hits


def written(tmp_path: Path, text: str) -> Path:
    log_writer.write(log_dsl.parse(text), tmp_path)
    return tmp_path


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    ("records", "places", "expected"),
    [
        ("customer-17=a", {Place.KEY: 1}, SearchOutcome.PRESENT),
        ("customer-17=~", {Place.TOMBSTONE: 1}, SearchOutcome.TOMBSTONE_ONLY),
        ("customer-17=a customer-17=~", {Place.KEY: 1, Place.TOMBSTONE: 1}, SearchOutcome.PRESENT),
        ("customer-170=a", {Place.IN_KEY: 1}, SearchOutcome.PRESENT),
        ("other=of-customer-17", {Place.IN_VALUE: 1}, SearchOutcome.PRESENT),
        ("other=a customer-1=7", {}, SearchOutcome.ABSENT),
    ],
)
def test_records(tmp_path: Path, codec: str, records: str, places: dict[Place, int], expected: SearchOutcome) -> None:
    assert outcome(written(tmp_path, f"log\n0: [{records}]({codec})\n")) == (expected, places)


@pytest.mark.parametrize(
    "name",
    [
        "orders-0/00000000000000000000.log.deleted",
        "orders-0/00000000000000000000.log.cleaned",
        "orders-0/00000000000000000000.log.swap",
        "orders-0/.kcompact-0123456789abcdef/part-0",
        "orders-1.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log",
        "orders-1.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log",
        "kept/orders-0/00000000000000000000.log",
    ],
)
def test_every_file_with_batches_is_inflated(tmp_path: Path, name: str) -> None:
    log = written(tmp_path / "source", "log\n0: [customer-17=a](zstd)\n") / "orders-0" / "00000000000000000000.log"
    directory = written(tmp_path / "logs", OTHER)
    assert outcome(directory) == (SearchOutcome.ABSENT, {})
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(log.read_bytes())
    assert outcome(directory) == (SearchOutcome.PRESENT, {Place.KEY: 1})


def test_bytes_that_are_no_records(tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    file = directory / "orders-0" / "00000000000000000000.log"
    file.write_bytes(file.read_bytes() + b"torn " + KEY)
    assert outcome(directory) == (SearchOutcome.PRESENT, {Place.IN_BYTES: 1})


@pytest.mark.parametrize("damage", ["a damaged batch", "an unknown file", "a link", "a pipe", "a socket"])
def test_what_may_be_hidden_is_not_absent(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = written(tmp_path / "logs", "log\n0: [other=1 third=~](zstd)\n")
    log = directory / "orders-0" / "00000000000000000000.log"
    if damage == "a damaged batch":
        content = bytearray(log.read_bytes())
        content[-1] ^= 1
        log.write_bytes(content)
    elif damage == "an unknown file":
        (directory / "dump.gz").write_bytes(gzip.compress(KEY))
    elif damage == "a link":
        (directory / "orders-0" / "link").symlink_to(tmp_path)
    elif damage == "a pipe":
        os.mkfifo(directory / "orders-0" / "pipe")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            os.chdir(directory)  # The path of a socket is short.
            bound.bind("socket")
    statement = searched(directory)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert len(statement.not_proven) == 1
    assert statement.exit_code == 10


def test_every_file_is_named_once_with_its_checksum(tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    (directory / "orders-0" / "second.log").hardlink_to(directory / "orders-0" / "00000000000000000000.log")
    files = searched(directory, directory, directory / "orders-0").files
    assert len(files) == len({file.path for file in files})
    for file in files:
        assert file.sha256 == hashlib.sha256(file.path.read_bytes()).hexdigest()
        assert file.size_bytes == file.path.stat().st_size
    (linked,) = (file for file in files if file.also)
    assert [linked.path.name, *(path.name for path in linked.also)] == ["00000000000000000000.log", "second.log"]


def test_a_key_across_two_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.log.files._PIECE_BYTES", 7)
    (tmp_path / "orders-0").mkdir()
    for before in range(20):
        (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"x" * before + KEY + b"y" * 9)
        assert outcome(tmp_path) == (SearchOutcome.PRESENT, {Place.IN_BYTES: 1})


def test_records_of_a_file_that_is_read_in_pieces_are_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcompact.log.files._PIECE_BYTES", 50)
    records = "".join(f"{offset}: [k{offset}=aaaaaaaaaaaaaaaaaaa]\n" for offset in range(9))
    directory = written(tmp_path, f"log\n{records}9: [customer-17=a]\n10: [k10=a]\n")
    (found,) = searched(directory).keys
    assert found.hits == {Place.KEY: 1}
    assert [hit.offset for hit in found.places] == [9]


def append(log: Path) -> None:
    log.write_bytes(log.read_bytes() + KEY)


def replace(log: Path) -> None:
    other = log.with_name("other")
    other.write_bytes(log.read_bytes())
    other.rename(log)


def appear(log: Path) -> None:
    log.with_suffix(".log.swap").write_bytes(log.read_bytes())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (append, "changed during the search"),
        (replace, "changed during the search"),
        (Path.unlink, "removed or renamed during the search"),
        (appear, "new since the search began"),
    ],
)
def test_a_file_that_changes_is_not_proven(tmp_path: Path, change: Callable[[Path], None], problem: str) -> None:
    directory = written(tmp_path, OTHER)
    log = directory / "orders-0" / "00000000000000000000.log"
    left_bytes = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())

    def advance(size_bytes: int) -> None:
        nonlocal left_bytes
        left_bytes -= size_bytes
        if not left_bytes:
            change(log)

    statement = searched(directory, advance=advance)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert [file.problem for file in statement.not_proven] == [problem]


def test_a_file_that_is_gone_before_it_is_read(tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    scope = listed([directory])
    (directory / "orders-0" / "00000000000000000000.log").unlink()
    statement = searched(directory, scope=scope)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    (gone,) = statement.not_proven
    assert "No such file" in gone.problem
    assert gone.sha256 == ""


def test_a_directory_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = written(tmp_path, OTHER)
    closed = directory / "orders-0" / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refused(path: Path) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # Root may list everything.
    statement = searched(directory)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert [(file.path, file.problem) for file in statement.not_proven] == [(closed, "Permission denied")]


def test_an_exact_search_doubts_only_what_shows_the_key_outside_of_records(tmp_path: Path) -> None:
    directory = written(tmp_path, "log\n0: [customer-170=a in-value=of-customer-17]\n")
    assert searched(directory).keys[0].outcome is SearchOutcome.PRESENT
    (found,) = searched(directory, is_exact=True).keys
    assert (found.outcome, found.hits) == (SearchOutcome.ABSENT, {Place.IN_KEY: 1, Place.IN_VALUE: 1})
    (directory / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n17 17\n")
    assert searched(directory, is_exact=True).keys[0].outcome is SearchOutcome.ABSENT
    (directory / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\ncustomer-17 17\n")
    statement = searched(directory, is_exact=True)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert [file.path.name for file in statement.not_proven] == ["leader-epoch-checkpoint"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=lambda pack: pack.__module__)
def test_a_compressed_file_is_unknown_whatever_its_name_is(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    file = directory / "orders-0" / "00000000000000000000.index"
    assert outcome(directory)[0] is SearchOutcome.ABSENT
    file.write_bytes(pack(KEY * 9))
    statement = searched(directory)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert [each.path for each in statement.not_proven] == [file]


def test_a_topic_has_all_that_is_below_its_directories(tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    staged = directory / "orders-0" / ".kcompact-0123456789abcdef" / "group-0-part-0-01234567.index"
    staged.parent.mkdir()
    staged.write_bytes(KEY)
    shutil.copytree(directory / "orders-0", directory / "audit-0")
    searched_of = {topic: searched(directory, selection=Selection((topic,))) for topic in ("orders", "audit", "*")}
    assert {topic: each.keys[0].hits for topic, each in searched_of.items()} == {
        "orders": {Place.IN_BYTES: 1},
        "audit": {Place.IN_BYTES: 1},
        "*": {Place.IN_BYTES: 2},
    }
    names = {file.path.relative_to(directory).parts[0] for file in searched_of["audit"].files}
    assert names == {"audit-0"}


def test_a_field_of_one_byte(tmp_path: Path) -> None:
    directory = written(tmp_path, "log\n0: [Z=Q]\n")
    assert outcome(directory, key=b"Z")[1][Place.KEY] == 1
    assert outcome(directory, key=b"Q")[1][Place.IN_VALUE] == 1


def test_a_key_that_occurs_a_million_times_needs_no_memory(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"a" * 1_000_000)
    (found,) = searched(tmp_path, key=b"aa").keys
    assert found.hits == {Place.IN_BYTES: 999_999}
    assert len(found.places) == 3


def test_deep_directories(tmp_path: Path) -> None:
    directory = written(tmp_path, OTHER)
    deep = directory / "deep"
    deep.mkdir()
    try:
        inside = deep
        for _ in range(sys.getrecursionlimit() + 100):
            inside = inside / "d"
            inside.mkdir()
        (inside / "leader-epoch-checkpoint").write_bytes(KEY)
        assert outcome(directory) == (SearchOutcome.PRESENT, {Place.IN_BYTES: 1})
    finally:
        subprocess.run(["rm", "-r", deep], check=True)  # Python and pytest cannot remove so deep a tree.


# A selection: all that is selected is searched, and nothing is said of the rest


LOG = "00000000000000000000.log"
AROUND = ("disk", "broker-1", "data-0", "broker-1/b", "users-0.x")
KINDS = ("{}", "{}.0123456789abcdef0123456789abcdef-future", "{}.0123456789abcdef0123456789abcdef-delete")
INSIDE = (
    LOG,
    "00000000000000000000.index",
    "copy-1/x",
    f"copy-1/{LOG}",
    ".kcompact-0123456789abcdef/users-1/0.index",
    "notes",
)
OUTSIDE = ("meta.properties", "notes-1", "other/notes", "recovery-point-offset-checkpoint")
STRAYS = ("2024-gc.log", LOG, "leader-epoch-checkpoint", "1.snapshot")
"""Files that make a directory look like a partition."""


def write(file: Path, content: bytes = b"") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


Owner = tuple[str, int]


def owners_in(root: Path, chance: random.Random) -> dict[Path, Owner | None]:
    """Write partitions and other files; return the files, each with the partition that it is of."""
    owners: dict[Path, Owner | None] = {}
    for topic in ("users", "orders"):
        for number in range(chance.randint(1, 3)):
            directory = root / chance.choice(KINDS).format(f"{topic}-{number}")
            first = LOG if chance.random() < 0.8 else "00000000000000000000.timeindex"
            for name in dict.fromkeys((first, *chance.sample(INSIDE, 2))):
                owners[write(directory / name)] = (topic, number)
    for name in chance.sample(OUTSIDE, 2):
        owners[write(root / name)] = None
    if chance.random() < 0.3:
        owners[write(chance.choice([root, root.parent]) / chance.choice(STRAYS))] = None
    return owners


@pytest.mark.parametrize("seed", range(300))
def test_a_key_is_found_where_it_is_selected(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = tmp_path / "of-1" / chance.choice(AROUND)
    owners = owners_in(root, chance)
    place = chance.choice(list(owners))
    place.write_bytes(KEY)
    topics = chance.choice([(), ("users",), ("orders",), ("*",)])
    numbers = chance.choice([(), (0,), (1,), (0, 2)])
    selection = Selection(topics, numbers)

    def is_selected(owner: Owner | None) -> bool:
        if owner is None:
            return selection.selects_all
        return (not topics or owner[0] in topics or "*" in topics) and (not numbers or owner[1] in numbers)

    if not any(map(is_selected, owners.values())):
        return
    path = chance.choice([root, root.parent, tmp_path])
    (found,) = searched(path, selection=selection).keys
    if is_selected(owners[place]):
        assert found.outcome is SearchOutcome.PRESENT, (place, selection)
    elif found.outcome is SearchOutcome.PRESENT:  # It may be of another partition that is around it, or in it.
        assert any(map(selection.has, place.parents)), (place, selection)


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("at", [".", "broker-1"])
def test_a_stray_file_makes_no_partition_of_a_log_directory(stray: str, at: str, tmp_path: Path) -> None:
    for number in (1, 2):
        directory = written(tmp_path / f"broker-{number}", OTHER)
        write(directory / "meta.properties")
    write(tmp_path / "broker-1" / stray)
    write(tmp_path / "broker-1" / "orders-0" / "notes", KEY)
    paths = (tmp_path / at, tmp_path / "broker-2")
    assert searched(*paths, selection=Selection(("orders",))).keys[0].outcome is SearchOutcome.PRESENT


def test_a_name_above_the_path_selects_nothing(tmp_path: Path) -> None:
    log_dir = tmp_path / "disk-0" / "logs"
    write(log_dir / "orders-0" / LOG)
    write(log_dir / "meta.properties", KEY)
    selection = Selection((), (0,))
    assert searched(log_dir, selection=selection).keys[0].outcome is SearchOutcome.ABSENT
    write(log_dir / "orders-0" / ".kcompact-0123456789abcdef" / "0.index", KEY)
    inside = log_dir / "orders-0" / ".kcompact-0123456789abcdef"
    assert searched(inside, selection=selection).keys[0].outcome is SearchOutcome.PRESENT


@pytest.mark.parametrize("is_log_dir", [True, False])
def test_a_directory_that_cannot_be_read_may_have_any_partition(
    is_log_dir: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(tmp_path / "disks" / "orders-0" / LOG).parent.parent
    (closed := directory / "users-0").mkdir()
    if is_log_dir:
        write(directory / "meta.properties")

    def refused(path: Path) -> list[str]:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    listdir = os.listdir
    scandir = os.scandir
    monkeypatch.setattr(os, "listdir", refused)  # Root may list everything.
    monkeypatch.setattr(os, "scandir", lambda path: refused(path) and scandir(path))
    (found,) = searched(directory, selection=Selection(("orders",))).keys
    assert found.outcome is (SearchOutcome.ABSENT if is_log_dir else SearchOutcome.NOT_PROVEN)


def test_a_link_to_a_disk_may_have_any_partition(tmp_path: Path) -> None:
    directory = write(tmp_path / "disks" / "orders-0" / LOG).parent.parent
    (directory / "data-1").symlink_to(tmp_path / "not-mounted")
    statement = searched(directory.parent, selection=Selection(("orders",)))
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN


def test_a_deleted_directory_may_have_a_shortened_name(tmp_path: Path) -> None:
    topic = "t" * 230
    write(tmp_path / f"{topic}-0" / LOG)
    suffix = f"-1.{32 * 'a'}-delete"
    write(tmp_path / f"{topic[: 255 - len(suffix)]}{suffix}" / LOG, KEY)
    for selection, expected in (
        (Selection((topic,)), SearchOutcome.PRESENT),
        (Selection((topic,), (0,)), SearchOutcome.ABSENT),
    ):
        assert searched(tmp_path, selection=selection).keys[0].outcome is expected


def test_a_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log\n0: a=1\n")
    (tmp_path / ".lock").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, directory, directory / LOG):
        statement = searched(path, selection=Selection(("orders",)))
        assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
        assert [file.path.name for file in statement.not_proven] == [".lock"]


def test_a_broker_whose_log_directory_has_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "orders-0" / LOG)
    with running_broker(tmp_path):
        assert searched(tmp_path).keys[0].outcome is SearchOutcome.NOT_PROVEN
        assert searched(tmp_path / "orders-0").keys[0].outcome is SearchOutcome.NOT_PROVEN


def test_a_broker_on_a_log_directory_of_which_each_file_has_another_name(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition(log_dir, "log\n0: a=1\n")
    (log_dir / ".lock").touch()
    subprocess.run(["cp", "-al", log_dir, tmp_path / "backup"], check=True)
    with running_broker(log_dir):
        statement = searched(tmp_path)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert {each.path for each in statement.log_dirs if each.was_running} == {log_dir, tmp_path / "backup"}


def test_partitions_have_all_their_directories(tmp_path: Path) -> None:
    first = write(tmp_path / "a-0" / LOG)
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / LOG).hardlink_to(first)
    for topics, expected in (((), ["a-0", "b-0"]), (("b",), ["b-0"])):
        partitions = searched(tmp_path, selection=Selection(topics)).partitions
        assert [str(each.topic_partition) for each in partitions] == expected


@pytest.mark.parametrize(
    ("name", "is_open"), [("orders-0", True), ("users-0", False), ("moved", True)], ids=["selected", "other", "unknown"]
)
def test_what_cannot_be_read_may_have_a_selected_partition(name: str, is_open: bool, tmp_path: Path) -> None:
    partition(tmp_path / "logs", "log name=orders-1\n0: a=1\n")
    (tmp_path / "logs" / name).symlink_to(tmp_path / "elsewhere")
    statement = searched(tmp_path / "logs", selection=Selection(("orders",)))
    assert statement.keys[0].outcome is (SearchOutcome.NOT_PROVEN if is_open else SearchOutcome.ABSENT)


def test_a_broker_that_stops_during_the_search_has_run(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log\n0: a=1\n")
    with running_broker(tmp_path):
        scope = listed([directory])
    assert searched(directory, scope=scope).keys[0].outcome is SearchOutcome.NOT_PROVEN


def test_a_second_name_of_a_file_can_be_selected(tmp_path: Path) -> None:
    first = write(tmp_path / "a-0" / "notes", KEY)
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / "notes").hardlink_to(first)
    for topic in ("a", "b"):
        assert searched(tmp_path, selection=Selection((topic,))).keys[0].outcome is SearchOutcome.PRESENT
