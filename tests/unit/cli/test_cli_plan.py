"""`plan`: the contract's fields, the order, every verdict, and what happens where nothing can be planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner.outcome import CleanResult, PartitionOutcome, Status
from kcompact.cli.json.clean import CLEANED
from kcompact.cli.json.partitions import SEGMENT
from kcompact.cli.json.plan import ENTRY
from kcompact.plan.partition import plan_partition
from kcompact.plan.verdict import Reason
from tests.support import log_dsl
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    NOW,
    digest,
    flip,
    kcompact,
    note_texts,
    partition,
    server_properties,
    settings,
)

CONTRACT = {
    *("topic", "partition", "directory", "cleanup_policy", "log_start_offset", "log_end_offset", "high_watermark"),
    *("last_stable_offset", "first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes"),
    *("cleanable_ratio", "max_compaction_delay_ms", "need_compaction_now", "eligible", "reason", "segments", "groups"),
}


def test_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = kcompact("plan", "--json", *COMPACT, directory)
    assert (ran.code, ran.complaints) == (0, "")
    assert ran.json.keys() == {"version", "command", "now_ms", "notes", "partitions", "left_out"}
    entry = ran.partition
    assert entry.keys() == ENTRY.names
    assert entry.keys() >= CONTRACT
    assert all(segment.keys() == SEGMENT.names for segment in entry["segments"])
    assert (entry["eligible"], entry["reason"], entry["groups"]) == (True, "dirty-ratio", [[0, 3]])
    assert (entry["cleanable_ratio"], entry["cleanup_policy"]) == (1.0, "compact")
    assert digest(tmp_path) == before
    assert not (tmp_path / ".lock").exists()


POLICY = ("--config", "cleanup.policy=compact")
YOUNG = "--config", "min.compaction.lag.ms=86400000"
VERDICTS: list[tuple[str, tuple[str, ...], Reason]] = [
    (DIRTY, POLICY, Reason.DIRTY_RATIO),
    (settings("checkpoint=3"), (*POLICY, "--config", "max.compaction.lag.ms=1"), Reason.MAX_COMPACTION_LAG),
    (settings("checkpoint=3"), POLICY, Reason.BELOW_RATIO),
    ("log now=10:00\n0:", POLICY, Reason.EMPTY),
    (settings("checkpoint=7"), POLICY, Reason.NOTHING_DIRTY),
    (settings("checkpoint=6"), POLICY, Reason.ACTIVE_ONLY),
    (DIRTY, (*POLICY, *YOUNG), Reason.MIN_COMPACTION_LAG),
    ("log now=10:00 lone\n0: a=1(pid=1 epoch=0 seq=0 txn)\n1: b=2", POLICY, Reason.OPEN_TRANSACTION),
    (settings("hw=2"), POLICY, Reason.HIGH_WATERMARK),
    (DIRTY, ("--config", "cleanup.policy=delete"), Reason.POLICY_DELETE),
    (DIRTY, (), Reason.POLICY_UNKNOWN),
    (settings("name=__consumer_offsets-0"), (), Reason.INTERNAL),
    (settings("unclean"), POLICY, Reason.UNCLEAN_SHUTDOWN),
]


@pytest.mark.parametrize(("text", "options", "reason"), VERDICTS, ids=[str(row[2]) for row in VERDICTS])
def test_verdicts(text: str, options: tuple[str, ...], reason: Reason, tmp_path: Path) -> None:
    partition(tmp_path, text)
    ran = kcompact("plan", "--json", "--now", NOW, *options, tmp_path)
    entry = ran.partition
    assert (ran.code, entry["reason"]) == (0, reason)
    assert entry["explanation"]
    assert entry["eligible"] == (reason in ("dirty-ratio", "max-compaction-lag"))


def test_dirtiest_first(tmp_path: Path) -> None:
    for name, words in (("b-0", "checkpoint=3"), ("c-1", ""), ("c-0", ""), ("a-0", "")):
        log_dir = tmp_path / name
        partition(log_dir, settings(f"name={name} {words}"))
    ran = kcompact("plan", "--json", *COMPACT, *(tmp_path / name for name in ("a-0", "b-0", "c-0", "c-1")))
    assert [f"{e['topic']}-{e['partition']}" for e in ran.json["partitions"]] == ["a-0", "c-0", "c-1", "b-0"]


def damaged(directory: Path) -> None:
    flip(directory / "00000000000000000000.log", 16)


def no_logs(directory: Path) -> None:
    for log in directory.glob("*.log"):
        log.unlink()


def swap_left(directory: Path) -> None:
    (directory / "00000000000000000000.log.swap").write_bytes(b"")


def deleted_left(directory: Path) -> None:
    (directory / "00000000000000000000.log.deleted").write_bytes(b"")


def corrupt_snapshot(directory: Path) -> None:
    (directory / "00000000000000000006.snapshot").write_bytes(b"\0\0\0")


def corrupt_checkpoint(directory: Path) -> None:
    (directory.parent / "cleaner-offset-checkpoint").write_bytes(b"1\n")


TROUBLE: list[tuple[Callable[[Path], None], int, str, bool]] = [
    (damaged, 3, "corrupt", True),
    (corrupt_snapshot, 3, "corrupt", True),
    (corrupt_checkpoint, 3, "corrupt", True),
    (no_logs, 4, "not-a-partition", True),
    (swap_left, 0, "leftovers", False),
    (deleted_left, 0, "dirty-ratio", False),
]


@pytest.mark.parametrize(("trouble", "code", "reason", "has_error"), TROUBLE, ids=[row[0].__name__ for row in TROUBLE])
def test_trouble_is_an_entry_and_the_others_go_on(
    trouble: Callable[[Path], None], code: int, reason: str, has_error: bool, tmp_path: Path
) -> None:
    bad, good = partition(tmp_path / "one"), partition(tmp_path / "two", settings("name=users-0"))
    trouble(bad)
    before = digest(tmp_path)
    ran = kcompact("plan", "--json", *COMPACT, bad.parent, good)
    entries = {entry["topic"]: entry for entry in ran.json["partitions"]}
    assert (ran.code, entries["orders"]["reason"], entries["users"]["reason"]) == (code, reason, "dirty-ratio")
    assert (entries["orders"]["error"] is not None, entries["orders"]["exit_code"]) == (has_error, code)
    assert kcompact("plan", *COMPACT, bad.parent, good).code == code
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--config", "cleanup.policy=compakt", "'compakt' must be compact, delete or both\n"),
        ("--config", "orders:min.cleanable.dirty.ratio=2", "between 0 and 1"),
        ("--broker-config", "nowhere.properties", "does not exist"),
        ("--topic", "nothing*", "no partition of a topic"),
    ],
)
def test_bad_settings(option: str, value: str, problem: str, tmp_path: Path) -> None:
    partition(tmp_path)
    ran = kcompact("plan", "--json", option, value, tmp_path)
    assert (ran.code, ran.out) == (4 if option == "--topic" else 2, "")
    assert problem in ran.err


def test_broker_config(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", settings("checkpoint=3"))
    text = "log.cleanup.policy = compact\nlog.cleaner.min.cleanable.ratio: 0.1"
    properties = server_properties(tmp_path / "data", text=text)
    link = tmp_path / "link.properties"
    link.symlink_to(properties)
    for file in (properties, link):
        assert kcompact("plan", "--json", "--broker-config", file, directory).partition["reason"] == "dirty-ratio"
    stronger = ("--config", "min.cleanable.dirty.ratio=0.9")
    assert (
        kcompact("plan", "--json", "--broker-config", file, *stronger, directory).partition["reason"] == "below-ratio"
    )
    properties.write_text("a=\\u12\n")
    assert kcompact("plan", "--broker-config", properties, directory).code == 2


@pytest.mark.parametrize(("value", "high_watermark"), [("4", 4), ("leo", 7), ("99", 7)])
def test_high_watermark(value: str, high_watermark: int, tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("hw=2"))
    entry = kcompact("plan", "--json", *COMPACT, "--high-watermark", value, directory).partition
    assert entry["high_watermark"] == high_watermark


def test_assumptions_are_said(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("lone"))
    assert "high watermark taken as the log end" in " ".join(
        note_texts(kcompact("plan", "--json", *COMPACT, directory).partition)
    )
    assert "note: " in kcompact("plan", *COMPACT, directory).out


def test_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path, settings("hw=7"))
    monkeypatch.chdir(tmp_path)
    assert kcompact("plan", *COMPACT, "orders-0").out.splitlines() == [
        "partition   size  clean  dirty   ratio  clean it  reason       why",
        "orders-0   489 B    0 B  419 B  1.0000  yes       dirty-ratio  ratio 1.0000 is above 0.5",
        "",
        "orders-0",
        "  [" + "▓" * 51 + "░" * 9 + "]",
        "  ▓ dirty 419 B  ░ active 70 B",
        "  2 segments to 1 segment",
        "    0 + 3 -> 0, from 419 B",
        "  checkpoint none -> 6",
        "",
        f"next: kcompact clean {' '.join(COMPACT)} orders-0",
    ]


def test_of_many_segments_in_a_group_the_middle_ones_are_counted(tmp_path: Path) -> None:
    segments = "".join(f"\n{offset}: a={offset}" for offset in range(31))
    out = kcompact("plan", *COMPACT, partition(tmp_path, f"log now=10:00 hw=31{segments}")).out
    assert "    0 + 1 + 2 + … 26 more … + 29 -> 0, from" in out


# The passes of Kafka's own cleaner

SMALL_MAP = ("--config", "log.cleaner.dedupe.buffer.size=1100000")
"""Full with 41,249 keys."""
FAR_APART = "log now=10:00\n0: a=1 b=2@82497\n82498: c=3"


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ((), 1),
        (SMALL_MAP, 2),
        ((*SMALL_MAP, "--config", "log.cleaner.io.buffer.load.factor=0.5"), 4),
        (("--config", "log.cleaner.dedupe.buffer.size=4400000", "--config", "log.cleaner.threads=4"), 2),
        (("--config", "log.cleaner.io.buffer.load.factor=1e-9"), None),
    ],
)
def test_how_often_kafka_would_go_through_the_log(options: tuple[str, ...], passes: int | None, tmp_path: Path) -> None:
    directory = partition(tmp_path, FAR_APART)
    assert kcompact("plan", "--json", *COMPACT, *options, directory).partition["kafka_passes_at_most"] == passes
    out = kcompact("plan", *COMPACT, *options, directory).out
    assert ("passes" in out or "pass;" in out) == (passes is not None and passes > 1)


def test_text_of_the_passes(tmp_path: Path) -> None:
    directory = partition(tmp_path, FAR_APART.replace("97", "98").replace("82498:", "82499:"))
    text = "  one pass; Kafka's own cleaner, with a map of 41,249 keys, may need up to 3"
    assert text in kcompact("plan", *COMPACT, *SMALL_MAP, directory).out.splitlines()


@pytest.mark.parametrize(
    ("end_offset", "map_keys", "at_least", "at_most"),
    [(82_498, 41_248, 1, 1), (82_498, 41_249, 1, 2), (82_498, 41_250, 2, 2), (None, 0, None, 2)],
)
def test_a_clean_knows_the_keys(
    end_offset: int | None, map_keys: int, at_least: int | None, at_most: int, tmp_path: Path
) -> None:
    directory = partition(tmp_path, FAR_APART)
    config = replace(log_dsl.parse(FAR_APART).config, log_cleaner_dedupe_buffer_size=1_100_000)
    plan = plan_partition(directory, config, now_ms=log_dsl.parse(FAR_APART).now_ms)
    status = Status.SKIPPED if end_offset is None else Status.CLEANED
    result = CleanResult(status=status, plan=plan, end_offset=end_offset)
    result = replace(result, stats=replace(result.stats, map_keys=map_keys))
    fields = CLEANED.of(PartitionOutcome(directory=directory, plan=plan, result=result))
    assert (fields["kafka_passes_at_least"], fields["kafka_passes_at_most"]) == (at_least, at_most)


def test_the_map_of_the_broker_is_in_its_properties(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", FAR_APART)
    properties = server_properties(tmp_path / "data", text="log.cleaner.dedupe.buffer.size=1100000")
    entry = kcompact("plan", "--json", *COMPACT, "--broker-config", properties, directory).partition
    assert entry["kafka_passes_at_most"] == 2
    setting = {"value": 1100000, "source": "broker-config", "origin": None}
    assert entry["config"]["log.cleaner.dedupe.buffer.size"] == setting
    server_properties(tmp_path / "data", text="log.cleaner.dedupe.buffer.size=1000000")
    ran = kcompact("plan", "--broker-config", properties, directory)
    assert (ran.code, "must be more than 1 MiB" in ran.err) == (2, True)


# Several paths, and what is no partition


def test_each_path_is_handled_by_itself(tmp_path: Path) -> None:
    good, empty, file = partition(tmp_path / "data"), tmp_path / "empty", tmp_path / "file-0"
    empty.mkdir()
    file.touch()
    paths = (tmp_path / "nowhere", good, empty, file, file / "below", good.parent)
    for command in (("plan",), ("inspect",)):
        ran = kcompact(*command, "--json", *COMPACT, *paths[:3])
        entries = {Path(entry["directory"]).name: entry for entry in ran.json["partitions"]}
        assert (ran.code, ran.complaints, list(entries)) == (4, "", ["orders-0", "nowhere", "empty"])
        assert (entries["orders-0"]["reason"], entries["orders-0"]["exit_code"]) == ("dirty-ratio", 0)
        assert (entries["nowhere"]["reason"], entries["nowhere"]["exit_code"]) == (None, 4)
        assert (entries["empty"]["reason"], entries["empty"]["exit_code"]) == ("not-a-partition", 4)
        assert {frozenset(entry) for entry in entries.values()} == {frozenset(entries["empty"])}
    ran = kcompact("plan", *COMPACT, *paths)
    assert (ran.code, ran.out.count("orders-0  ")) == (4, 1)
    assert ran.err.count("error: ") == 4
    assert f"error: {tmp_path}/nowhere: no such directory\n" in ran.err
    assert f"error: {file}: not a directory\n" in ran.err
    assert f"error: {file}/below: no such directory\n" in ran.err
    ran = kcompact("plan", *COMPACT, tmp_path / "nowhere")
    assert (ran.code, ran.out) == (4, "")


@pytest.mark.parametrize(("trouble", "reason"), [("unreadable", None), ("link", "not-a-partition"), ("name", None)])
def test_reason_without_a_plan(
    trouble: str, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path / "data")
    if trouble == "unreadable":
        (tmp_path / "data" / "cleaner-offset-checkpoint").mkdir()
    elif trouble == "link":
        directory.rename(tmp_path / "elsewhere-0")
        directory.symlink_to(tmp_path / "elsewhere-0")
    else:
        log = directory / "00000000000000000000.log"
        log.unlink()
        log.mkdir()
    entry = kcompact("plan", "--json", *COMPACT, tmp_path / "data").partition
    assert (entry["error"] is None, entry["reason"]) == (False, reason)


# Settings


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--config", "segment.bytes=abc", "segment.bytes: 'abc' is not a whole number"),
        ("--config", "segment.bytes=1_000_000", "'1_000_000' is not a whole number"),
        ("--config", "segment.bytes=" + "9" * 50, "9' is not a whole number"),
        ("--config", "segment.bytes=3", "segment.bytes: '3' must be between 14 and 2147483647"),
        ("--config", "log.retention.hours=1.5", "log.retention.hours: '1.5' is not a whole number"),
        ("--config", "min.cleanable.dirty.ratio=half", "'half' is not a number"),
        ("--config", ":cleanup.policy=compact", "is not [TOPIC:]NAME=VALUE"),
        ("--now", "99999999999999999999", "after the year 9999"),
        ("--now", "9" * 5000, "after the year 9999"),
        ("--high-watermark", "9" * 5000, "neither an offset nor leo"),
    ],
)
def test_values_that_are_none(option: str, value: str, problem: str, tmp_path: Path) -> None:
    ran = kcompact("plan", option, value, partition(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert "literal" not in ran.err


def test_a_setting_of_a_topic_that_is_not_there(tmp_path: Path) -> None:
    partition(tmp_path)
    ran = kcompact("plan", "--json", *COMPACT, "--config", "nosuch:min.cleanable.dirty.ratio=0.9", tmp_path)
    assert (ran.code, ran.partition["reason"]) == (0, "dirty-ratio")
    assert ran.complaints == (
        "note: --config nosuch:min.cleanable.dirty.ratio=0.9 has no effect: "
        "no partition of the topic nosuch is among the paths\n"
    )
    assert kcompact("plan", *COMPACT, "--config", "orders:min.cleanable.dirty.ratio=0.9", tmp_path).complaints == ""


def test_a_broker_that_does_not_clean(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    properties = server_properties(tmp_path / "data", text="log.cleaner.enable=False")
    off = "the broker's own cleaner is switched off: log.cleaner.enable=false"
    for policy, noted in (("compact", True), ("delete", False)):
        config = ("--broker-config", properties, "--config", f"cleanup.policy={policy}")
        entry = kcompact("plan", "--json", *config, directory).partition
        assert (off in note_texts(entry)) == noted
        assert (f"note: {off}" in kcompact("plan", *config, directory).out) == noted
    entry = kcompact("plan", "--json", *config, "--config", "log.cleaner.enable=true", *COMPACT, directory).partition
    assert off not in note_texts(entry)


def test_what_may_not_be_read_may_be_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))  # What it does with a directory that may not be read.

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr("kcompact.plan.partition.read_log", fail)
    entry = kcompact("plan", "--json", *COMPACT, tmp_path).partition
    assert (entry["error"].splitlines()[0], entry["reason"]) == (f"{directory}: Permission denied", None)
