"""Notes and hints on a whole run: once for all partitions, on standard error and in the JSON."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.command_line import (
    COMPACT,
    NOW,
    clean,
    digest,
    kcompact,
    note_texts,
    partition,
    server_properties,
    settings,
)

POLICY = ("--config", "cleanup.policy=compact")
COMMANDS = (("plan",), ("inspect",), ("clean", "--dry-run", "--engine", "in-process"))


def names(log_dir: Path, *topics: str) -> Path:
    """Make a log directory with a dirty partition of each topic."""
    for topic in topics:
        partition(log_dir, settings(f"lone name={topic}-0"))
    return log_dir


# The time


def notes_at(now: str | None, log_dir: Path) -> list[str]:
    """Return the notes of a run at a time. Every command has the same, once, in its JSON and on standard error."""
    found = []
    option = () if now is None else ("--now", now)
    for command in COMMANDS:
        ran = kcompact(*command, "--json", *POLICY, *option, log_dir)
        assert ran.code == 0
        notes = ran.notes
        told = [line.removeprefix("note: ") for line in ran.complaints.splitlines() if line.startswith("note: ")]
        assert [note for note in told if "running as root" not in note] == notes
        text = kcompact(*command, *POLICY, *option, log_dir)
        # The clock goes on between the commands.
        assert sum(line.startswith(("note: --now", "note: the clock")) for line in text.err.splitlines()) == len(notes)
        found.append(notes)
    assert {len(notes) for notes in found} == {len(found[0])}
    return list(found[0])


def test_a_time_before_the_newest_segment(tmp_path: Path) -> None:
    (note,) = notes_at("2023-06-01T00:00:00Z", names(tmp_path, "orders", "users"))
    assert note == (
        "--now is 2023-06-01T00:00:00Z, but the newest segment of users-0 has the time 2024-01-01T09:00:00Z: "
        "segments count as too young, and new delete horizons end too early"
    )
    assert notes_at("2024-01-01T09:00:00Z", tmp_path) == []
    assert notes_at(NOW, tmp_path) == []


def test_a_time_ahead_of_the_clock(tmp_path: Path) -> None:
    names(tmp_path, "orders", "users")
    for ahead, noted in ((timedelta(hours=23), False), (timedelta(hours=25), True)):
        moment = (datetime.now(UTC) + ahead).strftime("%Y-%m-%dT%H:%M:%SZ")
        notes = notes_at(moment, tmp_path)
        assert [note.startswith(f"--now is {moment}, more than a day after the clock's") for note in notes] == (
            [True] if noted else []
        )


def test_a_clock_that_is_slow(tmp_path: Path) -> None:
    names(tmp_path, "orders", "users")
    log = tmp_path / "orders-0" / "00000000000000000003.log"
    tomorrow = time.time() + 86_400
    os.utime(log, (tomorrow, tomorrow))
    (note,) = notes_at(None, tmp_path)
    assert note.startswith("the clock says 20")
    assert "the newest segment of orders-0 was written at 20" in note
    before = digest(tmp_path)
    clean = ("clean", "--engine", "in-process", "--yes", "--config", "cleanup.policy=compact", "--force")
    refused = kcompact(*clean, tmp_path)
    assert (refused.code, "Set the clock, or give the time: --now TIME" in refused.err) == (4, True)
    assert digest(tmp_path) == before
    assert kcompact(*clean, "--dry-run", tmp_path).code == 0
    os.utime(log)
    assert notes_at(None, tmp_path) == []


@pytest.mark.parametrize(("now", "doubts"), [("2023-06-01T00:00:00Z", 1), (NOW, 0)])
def test_the_question_starts_with_the_doubt(
    now: str, doubts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    monkeypatch.setattr("kcompact.cli.consent.is_needed", lambda *_, **__: True)
    ran = kcompact("clean", "--engine", "in-process", *POLICY, "--now", now, directory)
    assert ran.code == 130
    above, question, _ = ran.err.partition("Clean 1 partition")
    assert question
    assert above.count("note: --now is ") == doubts
    assert above.rstrip().splitlines()[-1:] != [] or not doubts
    assert digest(tmp_path) == before


# Settings without effect


def test_settings_without_effect_are_noted(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    unused = ("compression.type=zstd", "orders:max.message.bytes=9", "num.io.threads=8", "log.cleaner.backoff.ms=1")
    options = [word for setting in unused for word in ("--config", setting)]
    for command in COMMANDS:
        ran = kcompact(*command, "--json", *COMPACT, *options, directory)
        assert (ran.code, ran.partition["reason"]) == (0, "dirty-ratio")
        assert ran.notes == [
            f"--config {setting} has no effect: cleaning does not depend on this setting" for setting in unused
        ]
    used = ("log.cleaner.enable=true", "orders:segment.bytes=2000000", "log.cleaner.threads=1", "retention.ms=9")
    options = [word for setting in used for word in ("--config", setting)]
    assert kcompact("plan", "--json", *COMPACT, *options, directory).notes == []


def test_names_in_server_properties_that_look_wrong(tmp_path: Path) -> None:
    names(tmp_path / "logs", "orders", "users")
    wrong = "log.cleaner.min.cleanable.rato=0.1\nlog.cleanup.polcy=compact\nvendor.x=1"
    file = server_properties(tmp_path / "logs", text=wrong)
    ran = kcompact("plan", "--json", "--broker-config", file, *COMPACT, tmp_path / "logs")
    assert (ran.code, note_texts(ran.json)) == (
        0,
        [
            "log.cleaner.min.cleanable.rato of --broker-config has no effect: Kafka has no such setting; "
            "did you mean log.cleaner.min.cleanable.ratio?",
            "log.cleanup.polcy of --broker-config has no effect: Kafka has no such setting; "
            "did you mean log.cleanup.policy?",
        ],
    )


# Topics


def test_topic_is_repeatable(tmp_path: Path) -> None:
    names(tmp_path, "orders", "users", "payments")
    for patterns, expected in (
        (["orders"], ["orders"]),
        (["orders", "users"], ["orders", "users"]),
        (["u*", "pay*", "nothing"], ["payments", "users"]),
        ([], ["orders", "payments", "users"]),
    ):
        options = [word for pattern in patterns for word in ("--topic", pattern)]
        for command in COMMANDS:
            ran = kcompact(*command, "--json", *COMPACT, *options, tmp_path)
            assert (ran.code, sorted(entry["topic"] for entry in ran.json["partitions"])) == (0, expected)
    ran = kcompact("plan", "--topic", "a*", "--topic", "b*", tmp_path)
    assert (ran.code, "no partition of a topic that matches 'a*' or 'b*'" in ran.err) == (4, True)


# Hints


def hints_of(*arguments: str | Path) -> list[str]:
    ran = kcompact(*arguments)
    return [line.removeprefix("hint: ") for line in ran.out.splitlines() if line.startswith("hint: ")]


def test_an_unknown_policy_has_a_hint(tmp_path: Path) -> None:
    one = "If the topic is compacted, pass --config orders:cleanup.policy=compact"
    partition(tmp_path, settings("lone name=orders-0"))
    partition(tmp_path, settings("lone name=orders-1"))
    assert hints_of("plan", "--now", NOW, tmp_path) == [one]
    entries = kcompact("plan", "--json", "--now", NOW, tmp_path).json["partitions"]
    assert [(entry["hint"], entry["error"]) for entry in entries] == [(one, None)] * 2
    names(tmp_path, "a", "b", "c", "d", "e", "f")
    assert hints_of("plan", "--now", NOW, tmp_path) == [
        "The cleanup.policy of 7 topics is unknown: a, b, c, d, e and 2 more. "
        "For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact"
    ]
    assert hints_of("plan", *COMPACT, tmp_path) == []
    # The errors of `clean` have the hint.
    assert hints_of("clean", "--dry-run", "--engine", "in-process", "--now", NOW, tmp_path) == []


def test_internal_topics_have_a_hint(tmp_path: Path) -> None:
    names(tmp_path, "orders", "__consumer_offsets", "__transaction_state")
    hint = ["Not cleaned: 2 partitions of Kafka's internal topics. Pass --include-internal to clean them too."]
    for command in (("plan",), ("clean", "--dry-run", "--engine", "in-process")):
        assert hints_of(*command, *COMPACT, tmp_path) == hint
        assert hints_of(*command, *COMPACT, "--include-internal", tmp_path) == []
    for command in COMMANDS:
        for options, expected in (((), "internal"), (("--include-internal",), "dirty-ratio")):
            entries = kcompact(*command, "--json", *COMPACT, *options, tmp_path).json["partitions"]
            reasons = {entry["topic"]: (entry["reason"], entry["hint"]) for entry in entries}
            pass_it = "Pass --include-internal to clean it." if not options else None
            assert reasons["__consumer_offsets"] == (expected, pass_it)
            assert reasons["orders"] == ("dirty-ratio", None)


@pytest.mark.parametrize(
    ("topic", "if_included"), [("__cluster_metadata", "internal"), ("__share_group_state", "policy-delete")]
)
def test_internal_topics_that_kafka_does_not_compact(topic: str, if_included: str, tmp_path: Path) -> None:
    names(tmp_path, topic)
    entry = kcompact("plan", "--json", "--now", NOW, tmp_path).partition
    assert (entry["reason"], entry["hint"]) == ("internal", "Kafka does not compact this topic.")
    assert kcompact("plan", "--json", "--now", NOW, "--include-internal", tmp_path).partition["reason"] == if_included
    assert hints_of("plan", "--now", NOW, tmp_path) == []


def test_internal_topics_are_cleaned_as_planned(tmp_path: Path) -> None:
    names(tmp_path, "__consumer_offsets")
    assert clean(tmp_path).partition["status"] == "skipped"
    assert clean("--include-internal", tmp_path).partition["status"] == "cleaned"
