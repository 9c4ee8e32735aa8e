"""Partition directories: found, planned, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override, TopicConfig
from kcompact.errors import RefusedError
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition, refusal
from tests import notation

ONE = "log\n0: a=1\n1: b=1"


def written(log_dir: Path, *, name: str = "orders-0") -> Path:
    return notation.write(notation.parse(ONE.replace("log", f"log name={name}", 1)), log_dir)


def plan_of(directory: Path, **settings: str) -> CleanPlan:
    overrides = [Override(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    config: TopicConfig = topic_config(
        "orders", overrides=[Override(name="cleanup.policy", value="compact"), *overrides]
    )
    return plan_partition(directory, config, now_ms=notation.DEFAULT_TIME)


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
    # Neither followed nor passed over without a word.
    assert [found.name for found in find_partitions([tmp_path / "logs"])] == ["orders-0", "other-0"]
    assert find_partitions([link]) == [link]
    with pytest.raises(RefusedError, match="symbolic link"):
        plan_of(link)


def test_tiered_topics_are_not_eligible(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path), remote_storage_enable="true")
    assert (plan.eligible, plan.reason) == (False, Reason.NOT_A_PARTITION)
    assert isinstance(refusal(plan), RefusedError)


def test_metadata_logs_are_refused_for_good(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, name="__cluster_metadata-0"))
    problem = refusal(plan)
    assert problem is not None
    assert "--include-internal" not in str(problem)
