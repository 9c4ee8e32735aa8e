"""A copy in a bucket is complete only if each of its objects is there as it was sent."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.bucket.manifest import MANIFEST
from kcompact.bucket.mirror import MIRROR
from kcompact.plan.discovery import find_partitions
from tests.support.command_line import COMPACT, Ran, command, kcompact
from tests.support.copies import read_files
from tests.support.fault_proxy import NO_ANSWER, Answer, Ask, Request
from tests.support.patience import PATIENCE_S
from tests.unit.bucket.conftest import ONLY_MOTO, Store

Meddle = Callable[[Request, Ask], Answer]


def _copy(source: Path, store: Store) -> Ran:
    return kcompact("clean", "--json", source, "--output", store.address("eu"), *COMPACT)


def _is_put(request: Request, name: str) -> bool:
    return request.method == "PUT" and request.path.endswith(name)


def _acknowledged(request: Request) -> Answer:
    """Return what a store answers that has stored an object."""
    return Answer(200, {"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})


def _loses(times: int, name: str = ".log") -> Meddle:
    """Return a store that acknowledges an object, so many times, and does not store it."""
    lost = list[Request]()

    def meddle(request: Request, ask: Ask) -> Answer:
        if _is_put(request, name) and len(lost) < times:
            lost.append(request)
            return _acknowledged(request)
        return ask(request)

    return meddle


def _damages(times: int, name: str = ".log") -> Meddle:
    """Return a store that receives other bytes than were sent, so many times, and looks at no checksum."""
    damaged = list[Request]()

    def meddle(request: Request, ask: Ask) -> Answer:
        if _is_put(request, name) and request.body and len(damaged) < times:
            damaged.append(request)
            return ask(replace(request, body=bytes([request.body[0] ^ 1, *request.body[1:]])))
        return ask(request)

    return meddle


def _require_local_copy(store: Store, source: Path, tmp_path: Path) -> None:
    """Check that a copy in the bucket, read without the proxy's tricks, is the one of a local output."""
    store.proxy.meddle = lambda request, ask: ask(request)
    for target in ("local", "fetched"):
        shutil.rmtree(tmp_path / target, ignore_errors=True)
    # A second listing of the same keys is another version of them, so this is done by another prefix of the mirror.
    directory = MIRROR.mirrored(store.address("eu"))
    MIRROR._files.clear()
    shutil.rmtree(directory)
    for path, target in ((store.address("eu"), "fetched"), (source, "local")):
        assert kcompact("clean", path, "--output", tmp_path / target, *COMPACT).code == 0
    assert read_files(tmp_path / "fetched") == read_files(tmp_path / "local")


@ONLY_MOTO
@pytest.mark.parametrize(
    ("faulty", "name"),
    [(_loses, ".log"), (_damages, ".log"), (_loses, MANIFEST), (_damages, MANIFEST), (_damages, ".index")],
)
def test_an_object_that_is_not_stored_as_it_was_sent_is_sent_again(
    faulty: Callable[[int, str], Meddle], name: str, log_dir: Path, store: Store, tmp_path: Path
) -> None:
    store.proxy.meddle = faulty(2, name)
    ran = _copy(log_dir, store)
    assert ran.code == 0, ran.err
    _require_local_copy(store, log_dir, tmp_path)


@ONLY_MOTO
@pytest.mark.parametrize("faulty", [_loses, _damages])
@pytest.mark.parametrize("name", [".log", MANIFEST])
def test_a_store_that_keeps_nothing_is_named(
    name: str, faulty: Callable[[int, str], Meddle], log_dir: Path, store: Store, one_try: None
) -> None:
    store.proxy.meddle = faulty(1000, name)
    ran = _copy(log_dir / "orders-0", store)
    assert ran.code in (1, 3), ran.err
    assert re.search(rf"eu/orders-0/\S*{re.escape(name)}", ran.err)
    assert not re.search(r"complete|Traceback|a bug of", ran.err)


