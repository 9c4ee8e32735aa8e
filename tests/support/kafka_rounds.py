"""The cleanings that `fixtures/logs` records: their settings, their plans, and the same cleaning by kcompact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures import checkout
from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.outcome import CleanResult
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Executor
from tests.support.compare import config_of
from tests.support.releases import release_of


def round_of(name: str, number: int) -> dict[str, Any]:
    """Return a round, with the version of Kafka that cleaned as `kafka`."""
    manifest = checkout.read_manifest(name)
    return {**manifest["rounds"][number], "kafka": manifest["kafka"]}


def plans(log_dir: Path, settings: dict[str, Any]) -> list[CleanPlan]:
    release = release_of(settings["kafka"])
    return [
        plan_partition(
            directory,
            config_of(topic, settings["config"] | settings["topics"].get(topic, {}), release),
            now_ms=settings["now_ms"],
        )
        for directory in find_partitions([log_dir])
        for topic in [directory.name.rpartition("-")[0]]
    ]


def clean_all(log_dir: Path, settings: dict[str, Any], executor: Executor) -> list[CleanResult]:
    """Clean what Kafka's cleaner chose, in its order: that of equal ratios is a hash map's."""
    turns = [f"{turn['topic']}-{turn['partition']}" for turn in settings["clean"]["turns"]]
    by_name = {str(plan.log.topic_partition): plan for plan in plans(log_dir, settings)}
    with log_dir_lock(log_dir) as lock:
        return [cleaner.clean_partition(by_name[name], executor, lock=lock) for name in turns]
