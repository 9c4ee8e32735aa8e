"""`clean --output s3://...` on Spark: a task fetches, cleans and uploads a partition, whatever befalls its attempts."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fixtures.checkout import copy_directory
from kcompact import CleanOptions, clean_partition
from kcompact.bucket.manifest import MANIFEST, DirectoryManifest
from kcompact.bucket.remote import Bucket
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, executor
from tests.support import misbehaving_tasks
from tests.support.command_line import COMPACT, Ran, command, environment, kcompact
from tests.support.copies import read_files
from tests.support.misbehaving_tasks import MISBEHAVES, NOTES
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import Server, moto
from tests.support.spark_runs import SPARK, Started, plan_of, write_log, write_partition

pytestmark = SPARK


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with moto() as server:
        yield server


@pytest.fixture
def bucket(s3: Server, on_spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, which this process and the workers find by their environment."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
        # The Java process, whose environment workers inherit, is older than the server.
        monkeypatch.setitem(on_spark.sc.environment, name, value)
    name = f"backups-{secrets.token_hex(6)}"
    s3.make_bucket(name)
    return name


def _clean(engine: str, *arguments: str | Path) -> Ran:
    return kcompact("clean", "--json", "--force", "--engine", engine, *COMPACT, *arguments)


def _said(ran: Ran, output: str) -> str:
    """Return the report of a run without its output, its engine and its durations."""
    text = ran.out.replace(output, "OUTPUT") if output else ran.out
    return re.sub(r'"(engine|elapsed_s|map_s|sync_s|verify_s)": [^,}]+', "", text)


def _manifest(s3: Server, bucket: str, prefix: str) -> DirectoryManifest:
    body = s3.client().get_object(Bucket=bucket, Key=f"{prefix}/{MANIFEST}")["Body"].read()
    return DirectoryManifest.parse(body, address=prefix)


@pytest.mark.parametrize("source", [pytest.param("directory", marks=pytest.mark.slow), "bucket"])
def test_a_task_copies_what_this_process_copies(
    source: str, started: Started, bucket: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir: str | Path = copy_directory("several-partitions", "before", tmp_path / "log-dir")
    if source == "bucket":
        for name in ("orders-1", "orders-4", "payments-0", "sessions-0"):  # Nothing that `orders-0` does not have.
            shutil.rmtree(tmp_path / "log-dir" / name)
        s3.upload(tmp_path / "log-dir", bucket, "eu")
        log_dir = f"s3://{bucket}/eu"
    outputs = {engine: f"s3://{bucket}/{engine}" for engine in ("in-process", "spark")}
    alone = _clean("in-process", log_dir, "--output", outputs["in-process"])
    with monkeypatch.context() as here:
        written = list[str]()
        really = Bucket.write

        def write(self: Bucket, key: str, data: Any, crc: int) -> str:
            written.append(key)
            return really(self, key, data, crc)

        here.setattr(Bucket, "write", write)
        on_spark = _clean("spark", log_dir, "--output", outputs["spark"])
    assert (alone.code, on_spark.code) == (0, 0), on_spark.err
    assert [key for key in written if key.count("/") > 2] == [], "the driver writes only what partitions share"
    assert _said(on_spark, outputs["spark"]) == _said(alone, outputs["in-process"])
    assert {each["engine"] for each in on_spark.json["partitions"]} == {"spark", None}
    for engine, output in outputs.items():
        assert _clean("in-process", output, "--output", tmp_path / engine).code == 0
    assert read_files(tmp_path / "spark") == read_files(tmp_path / "in-process")
    for name in ("", "/orders-0", "/audit-0"):
        made, expected = (_manifest(s3, bucket, f"{engine}{name}") for engine in ("spark", "in-process"))
        assert (made.recipe, made.offsets, made.source, made.source_etags, made.clean_shutdown) == (
            expected.recipe,
            expected.offsets,
            expected.source,
            expected.source_etags,
            expected.clean_shutdown,
        )
    again = _clean("spark", f"{log_dir}/orders-0", "--output", f"s3://{bucket}/chosen")
    assert again.code == 0, again.err
    kept = _clean("in-process", f"{log_dir}/orders-0", "--output", f"s3://{bucket}/chosen")
    assert (kept.code, kept.partition["status"]) == (0, "cleaned"), kept.err


def _attempts(s3: Server, bucket: str, prefix: str) -> tuple[list[str], set[str]]:
    """Return the manifests below a prefix, and the directories of attempts."""
    keys = s3.keys(bucket, f"{prefix}/")
    manifests = [key for key in keys if key.endswith(MANIFEST)]
    return manifests, {key.rpartition("/")[0] for key in keys if key not in manifests}


@pytest.mark.parametrize(("kind", "attempts"), [("DiesInUpload", 2), ("DiesOnce", 1)])
def test_a_worker_that_is_killed(
    kind: str,
    attempts: int,
    started: Started,
    bucket: str,
    s3: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the upload: what it has uploaded counts as nothing. After the manifest: the next attempt finds it."""
    partition = tmp_path / "logs" / MISBEHAVES
    write_partition(partition, total_bytes=60_000, segments=3, value_bytes=2_000)
    monkeypatch.setattr(executor, "WholeTask", getattr(misbehaving_tasks, kind))
    ran = _clean("spark", "--high-watermark", "leo", partition, "--output", f"s3://{bucket}/spark")
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    assert (tmp_path / NOTES).read_text().split() == ["dies"]
    manifests, directories = _attempts(s3, bucket, "spark")
    assert (len(manifests), len(directories)) == (1, attempts)
    output = f"s3://{bucket}/in-process"
    assert _said(_clean("in-process", "--high-watermark", "leo", partition, "--output", output), output) == _said(
        ran, f"s3://{bucket}/spark"
    )
    for engine in ("spark", "in-process"):
        fetched = _clean("in-process", f"s3://{bucket}/{engine}", "--output", tmp_path / engine)
        assert fetched.code == 0
        assert ("of an upload without a manifest" in fetched.err) == (engine == "spark" and attempts == 2)
    assert read_files(tmp_path / "spark") == read_files(tmp_path / "in-process")


