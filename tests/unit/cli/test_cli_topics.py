"""`--topic`: what the error names when nothing matches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import COMPACT, kcompact, partition

COMMANDS = [
    ("plan",),
    ("clean", "--dry-run", "--engine", "in-process"),
    ("inspect",),
    ("keys",),
    ("groups",),
    ("records",),
    ("doctor",),
    ("report", "-o", "-"),
]


def add(log_dir: Path, name: str) -> None:
    """Write a partition of this name into a log directory."""
    log_dir.mkdir(exist_ok=True)
    partition(log_dir.parent / name).rename(log_dir / name)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    log_dir = tmp_path / "my logs"
    for name in ("orders-0", "orders-1", "payments-0"):
        add(log_dir, name)
    return log_dir


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_near_topics_are_named(command: tuple[str, ...], logs: Path) -> None:
    ran = kcompact(*command, "--topic", "order", *COMPACT, logs)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == (f"error: {logs}: no partition of a topic that matches 'order'\nDid you mean --topic orders?\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_partition_is_not_a_topic(command: tuple[str, ...], logs: Path) -> None:
    ran = kcompact(*command, "--topic", "orders-1", *COMPACT, logs)
    assert ran.code == 4
    assert ran.err.endswith(f"orders-1 names a partition. Pass --topic orders, or the path '{logs}/orders-1'.\n")


def test_other_cases(logs: Path) -> None:
    assert kcompact("plan", "--topic", "orders-7", logs).err.endswith("names a partition. Pass --topic orders.\n")
    assert kcompact("plan", "--topic", "x*", logs).err.endswith("There are partitions of orders, payments.\n")
    both = kcompact("plan", "--topic", "ordrs", "--topic", "paymets", logs).err
    assert both.endswith("'ordrs' or 'paymets'\nDid you mean --topic orders?\nDid you mean --topic payments?\n")
    for number in range(9):
        add(logs, f"t{number}-0")
    many = kcompact("plan", "--topic", "x*", logs).err
    assert many.endswith("There are partitions of orders, payments, t0, t1, t2 and 6 more.\n")


def test_one_of_several_matches_nothing(logs: Path) -> None:
    ran = kcompact("plan", "--json", "--topic", "orders", "--topic", "pay", "--config", "ordres:segment.ms=1", logs)
    assert [entry["topic"] for entry in ran.json["partitions"]] == ["orders", "orders"]
    assert "note: --topic pay has no effect: no partition of such a topic is among the paths" in ran.err
    assert "no partition of the topic ordres is among the paths; did you mean orders?" in ran.err
