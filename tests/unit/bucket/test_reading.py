"""Log directories in a bucket are read as local ones are, in few requests, and never as a mixture of two versions."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kcompact.bucket import mirror, mirrored_file
from kcompact.bucket.manifest import MANIFEST, DirectoryManifest, StoredFile
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.mirrored_file import WHOLE_BYTES, MirroredFile
from kcompact.bucket.path import BucketPath
from kcompact.errors import CleaningAbortedError, CorruptCheckpointError, LogChangedError
from kcompact.format.batch import Record, build
from kcompact.format.sealed_json import sealed, unsealed
from kcompact.log.batch_headers import header_at, header_tables, mean_batch_bytes
from kcompact.log.files import LogFile, files_in
from kcompact.plan.discovery import find_partitions
from tests.support import replica_logs
from tests.support.command_line import COMPACT, kcompact
from tests.support.coordinator_keys import offset_key, offset_value
from tests.support.fault_proxy import Fault, Request
from tests.support.patience import becomes
from tests.unit.bucket.conftest import ONLY_MOTO, Store

MIB = 1 << 20


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--json", *COMPACT),
        ("inspect", "--json", *COMPACT),
        ("verify", "--json", *COMPACT),
        ("records", "--print-data", "--json"),
        ("records", "--latest", "--json"),
        ("keys", "--json", *COMPACT),
        ("gaps", "--json", *COMPACT),
        ("transactions", "--json", *COMPACT),
        ("clean", "--dry-run", "--json", *COMPACT),
        ("search-key", "--key", "user-1", "--salt", "x", "--json"),
        ("report", "--json", *COMPACT),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_answers_as_for_the_local_directory(
    arguments: tuple[str, ...], log_dir: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log_dir.parent)  # A report is written there.
    address = store.upload(log_dir, "eu")
    # A bucket has its own times, in whole seconds.
    for each in store.server.client().list_objects_v2(Bucket=store.bucket)["Contents"]:
        os.utime(log_dir / each["Key"].removeprefix("eu/"), (int(each["LastModified"].timestamp()),) * 2)
    name, *options = arguments
    local, remote = kcompact(name, *options, log_dir), kcompact(name, *options, address)
    assert (remote.code, remote.err.replace(address, str(log_dir))) == (local.code, local.err), remote.err
    assert _without_durations(remote.out.replace(address, str(log_dir))) == _without_durations(local.out)


@ONLY_MOTO
def test_replicas_in_a_bucket_are_compared_as_local_ones_are(tmp_path: Path, store: Store) -> None:
    brokers = replica_logs.write(tmp_path / "brokers")
    addresses = [store.upload(each, each.name) for each in brokers]
    assert len(set(addresses)) == len(addresses) > 1
    local, remote = kcompact("compare", "--json", *brokers), kcompact("compare", "--json", *addresses)
    out, err = remote.out, remote.err
    for address, broker in zip(addresses, brokers, strict=True):
        out, err = out.replace(address, str(broker)), err.replace(address, str(broker))
    assert (remote.code, err) == (local.code, local.err)
    assert _without_durations(out) == _without_durations(local.out)


@ONLY_MOTO
def test_groups_in_a_bucket_are_those_of_the_local_directory(tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "logs" / "__consumer_offsets-3"
    directory.mkdir(parents=True)
    records = [Record(0, 1, offset_key("billing"), offset_value(1)), Record(1, 1, offset_key("audit"), None)]
    (directory / f"{0:020d}.log").write_bytes(build(records))
    address = store.upload(tmp_path / "logs", "eu")
    local, remote = kcompact("groups", "--json", tmp_path / "logs"), kcompact("groups", "--json", address)
    assert local.code == 0
    assert "billing" in local.out
    out = remote.out.replace(address, str(tmp_path / "logs"))
    assert _without_durations(out) == _without_durations(local.out)


@ONLY_MOTO
def test_what_an_unfinished_upload_holds_is_not_proven_absent(log_dir: Path, store: Store) -> None:
    address = store.upload(log_dir, "eu")
    search = ("search-key", "--key", "no-such-key", "--json")
    assert kcompact(*search, address).code == 0
    store.put(f"eu/orders-1/.kcompact-0123456789abcdef/{0:020d}.log", b"no-such-key")
    ran = kcompact(*search, address)
    assert ran.code == 10
    (file,) = (each for each in ran.json["statement"]["files"] if each["problem"])
    assert file["path"] == f"{address}/orders-1/.kcompact-0123456789abcdef"
    assert file["sha256"] is None
    assert file["problem"] == "an unfinished upload, of which nothing is read: 1 object"


@ONLY_MOTO
def test_each_object_of_a_copy_is_searched_or_named(log_dir: Path, store: Store) -> None:
    address = store.address("copy")
    assert kcompact("clean", *COMPACT, "--output", address, log_dir).code == 0
    search = ("search-key", "--key", "no-such-key", "--key", "written_by", "--json")
    ran = kcompact(*search, address)
    assert [each["outcome"] for each in ran.json["statement"]["keys"]] == ["absent", "present"]
    assert {each["file"].rpartition("/")[2] for each in ran.json["statement"]["keys"][1]["places"]} == {MANIFEST}
    assert not [each for each in ran.json["statement"]["files"] if each["problem"]]
    (attempt,) = {key.rpartition("/")[0] for key in store.all_keys("copy/orders-0/") if not key.endswith(MANIFEST)}
    strays = [f"{attempt}/{1 << 40:020d}.log", f"copy/orders-0/{0:020d}.log", "copy/notes"]
    for stray in strays:
        store.put(stray, b"no-such-key")
    ran = kcompact(*search, address)
    assert [each["outcome"] for each in ran.json["statement"]["keys"]] == ["not-proven", "present"]
    named = {each["path"]: each["sha256"] for each in ran.json["statement"]["files"] if each["problem"]}
    assert named == {store.address(stray): None for stray in strays}


def _without_durations(text: str) -> str:
    text = re.sub(r'"(\w+_s|key_hash|salt|(started|ended|now)_ms|statement_sha256)": [^,}]+', "", text)
    return re.sub(r'"key": "[0-9a-f]{16}"', "", text)


def test_a_partition_has_the_files_of_its_log_directory(log_dir: Path, store: Store) -> None:
    store.upload(log_dir, "eu")
    ran = kcompact("plan", "--json", store.address("eu/orders-0"), *COMPACT)
    assert ran.partition["first_dirty_offset"] == 11
    assert ran.partition["directory"] == store.address("eu/orders-0")
    assert ran.notes == []


def test_a_partition_at_the_top_of_a_bucket(log_dir: Path, store: Store) -> None:
    store.upload(log_dir, "")
    assert kcompact("plan", "--json", store.address("orders-0"), *COMPACT).partition["first_dirty_offset"] == 11
    assert len(kcompact("plan", "--json", f"s3://{store.bucket}", *COMPACT).json["partitions"]) == 2


def test_a_single_file(log_dir: Path, store: Store) -> None:
    store.upload(log_dir, "eu")
    segment = "orders-0/00000000000000000012.log"
    assert kcompact("records", store.address(f"eu/{segment}")).out == kcompact("records", log_dir / segment).out


def _large(store: Store, size_bytes: int) -> BucketPath:
    store.put("large-0/00000000000000000000.log", os.urandom(MIB) * (size_bytes // MIB))
    path = MIRROR.mirrored(store.address("large-0"))
    assert isinstance(path, BucketPath)
    return path


_READINGS = [(8, 64 << 10, 0), (17, 3 * MIB, 3)]
"""Sizes of an object in MiB, bytes of each reading, and how many headers are read before."""
_MORE_READINGS = itertools.product((1, 9, 16, 40), (64 << 10, 3 * MIB, 64 * MIB), (0, 3))


@pytest.mark.parametrize(
    ("size_mib", "piece_bytes", "peeks"),
    [*_READINGS, *(pytest.param(*each, marks=pytest.mark.slow) for each in _MORE_READINGS)],
)
def test_a_full_reading_takes_a_request_for_each_8_mib(
    size_mib: int, piece_bytes: int, peeks: int, store: Store
) -> None:
    size_bytes = size_mib * MIB
    path = _large(store, size_bytes)
    file = files_in(path).file("00000000000000000000.log")
    expected = store.server.client().get_object(Bucket=store.bucket, Key="large-0/" + file.name)["Body"].read()
    with file.open() as opened:
        for number in range(peeks):
            opened.read(61, number * size_bytes // 4)
        content = b"".join(opened.read(piece_bytes, at) for at in range(0, size_bytes, piece_bytes))
    assert content == expected
    assert store.proxy.gets_of(".log") <= -(-size_bytes // WHOLE_BYTES)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is a MiB."""
    monkeypatch.setattr(mirrored_file, "WHOLE_BYTES", MIB // 2)
    monkeypatch.setattr(mirrored_file, "PIECE_BYTES", MIB)


@pytest.mark.parametrize(
    ("size_mib", "piece_bytes"),
    [(12, MIB * 3 // 8), *(pytest.param(each, 3 * MIB, marks=pytest.mark.slow) for each in (96, 400))],
)
def test_a_reading_does_not_wait_for_each_request(
    size_mib: int, piece_bytes: int, store: Store, request: pytest.FixtureRequest
) -> None:
    """Of a distant store each request takes long. Who reads on is answered while up to three more are on their way."""
    if size_mib == 12:
        request.getfixturevalue("small_pieces")
    whole_bytes, piece = mirrored_file.WHOLE_BYTES, mirrored_file.PIECE_BYTES
    size_bytes = size_mib * MIB
    file = files_in(_large(store, size_bytes)).file("00000000000000000000.log")
    read_to, asked_to, answered = 0, [0], [True]

    def when_it_is_read(request: Request) -> None:
        start, end = map(int, re.findall(r"bytes=(\d+)-(\d+)", str(request.headers))[0])
        asked_to.append(end + 1)
        answered.append(becomes(lambda: start < read_to))

    def to_ask() -> int:
        number = (read_to - 1) // piece
        return min((number + min(number, 3) + 1) * piece, size_bytes)

    store.proxy.decide = when_it_is_read
    with file.open() as opened:
        for position in range(0, size_bytes, piece_bytes):
            read_to = min(position + piece_bytes, size_bytes)
            opened.read(piece_bytes, position)
            assert all(answered), "it waited for what is ahead"
            assert becomes(lambda: max(asked_to) >= to_ask())
            time.sleep(0.02)  # Else the next piece is read, and allows one more, before one too many has arrived.
            assert max(asked_to) == to_ask(), "bounded, because each holds a piece in memory"
    assert store.proxy.gets_of(".log") <= -(-size_bytes // whole_bytes)
    asked = [each.headers for each in store.proxy.requests if each.path.endswith(".log")]
    assert all("if-match" in map(str.lower, headers) for headers in asked)


def _opened(path: BucketPath) -> tuple[LogFile, MirroredFile]:
    file, mirrored = files_in(path).file(f"{0:020d}.log"), MIRROR.file(path / f"{0:020d}.log")
    assert mirrored is not None
    return file, mirrored


def test_who_jumps_fetches_nothing_ahead(store: Store, small_pieces: None) -> None:
    file, mirrored = _opened(_large(store, 13 * MIB))
    with file.open() as opened:
        for piece in (0, 4, 8, 2, 11):
            opened.read(MIB, piece * MIB)
    mirrored.settle()
    assert mirrored.present_bytes == 5 * MIB


def test_two_readers_of_a_file_have_a_run_each(store: Store, small_pieces: None) -> None:
    file, mirrored = _opened(_large(store, 10 * MIB))
    with file.open() as opened:
        for piece in range(2):
            for half in (0, 5):
                opened.read(MIB, (half + piece) * MIB)
        mirrored.settle()
        assert mirrored.present_bytes == 6 * MIB, "each has the piece after its second one"


def test_an_error_of_a_request_ahead_is_that_of_its_reader(store: Store, small_pieces: None) -> None:
    file, mirrored = _opened(_large(store, 4 * MIB))
    with file.open() as opened:
        opened.read(MIB, 0)
        opened.read(MIB, MIB)
        mirrored.settle()
        store.put(f"large-0/{file.name}", bytes(4 * MIB))
        assert len(opened.read(MIB, 2 * MIB)) == MIB, "fetched before the change"
        for _ in range(2):
            with pytest.raises(LogChangedError):
                opened.read(MIB, 3 * MIB)


@pytest.mark.parametrize("stopped", [0, 2], ids=["before the others arrive", "after two have arrived"])
def test_a_fetch_that_is_stopped_can_be_begun_again(stopped: int, store: Store, small_pieces: None) -> None:
    """Nothing is kept, whether it had arrived or was on its way."""
    path = _large(store, 12 * MIB)
    file, mirrored = _opened(path)
    numbers = itertools.count()
    store.proxy.decide = lambda request: time.sleep(0.1)

    def stop(size_bytes: int) -> None:
        if next(numbers) == stopped:
            raise CleaningAbortedError(path="large-0")

    with pytest.raises(CleaningAbortedError), MIRROR.whole(path, stop):
        pass
    assert (mirrored.present_bytes, file.path.stat().st_blocks) == (0, 0)
    with MIRROR.whole(path):
        assert mirrored.present_bytes == 12 * MIB


def test_what_was_requested_ahead_of_the_last_reader_is_counted(
    store: Store, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the scratch keeps it although it has no room."""
    monkeypatch.setattr(mirror, "KEPT_BYTES", 2 * MIB)
    file, mirrored = _opened(_large(store, 8 * MIB))
    with file.open() as opened:
        opened.read(MIB, 0)
        store.proxy.decide = lambda request: time.sleep(0.2) if "2097152-" in str(request.headers) else None
        opened.read(MIB, MIB)
    mirrored.settle()
    assert (mirrored.present_bytes, file.path.stat().st_blocks) == (0, 0)


def test_a_header_is_read_without_its_segment(store: Store) -> None:
    file = files_in(_large(store, 40 * MIB)).file("00000000000000000000.log")
    with file.open() as opened:
        assert len(opened.read(61, 30 * MIB)) == 61
    mirrored = MIRROR.file(file.path)
    assert mirrored is not None
    assert mirrored.present_bytes == mirrored_file.BLOCK_BYTES


@pytest.mark.parametrize("batch_bytes", [200, 10_000, 3 * MIB])
def test_the_first_batches_are_read_without_the_others(batch_bytes: int, store: Store) -> None:
    count = 40 * MIB // batch_bytes
    batch = build([Record(0, 0, b"k", os.urandom(batch_bytes - 70))])
    store.put("large-0/00000000000000000000.log", b"".join(n.to_bytes(8, "big") + batch[8:] for n in range(count)))
    file = files_in(MIRROR.mirrored(store.address("large-0"))).file("00000000000000000000.log")
    late = count * 7 // 8
    assert (header_at(file, 0).base_offset, header_at(file, late * len(batch)).base_offset) == (0, late)
    assert mean_batch_bytes([(file, count * len(batch))]) == len(batch)
    mirrored = MIRROR.file(file.path)
    assert mirrored is not None
    # At most two blocks for each of three readings, and pieces for the 16 headers of large batches.
    assert mirrored.present_bytes <= (6 * mirrored_file.BLOCK_BYTES if batch_bytes < MIB else 40 * MIB)
    assert sum(map(len, header_tables(file))) == count


def test_the_scratch_keeps_only_so_much(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "KEPT_BYTES", 20 * MIB)
    for number in range(3):
        store.put(f"t-0/{number:020d}.log", os.urandom(MIB) * 9)
    path = MIRROR.mirrored(store.address("t-0"))
    for name in files_in(path).names():
        with files_in(path).file(name).open() as opened:
            assert len(opened.read(9 * MIB, 0)) == 9 * MIB
    kept = [MIRROR.file(path / name).present_bytes for name in files_in(path).names()]  # type: ignore[union-attr]
    assert kept == [0, 9 * MIB, 9 * MIB]
    assert (path / f"{0:020d}.log").stat().st_blocks == 0


# Changes


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_source_that_changes_meanwhile(change: str, log_dir: Path, store: Store) -> None:
    store.upload(log_dir, "eu")
    path = MIRROR.mirrored(store.address("eu/orders-0"))
    file = files_in(path).file("00000000000000000012.log")
    key = f"eu/orders-0/{file.name}"
    if change == "replaced":
        store.put(key, bytes(file.identity().size_bytes))
    else:
        store.server.client().delete_object(Bucket=store.bucket, Key=key)
    with pytest.raises(LogChangedError, match="since it was listed") as caught, file.open() as opened:
        opened.read(1, 0)
    assert caught.value.exit_code == 6
    assert caught.value.path == store.address(key)


@ONLY_MOTO
def test_a_source_that_changes_on_a_server_that_ignores_conditions(log_dir: Path, store: Store) -> None:
    store.proxy.drop_conditions = True
    test_a_source_that_changes_meanwhile("replaced", log_dir, store)


def test_an_object_that_is_shorter_than_its_listing(log_dir: Path, store: Store) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.change = lambda request, body: body.replace(b"<Size>972<", b"<Size>2000<")
    ran = kcompact("plan", "--json", f"{address}/orders-0", *COMPACT)
    assert ran.code == 6
    assert "since it was listed" in ran.partition["error"]


# A hostile bucket


@pytest.mark.parametrize("key", ["../evil", "a/../../evil-0/1.log", "a//b", "a/./b", "/etc/passwd"])
def test_a_key_that_is_no_plain_path(key: str, log_dir: Path, store: Store) -> None:
    address = store.upload(log_dir, "eu")

    def listed_with_it(request: object, body: bytes) -> bytes:
        return body.replace(b"<Key>eu/orders-0/00000000000000000000.log<", f"<Key>eu/{key}<".encode())

    store.proxy.change = listed_with_it
    ran = kcompact("plan", address)
    assert ran.code == 4
    assert ran.err.startswith(f"error: {address}: has the name of no file below it")
    assert ran.out == ""


def test_a_key_with_the_end_of_a_line_is_shown_on_one(log_dir: Path, store: Store) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.change = lambda request, body: body.replace(b"<Key>eu/orders-0/", b"<Key>eu/or\x0aders-0/")
    ran = kcompact("plan", address)
    assert ran.code in (0, 4)
    assert "or\nders" not in ran.out + ran.err
    assert "orders-0" not in ran.out


@ONLY_MOTO  # The other server refuses such keys itself.
@pytest.mark.parametrize("key", ["x" * 256 + "-0/1.log", "a/" + "é" * 200])
def test_a_key_that_no_file_can_have(key: str, store: Store) -> None:
    store.put(key, b"x")
    assert kcompact("plan", f"s3://{store.bucket}").code == 4


@ONLY_MOTO
def test_an_object_below_the_name_of_another(store: Store) -> None:
    store.put("eu/orders-0", b"x")
    store.put("eu/orders-0/00000000000000000000.log", b"x")
    ran = kcompact("plan", store.address("eu"))
    assert (ran.code, "others are below its name" in ran.err) == (4, True)


@ONLY_MOTO
def test_a_marker_of_a_directory_is_ignored(log_dir: Path, store: Store) -> None:
    store.put("eu/", b"")
    assert kcompact("plan", store.upload(log_dir, "eu"), *COMPACT).code == 0


@ONLY_MOTO
def test_too_many_objects(log_dir: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.bucket.remote.MAX_OBJECTS", 20)
    ran = kcompact("plan", store.upload(log_dir, "eu"))
    assert (ran.code, "more than 20 objects" in ran.err) == (4, True)


@pytest.mark.slow
@ONLY_MOTO
def test_a_listing_of_several_pages(store: Store) -> None:
    for number in range(2100):
        store.put(f"eu/t-{number}/{0:020d}.log", b"")
    assert len(find_partitions([store.address("eu")])) == 2100


FILE = {"name": "a", "size_bytes": 1, "mtime_ns": 1, "crc32c": 1, "etag": "x"}
RIGHT = DirectoryManifest(attempt=".kcompact-0123456789abcdef", written_by="", files=(StoredFile(**FILE),)).encoded()  # type: ignore[arg-type]
"""A manifest whose object is not there."""
FIELDS = cast(dict[str, Any], unsealed(RIGHT))
WRONG: list[dict[str, Any]] = [
    {"directories": ["../../evil-0"]},
    {"directories": ["evil"]},
    {"directories": ["a\0-0"]},
    {"directories": 1},
    {"offsets": {"../../evil": 1}},
    {"offsets": {"cleaner-offset-checkpoint": "1"}},
    {"clean_shutdown": "\ud800"},
    {"is_part": 1},
    {"attempt": "../x"},
    {"recipe": []},
    {"files": [{**FILE, "name": "../../evil"}]},
    {"files": [{**FILE, "size_bytes": -1}]},
    {"files": [FILE, FILE]},
]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{", b"{}", RIGHT[:-2], RIGHT.replace(b'"x"', b'"y"', 1)),
        *(sealed(document) for document in ({"version": 2}, {"version": "1"}, {"version": 1})),
        *(sealed({**FIELDS, **changed}) for changed in WRONG),
        RIGHT,
    ],
)
def test_a_manifest_that_is_none(content: bytes, store: Store) -> None:
    store.put("eu/orders-0/.kcompact-manifest.json", content)
    with pytest.raises(CorruptCheckpointError):
        MIRROR.mirrored(store.address("eu/orders-0"))
    with pytest.raises(CorruptCheckpointError):
        files_in(MIRROR.mirrored(store.address("eu")) / "orders-0").names()


# Who may, and what is said of it


def test_credentials_are_never_printed(log_dir: Path, store: Store, one_try: None) -> None:
    address = store.upload(log_dir, "eu")
    server = store.server.environment
    for fault in (Fault.DENIED, Fault.SLOW_DOWN, Fault.CUT_BEFORE, Fault.HALF):
        store.proxy.decide = lambda request, fault=fault: fault  # type: ignore[misc]
        MIRROR._buckets.pop(store.bucket, None)
        for arguments in (
            ("plan", address),
            ("plan", "--debug", "--json", address),
            ("clean", "--output", address, log_dir),
        ):
            ran = kcompact(*arguments)
            assert ran.code in (1, 4), ran
            for secret in (server["AWS_ACCESS_KEY_ID"], server["AWS_SECRET_ACCESS_KEY"]):
                assert secret not in ran.out + ran.err
    assert server["AWS_SECRET_ACCESS_KEY"] not in repr(MIRROR.bucket(store.bucket)) + repr(vars(MIRROR))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.DENIED, "access denied (403 Forbidden, InvalidAccessKeyId)\nSet the credentials"),
        (Fault.SLOW_DOWN, "503 Service Unavailable, SlowDown; run the same command again"),
        (Fault.CUT_BEFORE, "; run the same command again"),
    ],
)
def test_a_store_that_does_not_serve(fault: Fault, words: str, store: Store, one_try: None) -> None:
    store.proxy.decide = lambda request: fault
    assert words in kcompact("plan", store.address("eu")).err


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HALF])
def test_a_fault_at_every_third_request_is_survived(
    fault: Fault, log_dir: Path, store: Store, soon_again: None
) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.decide = lambda request: fault if request.number % 3 == 2 else None
    ran = kcompact("records", f"{address}/orders-0", "--json")
    assert (ran.code, len(ran.lines)) == (0, 60), ran.err


@ONLY_MOTO
def test_no_such_bucket_and_no_such_prefix(store: Store) -> None:
    ran = kcompact("plan", "s3://no-such-bucket-here/eu")
    assert (ran.code, ran.err) == (4, "error: s3://no-such-bucket-here: no such bucket\n")
    assert kcompact("plan", store.address("nothing")).code == 4


@pytest.mark.parametrize("address", ["s3://", "s3:///x", "s3://A_B/x", "s3://backups/a/../b", "s3://backups/a//b"])
def test_an_address_that_is_none(address: str) -> None:
    assert kcompact("plan", address).code == 4


@pytest.mark.parametrize("arguments", [("doctor",), ("restore",), ("report", "-o")])
def test_other_arguments_are_local_paths(arguments: tuple[str, ...]) -> None:
    ran = kcompact(*arguments, "s3://backups/eu")
    assert (ran.code, "local path" in ran.err) == (2, True)


@pytest.mark.parametrize("arguments", [("clean", "--yes"), ("recover",)])
def test_nothing_is_changed_in_place(arguments: tuple[str, ...], log_dir: Path, new_store: Callable[[], Store]) -> None:
    store = new_store()
    address = store.upload(log_dir, "eu")
    before = store.all_keys()
    ran = kcompact(*arguments, address, *(COMPACT if arguments[0] == "clean" else ()))
    assert ran.code == 4
    assert ran.err.count("nothing is changed in a bucket") == 1
    assert store.all_keys() == before
    assert {request.method for request in store.proxy.requests} == {"GET"}


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    ran = kcompact("plan", "s3://without-botocore/eu")
    assert ran.code == 4
    assert "a bucket needs the library botocore" in ran.err
