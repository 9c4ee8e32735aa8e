"""Odd logs, cleaned by Kafka's cleaner and by kcompact: the same plan, files, counts and views, round after round.

A few seeds, and in `cases/` the small logs that once differed. `make oracle` goes on with as many seeds as
the command line asks for (`python -m tests.oracle.run`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracle.chains import compare
from tests.oracle.odd_logs import odd_spec
from tests.oracle.real_kafka import Json, RealKafka
from tests.oracle.shrink import shrink

CASES = Path(__file__).parent / "cases"
REFUSED = {"offsets-below-their-segment": "rounds with offsets below their segment's base: refused"}
"""Cases that kcompact refuses in the first round, before it plans, and what the comparison counts them as."""


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(1, 13))
def test_kafka_and_kcompact_agree(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    assert compare(kafka, odd_spec(seed), tmp_path).differences == []


@pytest.mark.oracle
@pytest.mark.parametrize("case", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_differed(case: Path, kafka: RealKafka, tmp_path: Path) -> None:
    outcome = compare(kafka, json.loads(case.read_text(encoding="utf-8")), tmp_path)
    assert outcome.differences == []
    assert outcome.counts[REFUSED.get(case.stem, "plans")]


def test_a_seed_is_a_spec() -> None:
    assert json.loads(json.dumps(odd_spec(7))) == odd_spec(7)
    assert odd_spec(7) != odd_spec(8)


def actions_of(spec: Json) -> list[Json]:
    return [action for settings in spec["rounds"] for request in settings["writes"] for action in request["actions"]]


def verified_contents(spec: Json) -> int:
    return sum(len(action.get("records", ())) for action in actions_of(spec))


def test_a_differing_spec_is_made_small() -> None:
    def differs(spec: Json) -> list[str]:
        rolls = any(action["do"] == "roll" for action in actions_of(spec))
        return ["round 0: few"] if rolls and verified_contents(spec) >= 2 else []

    spec = next(spec for spec in map(odd_spec, range(100)) if len(spec["rounds"]) > 2 and differs(spec))
    small, found = shrink(spec, differs(spec), differs, seconds=30)
    assert found == ["round 0: few"]
    assert verified_contents(small) == 2
    assert len(actions_of(small)) <= 3
