"""`plan`, `doctor --verify` and `clean --dry-run` never contradict each other, whatever is wrong with a directory."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import log_dsl, log_writer
from tests.support.command_line import kcompact
from tests.support.file_damage import DAMAGES, damage, files_of

DIRECTORIES = 150
SETTINGS = ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0")
STOPPING = ("loses records", "stops a broker", "stops its cleaner", "stops kcompact")

pytestmark = pytest.mark.long

Json = dict[str, Any]


def plain_text(topic: str, rng: random.Random) -> str:
    """Return a log of some segments, with a snapshot at the start of each."""
    lines, snapshots, offset = [], [], 0
    for _ in range(rng.randint(2, 4)):
        first = offset
        items = []
        for _ in range(rng.randint(1, 9)):
            items.append(f"{rng.choice('abcd')}={rng.choice(['1', '22', '~'])}")
            offset += 1
        lines.append(f"{first}: {' '.join(items)}")
        snapshots.append(f"snapshot {offset}:")
    return "\n".join([f"log name={topic}-0 now=10:00 hw={offset}", *lines, *snapshots])


def damaged(seed: int, log_dir: Path) -> str:
    """Write two random logs, damage one file, and return what was done."""
    rng = random.Random(f"answers {seed}")
    for topic in ("orders", "users"):
        log_writer.write(log_dsl.parse(plain_text(topic, rng)), log_dir)
    kinds = files_of(log_dir)
    return damage(rng.choice(kinds[rng.choice(sorted(kinds))]), rng.choice(sorted(DAMAGES)), rng)


def answers(log_dir: Path) -> tuple[dict[str, Json], dict[str, Json], list[Json]]:
    """Return what the three say: of the partitions by directory, and the findings."""
    asked = ("--json", "--now", "2024-01-01T10:00:00Z", *SETTINGS)
    planned = kcompact("plan", *asked, log_dir).json["partitions"]
    tried = kcompact("clean", "--dry-run", "--engine", "in-process", *asked, log_dir).json["partitions"]
    findings = kcompact("doctor", "--verify", *asked, log_dir).json["findings"]
    return by_directory(planned), by_directory(tried), findings


def by_directory(entries: list[Json]) -> dict[str, Json]:
    return {entry["directory"]: entry for entry in entries}


def contradictions(planned: Json, tried: Json, found: list[Json]) -> list[str]:
    """Return where the answers about one partition contradict each other."""
    stops = [each["finding"] for each in found if each["severity"] in STOPPING]
    wrong = []
    if planned["error"] and not tried["error"]:
        wrong.append(f"plan refuses, and clean does not: {planned['error']}")
    if tried["error"] and not stops:
        wrong.append(f"clean refuses, and doctor finds nothing that stops: {tried['error']}")
    if planned["error"] and not stops:
        wrong.append(f"plan refuses, and doctor finds nothing that stops: {planned['error']}")
    for error in (planned["error"], tried["error"]):
        if error and str(Path(planned["directory"]).parent) not in error:
            wrong.append(f"names no file: {error}")
    return wrong


def test_the_three_agree(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(DIRECTORIES):
        log_dir = tmp_path / str(seed) / "logs"
        done = damaged(seed, log_dir)
        planned, tried, findings = answers(log_dir)
        assert planned.keys() == tried.keys(), (seed, done)
        for directory, plan in planned.items():
            here = [each for each in findings if each["directory"] in (directory, str(log_dir))]
            assert contradictions(plan, tried[directory], here) == [], (seed, done)
            seen["yes" if plan["eligible"] else "refused" if plan["error"] else "no"] += 1
            seen["found only by reading"] += bool(plan["eligible"] and tried[directory]["error"])
    assert min(seen[what] for what in ("yes", "refused", "no", "found only by reading")) >= 5, seen