def test_of_two_attempts_at_the_same_time_one_creates_the_manifest(
    started: Started, bucket: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = tmp_path / "logs" / MISBEHAVES
    write_partition(partition, total_bytes=60_000, segments=3, value_bytes=2_000)
    monkeypatch.setattr(executor, "WholeTask", misbehaving_tasks.MeetsAnother)
    once = OnSpark.run_whole

    def twice(self: OnSpark, *arguments: Any) -> Any:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: once(self, *arguments), range(2))
        assert (first.offsets, first.source, first.recipe) == (second.offsets, second.source, second.recipe)
        assert first.outcome["stats"] == second.outcome["stats"]
        return first

    monkeypatch.setattr(OnSpark, "run_whole", twice)
    ran = _clean("spark", "--high-watermark", "leo", partition, "--output", f"s3://{bucket}/eu")
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    assert (tmp_path / NOTES).read_text().split() == ["creates"] * 2
    manifests, directories = _attempts(s3, bucket, "eu")
    assert manifests == [f"eu/{MISBEHAVES}/{MANIFEST}"]
    assert len(directories) == 1, "the other one has removed its files"


def test_a_partition_above_the_scratch_space_is_an_error_of_its_own(
    started: Started, bucket: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("small-1", MISBEHAVES):
        write_partition(tmp_path / "logs" / name, total_bytes=60_000, segments=3, value_bytes=2_000)
    monkeypatch.setattr(executor, "WholeTask", misbehaving_tasks.HasAFullDisk)
    ran = _clean("spark", "--high-watermark", "leo", tmp_path / "logs", "--output", f"s3://{bucket}/eu")
    assert ran.code == 7, ran.err
    found = {each["directory"].rpartition("/")[2]: each["status"] for each in ran.json["partitions"]}
    assert found == {"small-1": "cleaned", MISBEHAVES: "failed"}
    assert "spark.local.dir names another place" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk in memory")
def test_a_scratch_that_fills_up_meanwhile(
    started: Started, bucket: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may fill it after the task has looked."""
    for name in ("small-1", MISBEHAVES):
        write_partition(tmp_path / "logs" / name, total_bytes=60_000, segments=3, value_bytes=2_000)
    output = f"s3://{bucket}/eu"
    with monkeypatch.context() as patched:
        patched.setattr(executor, "WholeTask", misbehaving_tasks.HasASmallScratch)
        ran = _clean("spark", "--high-watermark", "leo", tmp_path / "logs", "--output", output)
    assert ran.code == 7, ran.err
    found = {each["directory"].rpartition("/")[2]: each["status"] for each in ran.json["partitions"]}
    assert found == {"small-1": "cleaned", MISBEHAVES: "failed"}
    assert "No space left on device" in ran.err
    assert "spark.local.dir names another place" in ran.err
    assert (tmp_path / NOTES).read_text() == "left: 0\n"
    assert s3.keys(bucket, f"eu/{MISBEHAVES}") == []
    again = _clean("spark", "--high-watermark", "leo", tmp_path / "logs", "--output", output)
    assert (again.code, again.json["partitions"][0]["resumed"]) == (0, True), again.err
    assert _clean("in-process", "--high-watermark", "leo", output, "--output", tmp_path / "fetched").code == 0
    assert _clean("in-process", "--high-watermark", "leo", tmp_path / "logs", "--output", tmp_path / "local").code == 0
    assert read_files(tmp_path / "fetched") == read_files(tmp_path / "local")


@pytest.mark.parametrize(
    "command_",
    [("clean", "--dry-run", "--force", *COMPACT), ("keys", *COMPACT), ("compare",)],
    ids=lambda words: words[0],
)
def test_workers_fetch_what_they_read(
    command_: tuple[str, ...],
    started: Started,
    bucket: str,
    s3: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(3):
        write_partition(tmp_path / "logs" / f"small-{number}", total_bytes=60_000, segments=3, value_bytes=2_000)
    addresses = [f"s3://{bucket}/{region}" for region in ("eu", "us")[: 2 if "compare" in command_ else 1]]
    for address in addresses:
        s3.upload(tmp_path / "logs", bucket, address[-2:])
    ran = {engine: kcompact(*command_, "--json", "--engine", engine, *addresses) for engine in ("spark", "in-process")}
    assert ran["spark"].code == 0, ran["spark"].err
    assert _said(ran["spark"], "") == _said(ran["in-process"], "")


def test_an_executor_without_tasks_copies_from_this_process(on_spark: OnSpark, bucket: str, tmp_path: Path) -> None:
    plan = plan_of(write_log(tmp_path / "logs"))
    bucket_copy, local_copy = f"s3://{bucket}/eu", tmp_path / "local"
    copied = [
        clean_partition(plan, engine, lock=None, options=CleanOptions(output=output))
        for engine, output in ((on_spark, bucket_copy), (InProcess(), local_copy))
    ]
    assert copied[0].stats == copied[1].stats
    assert copied[0].stats is not None
    assert _clean("in-process", bucket_copy, "--output", tmp_path / "fetched").code == 0
    assert read_files(tmp_path / "fetched") == read_files(local_copy)


def test_a_bucket_is_copied_to_a_directory_by_this_process(bucket: str, s3: Server, tmp_path: Path) -> None:
    write_partition(tmp_path / "logs" / "small-1", total_bytes=60_000, segments=3, value_bytes=2_000)
    s3.upload(tmp_path / "logs", bucket, "eu")
    ran = _clean("spark", f"s3://{bucket}/eu", "--output", tmp_path / "fetched")
    assert (ran.code, "from which Spark's workers copy only to a bucket" in ran.err) == (4, True)


@pytest.mark.slow
def test_workers_of_spark_have_the_credentials_of_the_environment(s3: Server, tmp_path: Path) -> None:
    """Nothing that Spark is given has them."""
    name = f"backups-{secrets.token_hex(6)}"
    s3.make_bucket(name)
    log_dir = copy_directory("several-partitions", "before", tmp_path / "log-dir")
    ran = subprocess.run(
        command("clean", "--master", "local[2]", *COMPACT, log_dir, "--output", f"s3://{name}/eu"),
        env={**environment(), **s3.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "complete copy" in ran.stdout
    assert not any(value in ran.stdout + ran.stderr for key, value in s3.environment.items() if "KEY" in key)