@ONLY_MOTO
@pytest.mark.parametrize(
    ("source", "is_complete", "place", "change"),
    [
        pytest.param("orders-0", True, "eu/orders-0/", "gone", marks=pytest.mark.slow),
        ("orders-0", True, "eu/orders-0/", "other"),
        pytest.param("", False, "eu/orders-0/", "gone", marks=pytest.mark.slow),
        ("", True, "eu/orders-0/", "other"),
        ("", True, "eu/.kcompact-", "gone"),
    ],
)
def test_a_finished_copy_that_lacks_an_object_is_uploaded_again(
    source: str, is_complete: bool, place: str, change: str, log_dir: Path, store: Store, tmp_path: Path
) -> None:
    """Also of a log directory, whose copy may have been interrupted before its end."""
    if not is_complete:
        store.proxy.meddle = _loses(1000, f"eu/{MANIFEST}")
    assert _copy(log_dir / source, store).code == (0 if is_complete else 1)
    store.proxy.meddle = lambda request, ask: ask(request)
    directory = place.rpartition("/")[0]
    lost = max(key for key in store.all_keys(place) if not key.endswith(MANIFEST))
    if change == "gone":
        store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    else:
        store.put(lost, b"x")
    ran = _copy(log_dir / source, store)
    assert ran.code == 0, ran.err
    keys = [key for key in store.all_keys(f"{directory}/.kcompact-") if not key.endswith(MANIFEST)]
    attempts = {key.rpartition("/")[0] for key in keys}
    assert len(attempts) == 1, "what was left of the first attempt is removed"
    assert lost.rpartition("/")[0] not in attempts
    if not source:
        _require_local_copy(store, log_dir, tmp_path)


