"""`config.resolve`: which partitions share one configuration."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from kcompact.config.settings import TopicOverrides, parse_override
from kcompact.plan.options import PlanOptions
from tests.support.command_line import partition, settings


def test_partitions_share_a_configuration_only_with_the_same_sources(tmp_path: Path) -> None:
    log_dirs, names = (tmp_path / "1", tmp_path / "2"), ("a-0", "a-1", "b-0", "c-0")
    directories = [partition(log_dir, settings(f"name={name}")) for log_dir in log_dirs for name in names]
    own = {"a": TopicOverrides(origin="topic-configs", values={"segment.ms": "5"})}
    options = PlanOptions(now_ms=0, topic_configs=own, overrides=(parse_override("c:segment.ms=6"),))
    configs = [each.config for each in options.configs_of(directories).values()]
    assert [each.segment_ms for each in configs] == [5, 5, 604_800_000, 6] * 2
    shared = [each is before for before, each in pairwise(configs)]
    assert shared == [True, False, False, False, True, False, False]
