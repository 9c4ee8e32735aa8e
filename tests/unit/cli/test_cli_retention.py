"""What `plan` and `clean --apply-retention` say about topics that are not compacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import digest, kcompact, partition, server_properties

LOG = """\
log now=10:00
0: a=*1000^08:00
10: b=*1000^09:00
20: c=*1000^09:30
"""
NOW = "--now", "2024-01-01T10:00:00Z"
FOUND = [
    (
        "retention.ms=5400000",
        "  retention: segment 0 is past its retention.ms 5400000 (--config)\n"
        "  a broker would delete 1 segment, 1.0 KiB; the log would start at 10\n",
        [(0, "retention.ms")],
        None,
    ),
    (
        "retention.ms=0",
        "  retention: segment 0 is past its retention.ms 0 (--config)\n"
        "  retention: segment 10 is past its retention.ms 0 (--config)\n"
        "  a broker would delete 2 segments, 2.1 KiB; the log would start at 20\n"
        "  retention: the active segment 20 is past its retention.ms 0 (--config); "
        "only a broker rolls and deletes it\n",
        [(0, "retention.ms"), (10, "retention.ms")],
        "retention.ms",
    ),
    (
        "retention.ms=36000000",
        "  retention: no closed segment is due (retention.ms 36000000, retention.bytes -1); "
        "segment 0 is due after 2024-01-01T18:00:00Z\n",
        [],
        None,
    ),
    ("retention.ms=-1", "  retention: no closed segment is due (retention.ms -1, retention.bytes -1)\n", [], None),
]


def options(setting: str) -> tuple[str, ...]:
    return (*NOW, "--config", "cleanup.policy=delete", "--config", setting)


@pytest.mark.parametrize(("setting", "text", "segments", "active"), FOUND, ids=[row[0] for row in FOUND])
def test_plan_says_what_a_broker_would_delete(
    setting: str, text: str, segments: list[tuple[int, str]], active: str | None, tmp_path: Path
) -> None:
    directory = partition(tmp_path, LOG)
    before = digest(tmp_path)
    ran = kcompact("plan", *options(setting), directory)
    assert f"{directory.name}\n{text}\n" in ran.out
    assert ("clean --apply-retention" in ran.out) == bool(segments)
    entry = kcompact("plan", "--json", *options(setting), directory).partition
    assert [(due["base_offset"], due["reason"]) for due in entry["retention"]] == segments
    assert (entry["retention_of_active"], entry["reason"]) == (active, "policy-delete")
    assert digest(tmp_path) == before


def test_plan_says_what_is_below_the_log_start(tmp_path: Path) -> None:
    directory = partition(tmp_path, LOG.replace("now=10:00", "now=10:00 start=12"))
    ran = kcompact("plan", *options("retention.ms=-1"), directory)
    assert "  retention: segment 0 is below the log start 12\n  a broker would delete 1 segment" in ran.out
    assert "the log would start at 12\n" in ran.out


def test_clean_says_what_it_deletes_and_that_the_active_segment_stays(tmp_path: Path) -> None:
    directory = partition(tmp_path, LOG)
    arguments: tuple[str | Path, ...] = (
        "clean",
        "--engine",
        "in-process",
        "--apply-retention",
        *options("retention.ms=0"),
        directory,
    )
    dry = kcompact(*arguments[:-1], "--dry-run", directory)
    ran = kcompact(*arguments)
    stays = f"note: {directory.name}: the active segment 20 is past its retention.ms and stays"
    for one, deletes in ((dry, "would delete"), (ran, "deleted")):
        assert one.code == 0
        assert f"retention {deletes} 2 segments (base offsets 0, 10)" in one.out
        assert stays in one.err
    assert [path.name for path in directory.glob("*.log")] == [f"{20:020}.log"]
    again = kcompact(*arguments).out
    assert "no closed segment is due" in again
    assert "retention deleted" not in again


def test_the_journal_has_what_was_deleted_and_no_line_when_nothing_was(tmp_path: Path) -> None:
    directory, journal = partition(tmp_path / "data", LOG), tmp_path / "journal"
    arguments: tuple[str | Path, ...] = ("--engine", "in-process", "--apply-retention", "--journal", journal)
    kcompact("clean", *arguments, *options("retention.ms=-1"), directory)
    assert not journal.exists()
    kcompact("clean", *arguments, *options("retention.ms=0"), directory)
    kcompact("clean", *arguments, *options("retention.ms=0"), directory)
    begin, end = map(json.loads, journal.read_text().splitlines())
    assert (begin["event"], begin["reason"]) == ("begin", "policy-delete")
    expired = [
        {"base_offset": base, "end_offset": base + 10, "size_bytes": begin["to_delete"][0]["size_bytes"]}
        for base in (0, 10)
    ]
    assert begin["to_delete"] == [one | {"reason": "retention.ms", "value": 0} for one in expired]
    assert (end["event"], end["status"], end["deleted"]) == ("end", "deleted", expired)


def test_many_partitions_are_added_up(tmp_path: Path) -> None:
    for name in ("a-0", "b-0", "c-0", "d-0"):
        partition(tmp_path, LOG.replace("now=10:00", f"now=10:00 name={name}"))
    ran = kcompact("plan", *options("retention.ms=5400000"), tmp_path)
    assert "retention: a broker would delete 4 segments, 4.2 KiB\n" in ran.out
    assert "clean --apply-retention" in ran.out


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["log.retention.hours=1"], [0]),
        (["log.retention.hours=1", "log.retention.minutes=40"], [0, 10]),
        (["log.retention.minutes=40", "log.retention.hours=1"], [0, 10]),
        (["log.retention.ms=-1", "log.retention.minutes=40"], []),
        (["log.retention.hours=-1"], []),
        (["log.retention.hours=-1", "log.retention.bytes=2000"], [0]),
        (["log.retention.hours=-1", "log.retention.bytes=-1"], []),
        ([], []),
    ],
)
def test_the_defaults_of_a_broker(settings: list[str], expected: list[int], tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", LOG)
    text = "\n".join(["log.cleanup.policy=delete", *settings])
    properties = server_properties(tmp_path / "data", text=text)
    entry = kcompact("plan", "--json", *NOW, "--broker-config", properties, directory).partition
    assert [due["base_offset"] for due in entry["retention"]] == expected
    entry = kcompact(
        "plan", "--json", *NOW, "--broker-config", properties, "--config", "retention.ms=0", directory
    ).partition
    assert [due["base_offset"] for due in entry["retention"]] == [0, 10]


TURNS = """\
log now=10:00 name=NAME checkpoint=CHECKPOINT
0: a=*1000^08:00
10: b=*1000^09:00
20: c=*1000^09:30
30: d=*1000^09:40
"""


def test_plan_says_which_logs_lose_segments_before_they_are_cleaned(tmp_path: Path) -> None:
    for name, checkpoint in (("a-0", 0), ("b-0", 10)):
        partition(tmp_path, TURNS.replace("NAME", name).replace("CHECKPOINT", str(checkpoint)))
    arguments = (*NOW, "--config", "cleanup.policy=compact,delete", "--config", "retention.ms=5400000")
    ran = kcompact("plan", *arguments, "--config", "min.cleanable.dirty.ratio=0.7", tmp_path)
    assert "segment 0 is past its retention.ms 5400000 (--config), but the merge with a younger segment" in ran.out
    assert (
        "  retention comes first, because a broker cleans another log before this one; then ratio 1.0000 is" in ran.out
    )
    explained = kcompact("plan", "--explain", *arguments, tmp_path)
    assert "  retention  comes first, because a broker cleans another log before this one; then ratio" in explained.out
    first, later = kcompact("plan", "--json", "--explain", *arguments, tmp_path).json["partitions"]
    assert [due["postponed_by_merge"] for each in (first, later) for due in each["retention"]] == [True, False]
    assert [each["explain"]["retention"]["comes_first"] for each in (first, later)] == [False, True]
    assert later["explain"]["broker"]["bytes_rewritten"] < later["explain"]["here"]["log_bytes_read"]

    dry_run = ("--dry-run", "--apply-retention", "--engine", "in-process", "--config", "min.cleanable.dirty.ratio=0.7")
    dry = kcompact("clean", *dry_run, *arguments, tmp_path)
    assert "2 partitions, 8.4 KiB: 2 to clean\nrewrites 5.2 KiB: 5.2 KiB dirty, 0 B clean\n" in dry.out