@ONLY_MOTO
@pytest.mark.parametrize(("source", "place"), [("orders-0", "eu/orders-0"), ("", "eu")])
def test_a_damaged_copy_is_not_taken_for_that_of_another_writer(
    source: str, place: str, log_dir: Path, store: Store
) -> None:
    """If the look at its manifest, before anything is uploaded, was answered that it is not there."""
    assert _copy(log_dir / source, store).code == 0
    lost = min(store.all_keys(f"{place}/.kcompact-"))
    store.put(lost, b"x")
    before, asked = store.all_keys(), list[str]()

    def absent_at_first(request: Request, ask: Ask) -> Answer:
        if request.method == "GET" and request.path.endswith(f"/{place}/{MANIFEST}"):
            asked.append(request.path)
            if len(asked) == 1:
                return Answer(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")
        return ask(request)

    store.proxy.meddle = absent_at_first
    ran = kcompact("clean", log_dir / source, "--output", store.address("eu"), "--json", *COMPACT)
    assert (ran.code, lost in ran.err, store.all_keys()) == (1, True, before), ran.err
    assert source == "" or [each["status"] for each in ran.json["partitions"]] == ["failed"]
    assert _copy(log_dir / source, store).code == 0
    assert kcompact("verify", store.address(place), *COMPACT).code == 0


@ONLY_MOTO
@pytest.mark.parametrize("source", ["orders-0", ""])
def test_a_manifest_that_is_damaged_later_is_named(source: str, log_dir: Path, store: Store) -> None:
    """Also in an offset, which would come into a checkpoint. The same command copies what was removed."""
    assert _copy(log_dir / source, store).code == 0
    key = f"eu/orders-0/{MANIFEST}"
    content = store.server.client().get_object(Bucket=store.bucket, Key=key)["Body"].read()
    other = re.sub(rb'(-offset-checkpoint":\d*)\d', rb"\g<1>0", content)
    assert other != content
    store.put(key, other)
    for ran in (_copy(log_dir / source, store), kcompact("plan", store.address("eu/orders-0"), *COMPACT)):
        assert (ran.code, f"{key}: is no manifest: the checksum is wrong" in ran.err) == (3, True), ran.err
        assert "Remove it and the directory beside it" in ran.err
    for each in store.all_keys("eu/orders-0/"):
        store.server.client().delete_object(Bucket=store.bucket, Key=each)
    assert _copy(log_dir / source, store).code == 0


@ONLY_MOTO
def test_a_complete_copy_is_left_as_it_is(log_dir: Path, store: Store) -> None:
    """By the same command. With another state of the log directory it is refused, and with other settings."""
    assert _copy(log_dir, store).code == 0
    before = store.all_keys()
    assert _copy(log_dir, store).code == 0
    shutil.copytree(log_dir / "audit-0", log_dir / "audit-1")
    assert "eu: exists already" in _copy(log_dir, store).err
    shutil.rmtree(log_dir / "audit-1")
    ran = kcompact("clean", log_dir, "--output", store.address("eu"), "--keep-tombstones", *COMPACT)
    assert (ran.code, "exists already" in ran.err) == (4, True)
    (log_dir / "meta.properties").write_text((log_dir / "meta.properties").read_text() + "# another\n")
    assert "eu: exists already" in _copy(log_dir, store).err
    assert store.all_keys() == before


@ONLY_MOTO
def test_what_a_run_has_written_is_not_taken_for_that_of_another(log_dir: Path, store: Store) -> None:
    """The first look at each manifest is answered with the manifest of another directory."""
    assert kcompact("clean", log_dir / "audit-0", "--output", store.address("other"), *COMPACT).code == 0
    other = store.server.client().get_object(Bucket=store.bucket, Key=f"other/audit-0/{MANIFEST}")["Body"].read()
    created, misled = set[str](), set[str]()

    def mislead(request: Request, ask: Ask) -> Answer:
        if _is_put(request, MANIFEST):
            created.add(request.path)
        elif request.method == "GET" and request.path in created - misled:
            misled.add(request.path)
            return Answer(200, {"ETag": f'"{hashlib.md5(other).hexdigest()}"'}, other)
        return ask(request)

    store.proxy.meddle = mislead
    assert _copy(log_dir, store).code == 0
    assert len(misled) == 3
    store.proxy.meddle = lambda request, ask: ask(request)
    assert kcompact("verify", store.address("eu"), *COMPACT).code == 0


@ONLY_MOTO
def test_a_listing_that_lacks_an_object_once_is_no_loss(log_dir: Path, store: Store) -> None:
    assert _copy(log_dir, store).code == 0
    before, lacking = store.all_keys(), set[str]()

    def lacks(request: Request, body: bytes) -> bytes:
        if "list-type" not in request.path or request.path in lacking:
            return body
        lacking.add(request.path)
        return re.sub(rb"<Contents>.*?</Contents>", b"", body, count=1, flags=re.DOTALL)

    store.proxy.change = lacks
    assert _copy(log_dir, store).code == 0
    assert lacking
    assert store.all_keys() == before


@ONLY_MOTO
def test_a_damaged_copy_is_mended_without_a_right_to_remove(log_dir: Path, store: Store) -> None:
    """At each moment there is a manifest."""
    assert _copy(log_dir / "orders-0", store).code == 0
    lost = next(key for key in store.all_keys("eu/") if key.endswith(".log"))
    store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    denied = Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
    manifest = f"eu/orders-0/{MANIFEST}"

    def meddle(request: Request, ask: Ask) -> Answer:
        assert manifest in store.all_keys()
        return denied if request.method in ("POST", "DELETE") else ask(request)

    store.proxy.meddle = meddle
    ran = _copy(log_dir / "orders-0", store)
    assert ran.code == 0, ran.err
    assert kcompact("verify", store.address("eu/orders-0"), *COMPACT).code == 0


@ONLY_MOTO
def test_a_partition_of_a_complete_copy_that_is_gone_is_uploaded_again(log_dir: Path, store: Store) -> None:
    """Its manifest, or all of it; by the command that has made the copy, or for this partition alone."""
    assert _copy(log_dir, store).code == 0
    for keys, source in (([f"eu/orders-0/{MANIFEST}"], ""), (None, ""), (None, "orders-0")):
        for key in keys or store.all_keys("eu/orders-0/"):
            store.server.client().delete_object(Bucket=store.bucket, Key=key)
        ran = kcompact("plan", store.address("eu"), *COMPACT)
        assert (ran.code, "eu/orders-0: is gone from this copy" in ran.err) == (3, True)
        assert "aws s3 rm" not in ran.err, "what is left of it is no unfinished upload"
        ran = _copy(log_dir / source, store)
        assert ran.code == 0, ran.err
        assert kcompact("plan", store.address("eu"), *COMPACT).code == 0


@ONLY_MOTO
def test_a_copy_at_the_top_of_a_bucket(log_dir: Path, store: Store) -> None:
    for _ in range(2):
        assert kcompact("clean", log_dir, "--output", f"s3://{store.bucket}", *COMPACT).code == 0
        assert kcompact("plan", f"s3://{store.bucket}", *COMPACT).code == 0
        assert kcompact("plan", f"s3://{store.bucket}/orders-0", *COMPACT).code == 0


@ONLY_MOTO
def test_chosen_partitions_do_not_go_into_an_unfinished_copy(log_dir: Path, store: Store, one_try: None) -> None:
    store.proxy.meddle = lambda request, ask: NO_ANSWER if _is_put(request, f"orders-0/{MANIFEST}") else ask(request)
    assert _copy(log_dir, store).code == 1
    store.proxy.meddle = lambda request, ask: ask(request)
    before = store.all_keys()
    ran = _copy(log_dir / "orders-0", store)
    assert (ran.code, "eu/audit-0: is a partition of an unfinished copy" in ran.err) == (4, True), ran.err
    assert store.all_keys() == before
    assert _copy(log_dir, store).code == 0


@ONLY_MOTO
@pytest.mark.parametrize("place", ["-future", pytest.param("-stray", marks=pytest.mark.slow)])
def test_a_damaged_directory_that_is_copied_as_it_is(place: str, log_dir: Path, store: Store, tmp_path: Path) -> None:
    name = f"audit-0.{'0' * 32}{place}"
    shutil.copytree(log_dir / "audit-0", log_dir / name)
    assert _copy(log_dir, store).code == 0
    lost = next(key for key in store.all_keys(f"eu/{name}/") if key.endswith(".log"))
    store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    for target in (tmp_path / "fetched", store.address("to")):
        ran = kcompact("clean", store.address("eu"), "--output", target, *COMPACT)
        assert (ran.code, f"{lost}: is missing" in ran.err) == (3, True), ran.err
        assert "is a complete copy" not in ran.out
    assert "0 B" not in kcompact("plan", store.address("eu"), *COMPACT).err


@ONLY_MOTO
def test_a_prefix_has_one_copy(log_dir: Path, store: Store) -> None:
    """Chosen partitions of others are in the way of a whole log directory, and the other way round."""
    other = shutil.copytree(log_dir, log_dir.parent / "other")
    shutil.rmtree(log_dir / "orders-0")
    assert _copy(other / "orders-0", store).code == 0
    before = store.all_keys()
    ran = _copy(log_dir, store)
    assert (ran.code, "eu/orders-0: is a partition of another copy" in ran.err) == (4, True), ran.err
    assert store.all_keys() == before
    for key in before:
        store.server.client().delete_object(Bucket=store.bucket, Key=key)
    assert _copy(log_dir, store).code == 0
    before = store.all_keys()
    ran = _copy(other / "orders-0", store)
    assert (ran.code, "eu: exists already" in ran.err) == (4, True), ran.err
    assert _copy(log_dir / "audit-0", store).code == 0, "it is there"
    assert store.all_keys() == before


@ONLY_MOTO
def test_a_damaged_copy_is_kept_until_it_is_replaced(log_dir: Path, store: Store, one_try: None) -> None:
    """If it cannot be uploaded again, what is left of it is still there, and the command says what is wrong."""
    assert _copy(log_dir / "orders-0", store).code == 0
    before = store.all_keys("eu/")
    lost = next(key for key in before if key.endswith(".log"))
    store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    store.proxy.meddle = _loses(1000)
    ran = _copy(log_dir / "orders-0", store)
    assert (ran.code, "does not have it as it was sent" in ran.err) == (1, True), ran.err
    assert set(before) - {lost} <= set(store.all_keys("eu/"))


@ONLY_MOTO
def test_a_damaged_copy_of_something_else_is_refused(log_dir: Path, store: Store) -> None:
    assert _copy(log_dir / "orders-0", store).code == 0
    lost = next(key for key in store.all_keys("eu/") if key.endswith(".log"))
    store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    before = store.all_keys()
    ran = kcompact("clean", log_dir / "orders-0", "--output", store.address("eu"), "--keep-tombstones", *COMPACT)
    assert (ran.code, "exists already" in ran.err) == (4, True)
    assert store.all_keys() == before


@ONLY_MOTO
def test_an_object_that_goes_away_during_the_run_is_named(log_dir: Path, store: Store) -> None:
    """The last look at all directories finds it."""

    def removed_with_the_manifest(request: Request, ask: Ask) -> Answer:
        if _is_put(request, f"audit-0/{MANIFEST}") or _is_put(request, f"orders-0/{MANIFEST}"):
            directory = request.path.lstrip("/").partition("/")[2].rpartition("/")[0]
            log = next(key for key in store.all_keys(f"{directory}/") if key.endswith(".log"))
            store.server.client().delete_object(Bucket=store.bucket, Key=log)
        return ask(request)

    store.proxy.meddle = removed_with_the_manifest
    ran = _copy(log_dir, store)
    assert (ran.code, "is gone, or another object, since it was uploaded" in ran.err) == (1, True), ran.err
    assert f"eu/{MANIFEST}" not in store.all_keys()
    store.proxy.meddle = lambda request, ask: ask(request)
    assert _copy(log_dir, store).code == 0


# A store without conditional writes


def _refuses(status: int, code: str) -> Meddle:
    def meddle(request: Request, ask: Ask) -> Answer:
        if any(name.lower() == "if-none-match" for name in request.headers):
            return Answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())
        return ask(request)

    return meddle


