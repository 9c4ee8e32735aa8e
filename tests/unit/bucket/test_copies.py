"""Copies in a bucket: whole or not there, whatever happens to the requests, and equal to local copies."""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kcompact.bucket import scratch
from kcompact.bucket.manifest import MANIFEST, DirectoryManifest
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import SCRATCH_PREFIX, BucketPath
from kcompact.bucket.scratch import as_path
from kcompact.bucket.upload import new_attempt, publish
from kcompact.errors import NotEnoughSpaceError, RefusedError
from kcompact.format.sealed_json import sealed
from kcompact.host.disk import Disk
from kcompact.host.throttle import Throttle
from kcompact.plan.discovery import find_partitions
from kcompact.swap.copy import output_at
from kcompact.swap.copy.contents import read_partition_contents
from kcompact.swap.copy.output import SHARED_BLOCKS
from tests.support.command_line import COMPACT, kcompact
from tests.support.copies import read_files
from tests.support.disk_in_memory import disk_in_memory
from tests.support.fault_proxy import Fault, Request
from tests.unit.bucket.conftest import ONLY_MOTO, ONLY_VERSITYGW, Store


def _clean(*arguments: str | Path) -> tuple[int, str]:
    ran = kcompact("clean", "--json", *arguments, *COMPACT)
    return ran.code, ran.err + ran.out


