"""Retention by a default of Kafka that may not be the broker's: `clean --apply-retention` deletes nothing by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.config import admin_client
from kcompact.config.admin_client import LiveCluster
from kcompact.config.settings import Source, TopicOverrides
from kcompact.format.properties import encode_uuid
from tests.support import log_dsl, log_writer
from tests.support.command_line import digest, kcompact, server_properties
from tests.support.metadata_log import CLUSTER_ID, ORDERS, batches, log, topic, write

LOG = """\
log now=10:00
0: a=*1000^08:00
10: b=*1000^09:00
20: c=*1000^09:30
"""
A_MONTH_LATER = ("--now", "2024-02-01T10:00:00Z")
"""Every segment is past Kafka's default of seven days."""
TIME = "retention.ms=604800000 is Kafka's default; the broker's own is unknown"
POLICY = "cleanup.policy=delete is Kafka's default; the broker's own is unknown"
BOTH = "retention.ms=604800000 and cleanup.policy=delete are Kafka's defaults; the broker's own are unknown"
DELETE = "--config cleanup.policy=delete"


def broker(path: Path, text: str = LOG, **settings: str) -> Path:
    """Make a log directory whose metadata log has the topic with these settings."""
    log_writer.write(replace(log_dsl.parse(text), topic_id=encode_uuid(ORDERS)), path)
    return write(path, {log(): batches(topic("orders", ORDERS, **settings))})


def clean(log_dir: Path, options: str, *more: str) -> Any:
    arguments = ("--engine", "in-process", "--yes", "--json", "--apply-retention", "--topic", "orders")
    return kcompact("clean", *arguments, *more, *A_MONTH_LATER, *options.split(), log_dir)


CASES: list[tuple[str, str, dict[str, str], str, str, list[int]]] = [
    # the first line of the log, the options, the topic's settings in the cluster, server.properties, refused, deleted
    ("", "", {}, "", BOTH, []),
    ("", "", {"cleanup_policy": "delete"}, "", TIME, []),
    ("", "", {"retention_ms": "1"}, "", POLICY, []),
    ("", "", {"retention_bytes": "0"}, "", POLICY, []),
    ("", "", {"cleanup_policy": "delete", "retention_ms": "1"}, "", "", [0, 10]),
    ("", "", {"cleanup_policy": "delete", "retention_ms": "-1", "retention_bytes": "0"}, "", "", [0, 10]),
    # Everything is past retention.bytes, so nothing is left that only retention.ms would delete.
    ("", "", {"cleanup_policy": "delete", "retention_bytes": "0"}, "", "", [0, 10]),
    # One segment is past retention.bytes, another only past the assumed retention.ms.
    ("", "", {"cleanup_policy": "delete", "retention_bytes": "2100"}, "", TIME, []),
    ("", "", {"cleanup_policy": "compact,delete"}, "", TIME, []),
    ("", "", {"cleanup_policy": "compact"}, "", "", []),
    ("start=20", "", {"cleanup_policy": "compact"}, "", "", [0, 10]),
    ("start=20", "", {}, "", "", [0, 10]),
    ("start=10", "", {}, "", BOTH, []),
    # The broker's own configuration: Kafka's defaults count.
    ("", "", {}, "num.io.threads=8", "", [0, 10]),
    ("", "", {}, "log.retention.hours=8760", "", []),
    ("", "", {}, "log.retention.hours=-1", "", []),
    ("", "", {"retention_ms": "1"}, "log.cleanup.policy=compact", "", []),
    ("", "", {"cleanup_policy": "delete"}, "log.retention.hours=1", "", [0, 10]),
    # Options.
    ("", DELETE, {}, "", TIME, []),
    ("", "--config retention.ms=1", {}, "", POLICY, []),
    ("", "--config log.retention.hours=1", {"cleanup_policy": "delete"}, "", "", [0, 10]),
    ("", "--config orders:retention.ms=604800000", {"cleanup_policy": "delete"}, "", "", [0, 10]),
    ("", f"{DELETE} --config retention.ms=-1", {}, "", "", []),
    ("", f"{DELETE} --config other:retention.ms=1", {}, "", TIME, []),
]


