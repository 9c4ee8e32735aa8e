"""`plan.discovery`: the partition directories that paths name, and symbolic links."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.config.settings import TopicConfig
from kcompact.errors import ConfigError, RefusedError
from kcompact.plan.discovery import find_partitions
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