def _attributes(root: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def test_a_copy_that_is_fetched_is_the_local_copy(log_dir: Path, tmp_path: Path, store: Store) -> None:
    local, fetched, address = tmp_path / "local", tmp_path / "fetched", store.address("copies/eu")
    assert _clean(log_dir, "--output", local)[0] == 0
    assert _clean(log_dir, "--output", address)[0] == 0
    assert _clean(address, "--output", fetched)[0] == 0
    assert read_files(fetched) == read_files(local)
    in_partitions = {name: known for name, known in _attributes(local).items() if "/" in name}
    assert {name: known for name, known in _attributes(fetched).items() if "/" in name} == in_partitions


def test_a_bucket_to_another_prefix(log_dir: Path, tmp_path: Path, store: Store) -> None:
    source, target = store.upload(log_dir, "eu"), store.address("compacted")
    assert _clean(source, "--output", target)[0] == 0
    assert _clean(source, "--output", tmp_path / "local")[0] == 0
    assert _clean(target, "--output", tmp_path / "fetched")[0] == 0
    assert read_files(tmp_path / "fetched") == read_files(tmp_path / "local")
    manifest = _manifest(store, "compacted/orders-0")
    listed = {each["Key"]: each["ETag"] for each in _listed(store)}
    assert manifest.source_etags["00000000000000000012.log"] == listed["eu/orders-0/00000000000000000012.log"]


def _listed(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.server.client().list_objects_v2(Bucket=store.bucket)["Contents"]
    return found


def _manifest(store: Store, prefix: str) -> DirectoryManifest:
    body = store.server.client().get_object(Bucket=store.bucket, Key=f"{prefix}/{MANIFEST}")["Body"].read()
    return DirectoryManifest.parse(body, address=prefix)


def test_a_person_can_fetch_a_partition(log_dir: Path, tmp_path: Path, store: Store) -> None:
    """As docs/bucket.md says: the directory of the attempt has the files of the partition, under their names."""
    assert _clean(log_dir / "orders-0", "--output", store.address("eu"))[0] == 0
    assert _clean(log_dir / "orders-0", "--output", tmp_path / "local")[0] == 0
    prefix = f"eu/orders-0/{_manifest(store, 'eu/orders-0').attempt}/"
    client = store.server.client()
    fetched = {
        key.removeprefix(prefix): client.get_object(Bucket=store.bucket, Key=key)["Body"].read()
        for key in store.all_keys()
        if key.startswith(prefix)
    }
    assert fetched == read_files(tmp_path / "local" / "orders-0")


def test_chosen_partitions_have_their_checkpoints(log_dir: Path, store: Store) -> None:
    address = store.address("eu")
    for name in ("orders-0", "audit-0"):
        assert _clean(log_dir / name, "--output", address)[0] == 0
    entries = {each["topic"]: each for each in kcompact("plan", "--json", address, *COMPACT).json["partitions"]}
    assert {topic: each["first_dirty_offset"] for topic, each in entries.items()} == {"orders": 48, "audit": 36}
    assert {each["reason"] for each in entries.values()} == {"active-only"}


def test_what_is_there_is_refused(log_dir: Path, store: Store) -> None:
    address = store.address("eu")
    assert _clean(log_dir / "orders-0", "--output", address)[0] == 0
    before = _listed(store)
    code, said = _clean(log_dir / "orders-0", "--output", address, "--keep-tombstones")
    assert (code, "exists already" in said) == (4, True)
    assert _listed(store) == before


def test_the_same_command_again_does_nothing(log_dir: Path, store: Store) -> None:
    address = store.address("eu")
    assert _clean(log_dir / "orders-0", "--output", address)[0] == 0
    before = _listed(store)
    ran = kcompact("clean", "--json", log_dir / "orders-0", "--output", address, *COMPACT)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned")
    assert _listed(store) == before


def test_a_limit_on_bytes_per_second_holds_for_the_requests_too(
    log_dir: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of its own, on which only the waiting for the limit takes time."""
    now_s, guard = 0.0, threading.Lock()

    def sleep(duration_s: float) -> None:
        nonlocal now_s
        with guard:
            now_s += duration_s

    defaults = Throttle.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", lambda: now_s)
    monkeypatch.setitem(defaults, "sleep", sleep)
    source, target = store.upload(log_dir, "eu"), store.address("copies")
    paths = [f"{source}/audit-0", "--output"]
    assert _clean(*paths, f"{target}/1")[0] == 0
    assert now_s == 0
    sizes = {each["Key"]: int(each["Size"]) for each in _listed(store)}
    fetched = sum(size for key, size in sizes.items() if key.startswith("eu/audit-0/"))
    uploaded = sum(size for key, size in sizes.items() if key.startswith("copies/1/audit-0/"))
    limit = (fetched + uploaded) // 2
    assert _clean(*paths, f"{target}/2", "--max-bytes-per-second", str(limit))[0] == 0
    assert now_s >= 1.8, (fetched, uploaded)


def test_the_scratch_must_hold_what_is_fetched_at_the_same_time(
    log_dir: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store.upload(log_dir, "eu")
    directories = [MIRROR.mirrored(f"{source}/{name}") for name in ("orders-0", "audit-0")]
    output = output_at(as_path(store.address("copies")), directories)
    block_bytes = Disk.of(output.path).block_bytes
    each = [2 * read_partition_contents(path).space_bytes(block_bytes) for path in directories]
    free_bytes = sum(each) + SHARED_BLOCKS * block_bytes - 1
    monkeypatch.setattr(Disk, "of", lambda path: Disk(free_bytes, block_bytes))
    output.require_space(directories, lambda path: False, 4)
    output.require_space(directories, lambda path: True, 1)
    with pytest.raises(NotEnoughSpaceError, match="TMPDIR names another place"):
        output.require_space(directories, lambda path: True, 2)


_FULL = [
    (1, "directory", "orders-0"),  # While a segment is compacted.
    (3, "directory", "orders-0"),  # While the active segment is copied.
    (7, "directory", "orders-0"),  # While a file beside the segments is copied.
    (1, "bucket", "orders-0"),  # While the checkpoints are fetched.
    (6, "bucket", "orders-0"),  # Before the partition is fetched.
    (7, "bucket", "orders-0"),  # With a part of the partition.
]
"""Blocks of the scratch, from where, and which partition."""
_EVERY_FULL = itertools.product(range(1, 9), ("directory", "bucket"), ("orders-0", "audit-0"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk in memory")
@pytest.mark.parametrize(
    ("blocks", "source", "name"),
    [*_FULL, *(pytest.param(*each, marks=pytest.mark.slow) for each in _EVERY_FULL if each not in _FULL)],
)
def test_a_scratch_that_fills_up_meanwhile(
    blocks: int, source: str, name: str, log_dir: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may fill it after kcompact has looked."""
    address = store.upload(log_dir, "source") if source == "bucket" else log_dir
    target = store.address("copies")
    with disk_in_memory(tmp_path / "small", f"{4 * blocks}k") as small, monkeypatch.context() as patched:
        patched.setitem(scratch._ROOT, os.getpid(), small / f"{SCRATCH_PREFIX}0123456789ab")
        patched.setattr(Disk, "of", lambda path: Disk(1 << 40, 4096))
        for name_of_state, empty in (("_files", {}), ("_unused", {}), ("_kept_bytes", 0)):
            patched.setattr(MIRROR, name_of_state, empty)  # What is in this scratch ends with it.
        code, said = _clean(f"{address}/{name}", "--output", target)
        left = [path for path in small.rglob("*") if path.is_file() and path.stat().st_blocks]
    hint = "Partitions of a bucket are kept in the scratch for a while; TMPDIR names another place."
    assert (code, re.findall("(?m)^.*names another place.$", said)) == (7, [hint]), said
    assert "No space left on device" in said
    assert [path for path in left if f"{store.bucket}/copies/" in str(path)] == []
    assert store.all_keys("copies/") == []
    assert _clean(f"{log_dir}/{name}", "--output", target)[0] == 0


def test_another_object_in_place_of_one_of_the_manifest(log_dir: Path, store: Store) -> None:
    assert _clean(log_dir / "orders-0", "--output", store.address("eu"))[0] == 0
    attempt = _manifest(store, "eu/orders-0").attempt
    store.put(f"eu/orders-0/{attempt}/{0:020d}.log", bytes(567))
    ran = kcompact("verify", store.address("eu"))
    assert (ran.code, "is not the object that the manifest" in ran.out) == (3, True)


def test_content_that_is_not_the_one_of_the_manifest(log_dir: Path, tmp_path: Path, store: Store) -> None:
    address = store.address("eu")
    assert _clean(log_dir / "orders-0", "--output", address)[0] == 0
    manifest = json.loads(
        store.server.client().get_object(Bucket=store.bucket, Key=f"eu/orders-0/{MANIFEST}")["Body"].read()
    )
    del manifest["crc32c"]
    for each in manifest["files"]:
        each["crc32c"] ^= each["name"].endswith(".log")
    store.put(f"eu/orders-0/{MANIFEST}", sealed(manifest))
    code, said = _clean(address, "--output", tmp_path / "fetched")
    assert (code, "not the one in the manifest" in said) == (3, True)


# Interruptions


def _partitions_there(store: Store) -> set[str]:
    prefixes = {key.split("/")[1] for key in store.all_keys() if key.endswith(MANIFEST) and key.count("/") == 2}
    if store.all_keys():
        seen = {path.name for path in find_partitions([store.address("eu")])} if prefixes else set()
        assert seen == prefixes
    return prefixes


_EVERY = (Fault.CUT_AFTER, Fault.CUT_BEFORE, Fault.SLOW_DOWN)


@pytest.mark.parametrize(
    ("fault", "step"),
    [(Fault.CUT_AFTER, 9), *(pytest.param(each, 1, marks=pytest.mark.slow) for each in _EVERY)],
)
def test_a_store_that_fails_from_each_request_on(
    fault: Fault, step: int, log_dir: Path, new_store: Callable[[], Store], one_try: None
) -> None:
    """The partition is there as a whole or not at all, and the same command then completes it.

    The requests are a look for a manifest, three of the trial, the uploads, a listing, the manifest with a look at it,
    and a last look at all. With a larger step some are left out.
    """
    paths: list[str | Path] = [log_dir / "orders-0", "--output"]
    probe = new_store()
    assert _clean(*paths, probe.address("eu"))[0] == 0
    count = len(probe.proxy.requests)
    there, numbers = 0, sorted({0, *range(count - 1, 0, -step)})
    for number in numbers:
        store = new_store()
        store.proxy.requests.clear()
        store.proxy.decide = lambda request, number=number: fault if request.number >= number else None  # type: ignore[misc]
        code, said = _clean(*paths, store.address("eu"))
        assert code in (1, 4), said
        store.proxy.decide = lambda request: None
        there += len(_partitions_there(store))
        MIRROR.take_orphans()
        code, said = _clean(*paths, store.address("eu"))
        assert code == 0, (number, said)
        assert _partitions_there(store) == {"orders-0"}
        expected = {each.name for each in _manifest(probe, "eu/orders-0").files}
        assert {each.name for each in _manifest(store, "eu/orders-0").files} == expected
    # Three requests look at what is there. Before them is the one that creates the manifest.
    first = count - 4 if fault is Fault.CUT_AFTER else count - 3
    assert there == sum(number >= first for number in numbers)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SLOW_DOWN])
def test_a_fault_at_every_fourth_request_is_survived(
    fault: Fault, log_dir: Path, tmp_path: Path, store: Store, soon_again: None
) -> None:
    store.proxy.decide = lambda request: fault if request.number % 4 == 3 else None
    assert _clean(log_dir / "orders-0", "--output", store.address("eu"))[0] == 0
    assert _clean(store.address("eu"), "--output", tmp_path / "fetched")[0] == 0
    store.proxy.decide = lambda request: None
    assert _clean(log_dir / "orders-0", "--output", tmp_path / "local")[0] == 0
    assert read_files(tmp_path / "fetched" / "orders-0") == read_files(tmp_path / "local" / "orders-0")


def test_half_an_upload_is_named_and_counts_as_nothing(log_dir: Path, store: Store, one_try: None) -> None:
    address = store.address("eu")

    def after_three_puts(request: Request) -> Fault | None:
        puts = [each for each in store.proxy.requests[: request.number + 1] if each.method == "PUT"]
        return Fault.CUT_BEFORE if sum(not each.path.endswith("/trial") for each in puts) > 3 else None

    store.proxy.decide = after_three_puts
    assert _clean(log_dir / "orders-0", "--output", address)[0] == 1
    store.proxy.decide = lambda request: None
    assert len(store.all_keys()) == 3
    store.upload(log_dir / "audit-0", "eu/audit-0")
    ran = kcompact("plan", "--json", address, *COMPACT)
    assert [each["topic"] for each in ran.json["partitions"]] == ["audit"]
    attempt = store.all_keys()[-1].rpartition("/")[0]
    assert f"note: s3://{store.bucket}/{attempt} has 3 objects" in ran.err
    assert f"aws s3 rm --recursive s3://{store.bucket}/{attempt}/" in ran.err


def test_a_log_directory_is_continued(log_dir: Path, tmp_path: Path, store: Store, one_try: None) -> None:
    address = store.address("eu")

    def after_two_manifests(request: Request) -> Fault | None:
        manifests = sum(each.method == "PUT" and each.path.endswith(MANIFEST) for each in store.proxy.requests)
        return Fault.CUT_BEFORE if manifests >= 2 and request.method == "PUT" else None

    store.proxy.decide = after_two_manifests
    assert _clean(log_dir, "--output", address)[0] == 1
    store.proxy.decide = lambda request: None
    first = {each["Key"]: each["ETag"] for each in _listed(store) if each["Key"].endswith(MANIFEST)}
    assert len(first) == 1
    assert f"eu/{MANIFEST}" not in first
    assert _clean(log_dir, "--output", address)[0] == 0
    after = {each["Key"]: each["ETag"] for each in _listed(store)}
    assert first.items() <= after.items()
    assert f"eu/{MANIFEST}" in after
    assert _clean(address, "--output", tmp_path / "fetched")[0] == 0
    assert _clean(log_dir, "--output", tmp_path / "local")[0] == 0
    assert read_files(tmp_path / "fetched") == read_files(tmp_path / "local")


# Several writers


def _race(store: Store, tmp_path: Path, rounds: int) -> None:
    """Have eight writers publish the same directory, and check that one wins and that the copy is its own."""
    for number in range(rounds):
        key, won, lost = f"races/{number}/orders-0", list[str](), list[str]()
        start = threading.Barrier(8)

        def write(
            attempt: str,
            key: str = key,
            start: threading.Barrier = start,
            won: list[str] = won,
            lost: list[str] = lost,
        ) -> None:
            directory = BucketPath(tmp_path / attempt)
            directory.mkdir()
            (directory / "mine").write_text(attempt)
            start.wait()
            try:
                manifest = DirectoryManifest(attempt=attempt, written_by="test", files=())
                publish(MIRROR.bucket(store.bucket), key, directory, manifest)
                won.append(attempt)
            except RefusedError:
                lost.append(attempt)

        writers = [threading.Thread(target=write, args=(new_attempt(),)) for _ in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert (len(won), len(lost)) == (1, 7), number
        assert _manifest(store, key).attempt == won[0]
        if number % 100:
            continue
        path = MIRROR.mirrored(store.address(key))
        with MIRROR.whole(path):
            assert os.listdir(path) == ["mine"]  # noqa: PTH208
            assert (path / "mine").read_text() == won[0]
        assert store.all_keys(key) == sorted([f"{key}/{MANIFEST}", f"{key}/{won[0]}/mine"])


@ONLY_MOTO
def test_of_eight_writers_one_wins(store: Store, tmp_path: Path) -> None:
    _race(store, tmp_path, 3)


@pytest.mark.slow
@ONLY_VERSITYGW
def test_of_eight_writers_one_wins_on_another_server(store: Store, tmp_path: Path) -> None:
    _race(store, tmp_path, 20)


@pytest.mark.slow
@ONLY_VERSITYGW
def test_of_eight_creates_one_wins_a_thousand_times(store: Store) -> None:
    """The request that decides the race, without the uploads before it."""
    bucket = MIRROR.bucket(store.bucket)
    with ThreadPoolExecutor(8) as pool:
        for number in range(1000):
            key, contents = f"races/{number}/{MANIFEST}", [new_attempt().encode() for _ in range(8)]
            start = threading.Barrier(8)

            def create(content: bytes, key: str = key, start: threading.Barrier = start) -> bool:
                start.wait()
                return bucket.create(key, content)

            won = list(pool.map(create, contents))
            assert won.count(True) == 1, number
            assert bucket.read_small(key, max_bytes=100) == contents[won.index(True)]
