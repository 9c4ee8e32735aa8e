"""What is wrong with a part of a bucket is told of this part, and of nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kcompact.bucket.manifest import MANIFEST
from kcompact.bucket.path import SCRATCH_PREFIX
from kcompact.format.sealed_json import sealed
from tests.support.command_line import COMPACT, command, kcompact
from tests.support.fault_proxy import Fault
from tests.support.patience import PATIENCE_S
from tests.unit.bucket.conftest import ONLY_MOTO, Store


@ONLY_MOTO
def test_a_damaged_directory_leaves_those_beside_it(log_dir: Path, store: Store) -> None:
    assert kcompact("clean", log_dir, "--output", store.address("eu"), *COMPACT).code == 0
    lost = next(key for key in store.all_keys("eu/orders-0/") if key.endswith(".log"))
    store.server.client().delete_object(Bucket=store.bucket, Key=lost)
    for name in ("plan", "verify", "keys"):
        ran = kcompact(name, "--json", store.address("eu"), *COMPACT)
        found = {each["directory"].rpartition("/")[2]: each["error"] for each in ran.json["partitions"]}
        assert (ran.code, found["audit-0"]) == (3, None), name
        assert f"{lost}: is missing" in found["orders-0"]
    assert kcompact("plan", store.address("eu/audit-0"), *COMPACT).code == 0
    ran = kcompact("search-key", "--key", "no-such-key", "--json", store.address("eu"))
    problems = {each["path"]: each["problem"] for each in ran.json["statement"]["files"] if each["problem"]}
    assert (ran.code, ran.json["statement"]["keys"][0]["outcome"]) == (10, "not-proven")
    assert "is missing" in problems[store.address("eu/orders-0")]
    for name in ("gaps", "transactions", "inspect", "records", "compare"):
        ran = kcompact(name, *([log_dir] if name == "compare" else []), store.address("eu"))
        assert (ran.code, f"{lost}: is missing" in ran.err + ran.out) == (3, True), name


@ONLY_MOTO
def test_what_a_complete_copy_lacks_is_named(log_dir: Path, tmp_path: Path, store: Store) -> None:
    """And a partition that somebody has put into it."""
    assert kcompact("clean", log_dir, "--output", store.address("eu"), *COMPACT).code == 0
    assert kcompact("clean", log_dir / "audit-0", "--output", store.address("other"), *COMPACT).code == 0
    client = store.server.client()
    for key in store.all_keys("eu/orders-0/"):
        client.delete_object(Bucket=store.bucket, Key=key)
    for key in store.all_keys("other/audit-0/"):
        body = client.get_object(Bucket=store.bucket, Key=key)["Body"].read()
        store.put(key.replace("other/audit-0", "eu/audit-7"), body)
    ran = kcompact("plan", "--json", store.address("eu"), *COMPACT)
    found = {each["directory"].rpartition("/")[2]: each["error"] for each in ran.json["partitions"]}
    assert (ran.code, found["audit-0"]) == (3, None)
    assert "eu/orders-0: is gone from this copy" in found["orders-0"]
    assert "eu/audit-7: does not belong to the copy" in found["audit-7"]
    ran = kcompact("clean", store.address("eu"), "--output", tmp_path / "fetched", *COMPACT)
    assert ran.code in (3, 4)
    assert "is a complete copy" not in ran.out


@ONLY_MOTO
def test_files_of_a_manifest_that_cannot_be_read_are_no_unfinished_upload(log_dir: Path, store: Store) -> None:
    """Nobody is told to remove them."""
    assert kcompact("clean", log_dir, "--output", store.address("eu"), *COMPACT).code == 0
    store.put(f"eu/orders-0/{MANIFEST}", sealed({"version": 2}))
    ran = kcompact("plan", store.address("eu"), *COMPACT)
    assert (ran.code, "aws s3 rm" in ran.err) == (3, False), ran.err
    assert "Use the kcompact that has written it." in ran.err


@ONLY_MOTO
def test_a_path_of_several_that_cannot_be_mirrored_is_an_error(log_dir: Path, store: Store) -> None:
    """Also if its files say that it is a log directory, which may have no partition."""
    store.put("bad/meta.properties", b"version=1\n")
    store.put("bad/orders-0", b"")
    store.put("bad/orders-0/x", b"")
    for paths in ([store.address("bad")], [store.address("bad"), log_dir]):
        ran = kcompact("plan", *paths, *COMPACT)
        assert (ran.code, "others are below its name" in ran.err) == (4, True), ran.err


@ONLY_MOTO
def test_an_unfinished_copy_of_a_log_directory_is_refused(
    log_dir: Path, tmp_path: Path, store: Store, one_try: None
) -> None:
    store.proxy.decide = lambda request: (
        Fault.CUT_BEFORE if request.method == "PUT" and request.path.endswith(f"eu/{MANIFEST}") else None
    )
    ran = kcompact("clean", log_dir, "--output", store.address("eu"), *COMPACT)
    assert (ran.code, ".kcompact-copy" in ran.err) == (1, False)
    store.proxy.decide = lambda request: None
    for arguments in (("plan",), ("clean", "--output", tmp_path / "fetched")):
        ran = kcompact(*arguments, store.address("eu"), *COMPACT)
        assert (ran.code, "eu: this copy of a log directory is unfinished" in ran.err) == (4, True), ran.err
    assert kcompact("plan", store.address("eu/orders-0"), *COMPACT).code == 0
    ran = kcompact("search-key", "--key", "no-such-key", f"s3://{store.bucket}")
    assert (ran.code, "unfinished" in ran.out + ran.err) == (10, True)
    assert kcompact("clean", log_dir, "--output", store.address("eu"), *COMPACT).code == 0
    assert kcompact("plan", store.address("eu"), *COMPACT).code == 0


@ONLY_MOTO
def test_a_temporary_directory_with_a_name_like_the_scratch(log_dir: Path, tmp_path: Path, store: Store) -> None:
    """The address is that of the bucket, in messages and in requests."""
    place = tmp_path / f"{SCRATCH_PREFIX}ci"
    place.mkdir()
    address = store.upload(log_dir, "eu")
    arguments = command("clean", address, "--output", store.address("out"), *COMPACT)
    environment = {**os.environ, "TMPDIR": str(place)}
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, f"complete copy of {address}" in ran.stdout) == (0, True), ran.stderr
