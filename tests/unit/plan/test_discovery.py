"""`plan.discovery`: the partition directories that paths name, and symbolic links."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.config.settings import TopicConfig
from kcompact.errors import ConfigError, RefusedError
from kcompact.plan import discovery
from kcompact.plan.discovery import find_partitions, left_out
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME

ONE = "log\n0: a=1\n1: b=1"


def written(log_dir: Path, *, name: str = "orders-0") -> Path:
    return log_writer.write(log_dsl.parse(ONE.replace("log", f"log name={name}", 1)), log_dir)


def test_a_log_directory_may_be_a_link(tmp_path: Path) -> None:
    directory = written(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert find_partitions([tmp_path / "link"]) == [directory]
    assert find_partitions([tmp_path / "link" / "orders-0"]) == [directory]
    (tmp_path / "kafka-1").symlink_to("real")  # Like the name of a partition.
    assert find_partitions([tmp_path / "kafka-1", tmp_path / "real"]) == [directory]
    assert find_partitions([tmp_path / "real" / ".." / "real" / "orders-0" / "."]) == [directory]


def test_a_partition_must_not_be_a_link(tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere")
    written(tmp_path / "logs", name="other-0")
    link = tmp_path / "logs" / "orders-0"
    link.symlink_to(elsewhere)
    # The link is neither followed nor left out: the plan refuses it.
    assert [found.name for found in find_partitions([tmp_path / "logs"])] == ["orders-0", "other-0"]
    assert find_partitions([link]) == [link]
    with pytest.raises(RefusedError, match="symbolic link"):
        plan_partition(link, TopicConfig(), now_ms=DEFAULT_TIME)


def test_an_empty_path_is_not_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="the path is empty"):
        find_partitions([".", ""])
    assert find_partitions(["."]) == [directory]


def test_what_is_left_out(tmp_path: Path) -> None:
    unique_id = "0" * 32
    log_dir = tmp_path / "logs"
    partition = written(log_dir)
    for name in (f"orders-1.{unique_id}-delete", "remote-log-index-cache", "orders-00", "b"):
        (log_dir / name / "inner").mkdir(parents=True)
        (log_dir / name / "inner" / "file").write_bytes(b"12345")
    found = [(each.name, str(each.kind), each.size_bytes) for each in left_out([log_dir, log_dir / ".", partition])]
    assert found == [
        ("b", "unknown", 5),
        ("orders-00", "unknown", 5),
        ("orders-1", "delete", 5),
        ("remote-log-index-cache", "remote-log-index-cache", 5),
    ]
    assert left_out([partition, tmp_path / "nowhere"]) == []


def test_sizes_of_what_is_left_out_are_not_computed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    for number, name in enumerate(("few", "many", "more")):
        (tmp_path / name).mkdir()
        for file in range(3 * number + 1):
            (tmp_path / name / str(file)).write_bytes(b"1")
    monkeypatch.setattr(discovery, "MAX_COUNTED_FILES", 5)
    assert [each.size_bytes for each in left_out([tmp_path])] == [1, 4, None]


@pytest.mark.parametrize(
    ("name", "problem"), [("orders", "its name 'orders' is not"), ("orders-0.bak", "orders-0.bak")]
)
def test_a_partition_directory_needs_its_name(name: str, problem: str, tmp_path: Path) -> None:
    directory = written(tmp_path).rename(tmp_path / name)
    with pytest.raises(RefusedError, match=problem) as caught:
        find_partitions([directory])
    assert "no .log file" not in str(caught.value)