@ONLY_MOTO  # What another server is sent is signed, with this condition.
@pytest.mark.parametrize("refusal", [(501, "NotImplemented"), (400, "NotImplemented"), None])
def test_a_store_without_conditional_writes_is_found_out_before_anything_is_uploaded(
    refusal: tuple[int, str] | None, log_dir: Path, store: Store
) -> None:
    if refusal is None:
        store.proxy.drop_conditions = True
    else:
        store.proxy.meddle = _refuses(*refusal)
    ran = _copy(log_dir, store)
    assert (ran.code, "this store has no conditional writes (If-None-Match: *)" in ran.err) == (4, True), ran.err
    assert store.all_keys() == []
    puts = [each for each in store.proxy.requests if each.method == "PUT"]
    assert 1 <= len(puts) <= 2
    assert all(each.path.endswith("/trial") and not each.body for each in puts)


@ONLY_MOTO
def test_a_store_that_removes_objects_one_by_one(log_dir: Path, store: Store) -> None:
    store.proxy.meddle = lambda request, ask: Answer(501) if request.method == "POST" else ask(request)
    assert _copy(log_dir / "orders-0", store).code == 0
    assert [key for key in store.all_keys() if key.endswith("/trial")] == []
    assert {"POST", "DELETE"} <= {each.method for each in store.proxy.requests}


