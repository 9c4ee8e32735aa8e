"""Each public name of the package with a path that is not there, or is something else: an error, in words of Python."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import kcompact
from kcompact.errors import ConfigError, KcompactError
from kcompact.pytest_plugin import Compact
from tests.support.command_line import digest, partition

AnyPath = str | os.PathLike[str]
CONFIG = {"cleanup.policy": "compact"}


def topic_config() -> kcompact.TopicConfig:
    return kcompact.topic_config("orders", overrides=[kcompact.Override(name="cleanup.policy", value="compact")])


def lock(path: AnyPath) -> None:
    with kcompact.log_dir_lock(path):
        pass


def run_cleaner(path: AnyPath) -> None:
    with kcompact.Cleaner([path], CONFIG):
        pass


WITH_A_PATH: dict[str, Callable[[Any], object]] = {
    "ClientConfig": lambda path: kcompact.ClientConfig.read(path),
    "Cleaner": run_cleaner,
    "batches": lambda path: list(kcompact.batches(path)),
    "clean_log_dir": lambda path: kcompact.clean_log_dir(path, CONFIG),
    "find_partitions": lambda path: kcompact.find_partitions([path]),
    "findings": lambda path: list(kcompact.findings(kcompact.read_log(path))),
    "log_dir_lock": lock,
    "read_broker_config": lambda path: kcompact.read_broker_config(path),
    "read_topic_configs": lambda path: kcompact.read_topic_configs(path),
    "plan_partition": lambda path: kcompact.plan_partition(path, topic_config(), now_ms=0),
    "read_journal": lambda path: kcompact.read_journal(path),
    "read_log": lambda path: kcompact.read_log(path),
    "recover": lambda path: kcompact.recover(path),
}
"""The public functions that take a path."""
WITHOUT_A_PATH = {
    *("BrokerConfig", "CleanOptions", "CleanPlan", "CleanResult", "EngineOptions", "InProcess", "KcompactError"),
    "Override",
    *("PartitionLog", "PartitionOutcome", "PlanOptions", "Reason", "RoundProgress", "RoundResult", "Status"),
    *("TopicConfig", "TopicPartition", "clean_partition", "read_records", "release_of", "topic_config"),
}
"""Values, and functions that take values: `clean_partition` takes a plan, and is tried below."""

TAKES_ANY_FILE: dict[str, object] = {"ClientConfig": kcompact.ClientConfig(), "read_journal": [None]}
"""What a file comes to that has no known name, or no line of a journal."""
TAKES_ANY_DIRECTORY = {"Cleaner", "log_dir_lock"}
"""A log directory may have no partition yet."""


def test_all_public_names_are_tried() -> None:
    assert WITH_A_PATH.keys() | WITHOUT_A_PATH == set(kcompact.__all__)


@pytest.fixture(params=["nothing", "below nothing", "a file", "an empty directory", "an empty partition"])
def wrong_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give a path that is no log and no log directory; a name with `--` is not taken for an option."""
    path = tmp_path / "a --output" / "orders-0"
    match request.param:
        case "nothing":
            path.parent.mkdir()
        case "a file":
            path.parent.mkdir()
            path.write_text("x = y\n")
        case "an empty directory":
            path = path.with_name("empty")
            path.mkdir(parents=True)
        case "an empty partition":
            path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("name", sorted(WITH_A_PATH))
def test_wrong_paths_raise(name: str, wrong_path: Path) -> None:
    if wrong_path.is_dir() and name in TAKES_ANY_DIRECTORY:
        WITH_A_PATH[name](wrong_path)
        return
    if name in TAKES_ANY_FILE and wrong_path.is_file():
        assert WITH_A_PATH[name](wrong_path) == TAKES_ANY_FILE[name]
        return
    if name == "recover" and wrong_path.is_dir() and wrong_path.name == "orders-0":
        return  # What an interrupted swap leaves may have no log: `recover` handles it.
    with pytest.raises(KcompactError) as raised:
        WITH_A_PATH[name](wrong_path)
    message = str(raised.value)
    assert str(wrong_path) in message
    assert "--" not in re.sub(r"kafka-[a-z]+\.sh .*", "", message.replace(str(wrong_path), ""))


TAKES_A_PATH_TOO: dict[str, Callable[[Any], object]] = {
    "Cleaner, one": lambda path: kcompact.Cleaner(path, CONFIG),
    "CleanOptions.journal": lambda path: kcompact.CleanOptions(journal=path),
    "CleanOptions.keep_replaced": lambda path: kcompact.CleanOptions(keep_replaced=path),
    "CleanOptions.output": lambda path: kcompact.CleanOptions(output=path),
    "PlanOptions.replicas": lambda path: kcompact.PlanOptions(now_ms=0, replicas=(path,)),
    "recover, log_dir": lambda path: kcompact.recover("orders-0", log_dir=path),
}
"""Values with a path, and second parameters."""
TAKES_ADDRESSES = {"clean_log_dir", "compact", "find_partitions", "CleanOptions.output"}


