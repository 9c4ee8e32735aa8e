"""Replicas that end or begin where they should not, and a tail that nobody has got."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.log.directory import read_log
from kcompact.questions.compare.comparison import compare_replicas
from kcompact.questions.compare.findings import Certainty, Difference, DifferenceKind, findings_of
from tests.support.command_line import kcompact
from tests.support.log_dsl import parse
from tests.support.log_writer import write

START, RECOVERED, REPLICATED = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
SIX = "log\n0: a=1 b=1 c=1\n3: d=1 e=1 f=1"


def replica(home: Path, text: str, **offsets: int) -> Path:
    """Write the log directory of a stopped broker, with these offsets in its checkpoints."""
    directory = write(parse(text), home)
    names = {"start": START, "recovered": RECOVERED, "replicated": REPLICATED}
    for name, offset in offsets.items():
        (home / names[name]).write_text(f"0\n1\norders 0 {offset}\n")
    (home / ".kafka_cleanshutdown").touch()
    return directory


def compared(*directories: Path) -> list[list[Difference]]:
    """Return the findings in each order of the replicas, with their numbers in the order that is given."""
    found = []
    for order in permutations(range(len(directories))):
        logs = [read_log(directories[number], as_recovered=True) for number in order]
        findings = findings_of(compare_replicas(logs, InProcess(parallelism=1)))
        found.append(
            [
                Difference(
                    kind=each.kind,
                    replicas=tuple(sorted(order[number] for number in each.replicas)),
                    certainty=each.certainty,
                    right=each.right,
                    count=each.count,
                    offsets=each.offsets,
                )
                for each in findings
            ]
        )
    return found


@pytest.mark.parametrize(
    ("checkpoint", "offset", "count"),
    [
        ("replicated", 3, 0),
        ("replicated", 4, 1),
        ("replicated", 6, 3),
        # What nobody has is not said to be lost here.
        ("replicated", 9, 3),
        ("recovered", 6, 3),
        ("recovered", 3, 0),
    ],
)
def test_a_log_that_ends_below_its_own_high_watermark(tmp_path: Path, checkpoint: str, offset: int, count: int) -> None:
    short = replica(tmp_path / "1", "log\n0: a=1 b=1 c=1", **{checkpoint: offset})
    whole = replica(tmp_path / "2", SIX, replicated=6, recovered=6)
    for findings in compared(short, whole):
        found = [(each.kind, each.replicas, each.certainty, each.count, each.offsets) for each in findings]
        assert found == ([(DifferenceKind.LOST_END, (0,), Certainty.LIKELY, count, (3,))] if count else [])


def test_a_log_with_a_lost_end_is_moved_away_before_its_broker_starts(tmp_path: Path) -> None:
    replica(tmp_path / "1", "log\n0: a=1 b=1 c=1", replicated=6)
    replica(tmp_path / "2", SIX, replicated=6)
    ran = kcompact("compare", "--before-start", "--json", tmp_path / "1", tmp_path / "2")
    assert (ran.code, [each["action"] for each in ran.json["before_start"]]) == (9, ["move-away"])
    ran = kcompact("compare", "--before-start", "--json", tmp_path / "2", tmp_path / "1")
    assert [each["action"] for each in ran.json["before_start"]] == ["keep"]


@pytest.mark.parametrize(("start", "other", "is_said"), [(6, 0, True), (6, 5, True), (6, 6, False), (5, 0, False)])
def test_a_log_that_begins_where_it_ends(tmp_path: Path, start: int, other: int, is_said: bool) -> None:
    emptied = replica(tmp_path / "1", SIX, start=start, replicated=6)
    whole = replica(tmp_path / "2", SIX, start=other, replicated=6)
    for findings in compared(emptied, whole):
        found = [(each.kind, each.replicas, each.certainty, each.offsets) for each in findings]
        assert found == ([(DifferenceKind.EMPTIED_LOG, (0,), Certainty.UNDECIDED, (other,))] if is_said else [])


def test_retention_may_have_deleted_all(tmp_path: Path) -> None:
    """It deletes whole segments: the one that is left is empty."""
    expired = replica(tmp_path / "1", "log\n6:", start=6, replicated=6)
    whole = replica(tmp_path / "2", SIX, replicated=6)
    assert not any(compared(expired, whole))


@pytest.mark.parametrize(
    ("high_watermark", "kind"),
    [
        (2, DifferenceKind.UNREPLICATED_TAIL),
        (3, DifferenceKind.UNREPLICATED_TAIL),
        (4, DifferenceKind.DIVERGED_EPOCH),
        (None, DifferenceKind.DIVERGED_EPOCH),
    ],
)
def test_what_a_crashed_leader_had_written(tmp_path: Path, high_watermark: int | None, kind: DifferenceKind) -> None:
    """Above its high watermark no consumer has got it. The high watermark on a disk is old, and without one it is 0."""
    own = {} if high_watermark is None else {"replicated": high_watermark}
    crashed = replica(tmp_path / "1", "log\n0: a=1 b=1 c=1\n3: x=1 y=1", **own)
    leader = replica(tmp_path / "2", "log\n0: a=1 b=1 c=1\n3: d=1(leader=1) e=1(leader=1)", replicated=5)
    for findings in compared(crashed, leader):
        assert [(each.kind, each.replicas, each.offsets) for each in findings] == [(kind, (0,), (3,))]
    ran = kcompact("compare", "--before-start", "--json", tmp_path / "1", tmp_path / "2")
    expected = ("keep", 0) if kind is DifferenceKind.UNREPLICATED_TAIL else ("decide", 9)
    assert (ran.json["before_start"][0]["action"], ran.code) == expected


def test_a_record_below_a_log_start_fills_no_hole(tmp_path: Path) -> None:
    """It is the tombstone of the key, and is not judged. So it must not prove that there was none."""
    keys = [f"f{offset}=x" for offset in range(20)]
    texts = []
    for own, others in (({}, (5, 12)), ({5: "K=old"}, (12,)), ({12: "K=~"}, (5,))):
        records = [f"{own.get(offset, each)}@{offset}" for offset, each in enumerate(keys) if offset not in others]
        texts.append("log\n0: " + " ".join(records))
    directories = [
        replica(tmp_path / str(number), text, start=15 if number == 2 else 0, replicated=20)
        for number, text in enumerate(texts)
    ]
    for findings in compared(*directories):
        (found,) = findings
        assert (found.kind, found.replicas, found.right) == (DifferenceKind.PRESENT_IN_ONE, (1,), None)
    # Each of the others could be the one that has lost the key.
    for number, action in ((0, "decide"), (1, "decide"), (2, "decide")):
        paths = sorted((tmp_path / str(each) for each in range(3)), key=lambda each: each.name != str(number))
        ran = kcompact("compare", "--before-start", "--json", *paths)
        assert [each["action"] for each in ran.json["before_start"]] == [action], number