@ONLY_MOTO
def test_the_same_command_again_needs_no_trial(log_dir: Path, store: Store) -> None:
    assert _copy(log_dir / "orders-0", store).code == 0
    store.proxy.requests.clear()
    assert _copy(log_dir / "orders-0", store).code == 0
    assert {each.method for each in store.proxy.requests} == {"GET"}


# Several writers


@ONLY_MOTO
@pytest.mark.parametrize("partition", ["orders-0", ""])
@pytest.mark.parametrize("same", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_writer_that_loses(partition: str, same: bool, log_dir: Path, store: Store) -> None:
    """With the same source and settings it ends well; else what is there already is refused."""
    others = list[subprocess.CompletedProcess[str]]()
    more = () if same else ("--keep-tombstones",)

    def another_is_first(request: Request, ask: Ask) -> Answer:
        if _is_put(request, f"{Path('eu', partition, MANIFEST)}") and not others:
            store.proxy.meddle = lambda request, ask: ask(request)
            for key in () if same else store.all_keys("eu/"):
                if key.endswith(MANIFEST):  # What this run has finished by now would be refused.
                    store.server.client().delete_object(Bucket=store.bucket, Key=key)
            arguments = command("clean", log_dir / partition, "--output", store.address("eu"), *more, *COMPACT)
            others.append(subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False))
        return ask(request)

    store.proxy.meddle = another_is_first
    ran = _copy(log_dir / partition, store)
    assert others[0].returncode == 0, others[0].stderr
    assert ran.code == (0 if same else 4), ran.err
    assert "exists already" in ran.err or same
    found = [path.name for path in find_partitions([store.address("eu")])]
    assert found == ([partition] if partition else ["audit-0", "orders-0"])


# A store whose ETags are no checksums


def _with_other_etags(then: Meddle) -> Meddle:
    def turned(text: str) -> str:
        return re.sub(r"[0-9a-f]{32}", lambda found: found[0][::-1], text)

    def meddle(request: Request, ask: Ask) -> Answer:
        headers = {
            name: turned(value) if name.lower() == "if-match" else value for name, value in request.headers.items()
        }
        answer = then(replace(request, headers=headers), ask)
        shown = {name: turned(value) if name.lower() == "etag" else value for name, value in answer.headers.items()}
        body = re.sub(rb"<ETag>.*?</ETag>", lambda found: turned(found[0].decode()).encode(), answer.body)
        return replace(answer, headers=shown, body=body)

    return meddle


@ONLY_MOTO
def test_a_store_whose_etags_are_no_checksums_is_read_twice(log_dir: Path, store: Store) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.meddle = _with_other_etags(lambda request, ask: ask(request))
    ran = kcompact("records", "--json", f"{address}/orders-0")
    assert (ran.code, len(ran.lines)) == (0, 60), ran.err
    gets = [each.path for each in store.proxy.requests if each.path.endswith(f"{0:020d}.log")]
    assert len(gets) == 2


@ONLY_MOTO
@pytest.mark.parametrize(("times", "code"), [(0, 0), pytest.param(2, 0, marks=pytest.mark.slow), (1000, 1)])
def test_what_is_written_to_a_store_whose_etags_are_no_checksums_is_read(
    times: int, code: int, log_dir: Path, store: Store, tmp_path: Path
) -> None:
    store.proxy.meddle = _with_other_etags(_damages(times))
    ran = _copy(log_dir, store)
    assert ran.code == code, ran.err
    assert "damaged on its way" in ran.err or not code