@pytest.mark.parametrize(
    "path",
    ["s3a://b/o-0", "S3:/b/o-0", "gs://b/o-0", Path("s3://b/o-0"), Path("hdfs://b/o-0"), PurePosixPath("s3://b/o-0")],
    ids=repr,
)
@pytest.mark.parametrize("name", [*sorted(WITH_A_PATH), *TAKES_A_PATH_TOO, "compact"])
def test_another_store_is_not_taken_for_a_local_directory(
    name: str, path: AnyPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact: Compact
) -> None:
    """A local partition that has the name is not used."""
    monkeypatch.chdir(tmp_path)
    partition(tmp_path / os.fspath(path))
    before = digest(tmp_path)
    take: Callable[[Any], object] = {**WITH_A_PATH, **TAKES_A_PATH_TOO, "compact": compact}[name]
    with pytest.raises(ConfigError, match=r"^[a-zA-Z0-9]+:/+b/o-0: is no local path[:;]") as raised:
        take(path)
    assert raised.value.exit_code == 2
    is_of_s3 = os.fspath(path).lower().startswith("s3")
    assert ("s3://b/o-0" in raised.value.hint) is (is_of_s3 and name in TAKES_ADDRESSES)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("name", ["CleanOptions.journal", "CleanOptions.keep_replaced", "PlanOptions.replicas"])
def test_what_must_be_local_is_not_in_a_bucket(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^s3://b/o: is in a bucket; here only a local path is possible$"):
        TAKES_A_PATH_TOO[name]("s3://b/o")


@pytest.mark.parametrize("name", ["log_dir_lock", "recover", "recover, log_dir"])
def test_nothing_is_changed_in_a_bucket(name: str) -> None:
    with pytest.raises(KcompactError, match=r"^s3://b/o: nothing is changed in a bucket") as raised:
        {**WITH_A_PATH, **TAKES_A_PATH_TOO}[name]("s3://b/o")
    assert raised.value.exit_code == 4


def test_without_a_time_the_clock_gives_it() -> None:
    before = time.time_ns() // 1_000_000
    options = kcompact.PlanOptions(force=True)
    assert before <= options.now_ms <= time.time_ns() // 1_000_000
    assert options.by_clock
    again = replace(options, force=False)
    assert (again.now_ms, again.by_clock) == (options.now_ms, True)
    assert not kcompact.PlanOptions(now_ms=5).by_clock


def test_a_local_directory_may_have_the_name_of_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = partition(tmp_path / "gs:" / "logs")
    plan_options = kcompact.PlanOptions(now_ms=1_704_103_200_000)
    for options in (
        kcompact.CleanOptions(output="./gs:/copy"),
        kcompact.CleanOptions(keep_replaced="./gs:/kept", journal="./gs:/journal"),
    ):
        result = kcompact.clean_log_dir("./gs:/logs", CONFIG, plan_options=plan_options, options=options)
        assert (result.exit_code, result.partitions[0].status) == (0, "cleaned")
    assert len(kcompact.read_journal("./gs:/journal")) == 2
    assert kcompact.read_log("./gs:/logs/orders-0").files == kcompact.read_log(directory).files
    assert kcompact.recover("./gs:/logs/orders-0", log_dir="./gs:/logs") == kcompact.recover(directory)
    lock("./gs:/logs")
    run_cleaner("./gs:/logs")
    assert {"copy", "journal", "kept", "logs"} == {each.name for each in (tmp_path / "gs:").iterdir()}


def test_a_plan_of_a_partition_that_has_gone(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    plan = kcompact.plan_partition(directory, topic_config(), now_ms=1_704_103_200_000)
    directory.rename(tmp_path / "elsewhere")
    with pytest.raises(KcompactError) as raised:
        kcompact.clean_partition(plan, kcompact.InProcess(), lock=None, options=kcompact.CleanOptions(dry_run=True))
    assert str(directory) in str(raised.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: kcompact.CleanOptions(output="x", apply_retention=True),
            "`apply_retention=True`: deletes .*`output`",
        ),
        (lambda: kcompact.CleanOptions(output="x", keep_replaced="y"), "`keep_replaced`: `output` replaces nothing"),
        (lambda: kcompact.CleanOptions(keep_replaced="x", apply_retention=True), "not what `apply_retention=True` del"),
        (lambda: kcompact.EngineOptions(name="flink"), "`EngineOptions.name`: 'flink' is none of"),
        (lambda: kcompact.EngineOptions(name="spark", master="nonsense"), "`master`: 'nonsense' is not a Spark master"),
        (lambda: kcompact.PlanOptions(now_ms=1, client=kcompact.ClientConfig()), "client: .* no bootstrap_server"),
        (lambda: kcompact.PlanOptions(now_ms=1_700_000_000), "now_ms: 1700000000 looks like seconds"),
    ],
)
def test_wrong_options(make: Callable[[], object], words: str) -> None:
    with pytest.raises(KcompactError, match=words) as raised:
        make()
    assert "--" not in str(raised.value)


def test_refusals_name_parameters(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    unknown = kcompact.plan_partition(directory, kcompact.topic_config("orders"), now_ms=0)
    dry_run = kcompact.CleanOptions(dry_run=True)
    with pytest.raises(KcompactError) as raised:
        kcompact.clean_partition(unknown, kcompact.InProcess(), lock=None, options=dry_run)
    policy = "If the topic is compacted, pass the setting orders:cleanup.policy=compact"
    sources = "Its own settings are read with `bootstrap_server`, or `topic_configs`, the output of kafka-configs.sh"
    hint = f"{policy}. {sources} --describe --entity-type topics"
    assert (str(raised.value).splitlines()[1], raised.value.hint) == (hint, hint)