@pytest.mark.parametrize(("head", "options", "settings", "properties", "refused", "deleted"), CASES)
def test_a_default_of_kafka_deletes_nothing(
    head: str,
    options: str,
    settings: dict[str, str],
    properties: str,
    refused: str,
    deleted: list[int],
    tmp_path: Path,
) -> None:
    log_dir = broker(tmp_path / "logs", LOG.replace("now=10:00", f"now=10:00 {head}"), **settings)
    if properties:
        options += f" --broker-config {server_properties(log_dir, text=properties)}"
    before = digest(log_dir)
    for run in (clean(log_dir, options, "--dry-run"), clean(log_dir, options)):
        entry = run.partition
        assert (run.code, entry["status"] == "failed") == ((4, True) if refused else (0, False))
        assert refused in (entry["error"] or "")
        assert [due["base_offset"] for due in entry["deleted_segments"] or ()] == deleted
        if refused:
            assert digest(log_dir) == before
            assert "--broker-config FILE" in entry["error"]
    left = [int(path.stem) for path in sorted((log_dir / "orders-0").glob("*.log"))]
    assert left[0] == (20 if deleted else 0)


@pytest.mark.parametrize("settings", [{}, {"cleanup_policy": "delete"}, {"retention_ms": "1"}])
def test_plan_notes_it_and_proposes_no_deletion(settings: dict[str, str], tmp_path: Path) -> None:
    log_dir = broker(tmp_path / "logs", **settings)
    ran = kcompact("plan", *A_MONTH_LATER, "--topic", "orders", log_dir)
    assumed = {"cleanup_policy": "cleanup.policy", "retention_ms": "retention.ms"}
    names = ", ".join(name for field, name in assumed.items() if field not in settings)
    told = " ".join(ran.err.split())
    assert f"Kafka's defaults are assumed, and decide here, for {names}; pass --broker-config FILE; clean " in told
    value = (
        "604800000 (Kafka's default, assumed)" if "retention_ms" not in settings else "1 (topic override in the cluster"
    )
    assert f"  retention: segment 10 is past its retention.ms {value}" in ran.out
    assert "a broker would delete 2 segments" in ran.out
    assert "next:" not in ran.out
    file = server_properties(log_dir)
    known = kcompact("plan", *A_MONTH_LATER, "--topic", "orders", "--broker-config", file, log_dir)
    assert "--apply-retention" in known.out
    assert "assumed" not in known.err


UP: dict[int, list[tuple[Source, dict[str, str]]]] = {
    1: [(Source.DEFAULT, {"log.retention.hours": "168", "log.cleanup.policy": "delete"}), (Source.BROKER_CONFIG, {})]
}


@pytest.mark.parametrize(("brokers", "code"), [(UP, 0), ({}, 4)])
def test_a_running_broker_shows_its_own_settings(
    brokers: dict[int, list[tuple[Source, dict[str, str]]]],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = LiveCluster(
        address="host:1",
        cluster_id=CLUSTER_ID,
        topics={"orders": TopicOverrides(values={}, origin="bootstrap-server", topic_id=encode_uuid(ORDERS))},
        cluster_defaults={},
        brokers=brokers,
    )
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: live)
    assert clean(broker(tmp_path), "--bootstrap-server host:1").code == code


def test_a_refused_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("orders-0", "users-0"):
        log_writer.write(log_dsl.parse(LOG.replace("now=10:00", f"now=10:00 name={name}")), tmp_path)
    journal = tmp_path.parent / f"{tmp_path.name}.jsonl"
    arguments = ("--engine", "in-process", "--json", "--apply-retention", *DELETE.split())
    limits = ("--config", "*:retention.bytes=-1", "--config", "users:retention.ms=1")
    write(tmp_path, {log(): batches(topic("orders", ORDERS, cleanup_policy="delete"))})
    selected = ("--topic", "orders", "--topic", "users", "--journal", journal)
    ran = kcompact("clean", *arguments, *A_MONTH_LATER, *limits, *selected, tmp_path)
    statuses = {entry["topic"]: entry["status"] for entry in ran.json["partitions"]}
    assert (ran.code, statuses) == (4, {"orders": "failed", "users": "deleted"})
    assert [line["topic"] for line in map(json.loads, journal.read_text().splitlines())] == ["users", "users"]
