"""`plan`: the contract's fields, the order, every verdict, and what happens where nothing can be planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.cli import report
from kcompact.plan import Reason
from tests.command_line import COMPACT, DIRTY, NOW, digest, flip, kcompact, partition

CONTRACT = {
    *("topic", "partition", "directory", "cleanup_policy", "log_start_offset", "log_end_offset", "high_watermark"),
    *("last_stable_offset", "first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes"),
    *("cleanable_ratio", "max_compaction_delay_ms", "need_compaction_now", "eligible", "reason", "segments", "groups"),
}


def settings(words: str, text: str = DIRTY) -> str:
    return text.replace("now=10:00", f"now=10:00 {words}")


def test_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = kcompact("plan", "--json", *COMPACT, directory)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json.keys() == {"version", "command", "now_ms", "partitions"}
    entry = ran.partition
    assert entry.keys() == {*report.IDENTITY_FIELDS, *report.PLAN_FIELDS, *report.OUTCOME_FIELDS}
    assert entry.keys() >= CONTRACT
    assert all(segment.keys() == set(report.SEGMENT_FIELDS) for segment in entry["segments"])
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
        ("--config", "cleanup.policy=compakt", "neither compact nor delete"),
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
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleanup.policy = compact\nlog.cleaner.min.cleanable.ratio: 0.1\nnode.id=1\n")
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
        kcompact("plan", "--json", *COMPACT, directory).partition["notes"]
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
        "    0 + 3 -> 0, at most 419 B",
        "  checkpoint none -> 6",
    ]
