"""The numbers of all answers about a log fit each other: parts add up, and what has one name has one value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import log_dsl, log_writer
from tests.support.command_line import kcompact
from tests.support.history_logs import random_text

LOGS = 40
COMMANDS = ("inspect", "verify", "gaps", "transactions", "keys")
COUNTED = ("batches", "records", "empty_batches", "control_batches", "transactional_batches", "horizon_batches")

pytestmark = pytest.mark.long

Json = dict[str, Any]


def answers(seed: int, directory: Path) -> dict[str, Json]:
    """Write a random log, with keyless records and with times that are missing; return what the commands say of it."""
    text, dice = random_text(seed), random.Random(f"sums {seed}")
    for written, other in (("a=~@", "~=~@"), ("b=1@", "~=1@"), ("^09:01", "^-1")):
        if dice.random() < 0.5:
            text = text.replace(written, other)
    partition = log_writer.write(log_dsl.parse(text), directory / str(seed))
    asked = ("--json", "--high-watermark", "leo", "--config", "cleanup.policy=compact", partition)
    return {command: kcompact(command, *asked).json["partitions"][0] for command in COMMANDS}


def total(segments: list[Json], *names: str) -> int:
    """Return the sum of a field of segments, or of a field of an object in them."""
    values: list[Any] = segments
    for name in names:
        values = [each[name] for each in values]
    return sum(values)


def sums(found: dict[str, Json]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what parts add up to, beside the whole."""
    inspected, verified, gaps = found["inspect"]["segments"], found["verify"]["segments"], found["gaps"]["gaps"]
    keys, transactions = found["keys"]["keys"], found["transactions"]["transactions"]
    for name in ("gaps", "present_offsets", "missing_offsets"):
        yield f"gaps of segments: {name}", total(gaps["segments"], name), gaps[name]
    for name, value in gaps["missing"].items():
        yield f"missing {name} of segments", total(gaps["segments"], "missing", name), value
    yield "missing offsets by cause", sum(gaps["missing"].values()), gaps["missing_offsets"]
    yield (
        "offsets",
        gaps["present_offsets"] + gaps["missing_offsets"],
        gaps["log_end_offset"] - gaps["log_start_offset"],
    )
    yield "present offsets", gaps["data_offsets"] + gaps["control_offsets"], gaps["present_offsets"]
    for place, name in ((0, "first_gap_offset"), (-1, "last_gap_offset")):
        ends = [each[name] for each in gaps["segments"] if each["gaps"]]
        yield name, ends[place] if ends else None, gaps[name]
    yield "rows", gaps["rows"], gaps["data_offsets"]
    classes = ("live_keys", "superseded_records", "latest_tombstones", "null_key_records", "aborted_records")
    rest = ("undecided_records", "control_records", "below_start_records")
    yield "records by class", sum(keys[name] for name in (*classes, *rest)), keys["records"]
    yield "bytes by class", sum(keys[f"{name}_bytes"] for name in (*classes, *rest)), keys["records_bytes"]
    states = ("unstamped_tombstones", "waiting_tombstones", "expired_tombstones")
    yield "tombstones by state", sum(keys[name] for name in states), keys["latest_tombstones"]
    yield "keys by age", sum(each["live_keys"] for each in keys["ages"]), keys["live_keys"]
    yield "keys by versions", sum(each["keys"] for each in keys["versions"]), keys["distinct_keys"]
    for state in ("committed", "aborted"):
        yield state, transactions["totals"][state]["transactions"], transactions[state]
    gone = transactions["totals"]["emptied"]["transactions"] + transactions["totals"]["gone"]["transactions"]
    yield "empty", gone, transactions["empty"]
    yield "open", transactions["totals"]["open"]["transactions"], transactions["open"]
    yield "all records", total(verified, "records"), keys["records"]
    yield "all batches", total(verified, "batches"), keys["batches"]
    yield "all empty batches", total(verified, "empty_batches"), keys["empty_batches"]
    yield "keyless records", total(verified, "null_keys") >= keys["null_key_records"], True
    if not gaps["log_start_offset"]:
        yield "present records", total(verified, "records"), gaps["present_offsets"]
    for ours, theirs in zip(inspected, verified, strict=True):
        for name in (*COUNTED, "first_offset", "last_offset", "first_timestamp_ms", "largest_timestamp_ms"):
            yield f"{name} of segment {ours['base_offset']}", ours[name], theirs[name]


def times(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all times with their places. A duration is negative if two clocks differ."""
    if isinstance(value, list):
        for each in value:
            yield from times(each, place)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from times(each, f"{place}.{name}")
    elif place.endswith("_ms") and not place.endswith(("duration_ms", "longest_ms")):
        yield place, value


@pytest.mark.parametrize("seed", range(LOGS))
def test_parts_add_up_and_names_agree(seed: int, tmp_path: Path) -> None:
    found = answers(seed, tmp_path)
    wrong = [(what, parts, whole) for what, parts, whole in sums(found) if parts != whole]
    assert wrong == []
    assert [(place, value) for place, value in times(found) if value is not None and value < 0] == []
