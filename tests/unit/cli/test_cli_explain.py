"""`plan --explain` and `plan --compare`: the same facts for people and for programs, and nothing else than facts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kcompact.plan.explanation import explain
from kcompact.plan.partition import plan_partition
from kcompact.views.explanations import rows_to_show
from tests.support import examples, log_dsl, log_writer
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    after_notes,
    digest,
    flip,
    kcompact,
    on_terminal,
    partition,
    settings,
)
from tests.support.log_values import log_of, planned, segment
from tests.support.many_partitions import write_many

CONDITION = {
    *("name", "value", "threshold", "verdict", "decides", "assumed", "explanation", "setting", "changes_at_ms", "how"),
}
BROKER = {
    *(
        "passes_at_most",
        "buffer_bytes",
        "threads",
        "load_factor",
        "keys_per_pass",
        "keys_at_most",
        "buffer_utilization",
    ),
    *("buffer_bytes_for_one_pass", "bytes_rewritten", "bytes_read_and_written", "seconds_throttled"),
}


def explained(*arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = kcompact("plan", "--explain", "--json", *COMPACT, *arguments).partition["explain"]
    return found


def test_the_fields(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=3"))
    before = digest(tmp_path)
    found = explained(directory)
    assert digest(tmp_path) == before
    assert found["decided_by"] == "min.cleanable.dirty.ratio"
    assert all(each.keys() == CONDITION for each in found["conditions"])
    assert [each["name"] for each in found["conditions"] if each["decides"]] == [found["decided_by"]]
    assert found["broker"].keys() == BROKER
    assert found["here"].keys() == {
        *("log_bytes_read", "bytes_written_at_most", "peak_extra_disk_bytes", "least_extra_disk_bytes")
    }
    ratio = next(each for each in found["conditions"] if each["decides"])
    assert (ratio["verdict"], ratio["threshold"]) == ("blocks", 0.5)
    assert found["change_by_setting"] == ratio["setting"]
    assert found["change_by_setting"]["makes_eligible"]
    assert found["changes_at_ms"] == found["forecasts"][0]["at_ms"]


def test_without_the_options_nothing_is_added(tmp_path: Path) -> None:
    ran = kcompact("plan", "--json", *COMPACT, partition(tmp_path))
    assert "explain" not in ran.partition
    assert "compare" not in {*ran.json, *ran.partition}


def test_text_and_json_say_the_same(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=3"))
    text = kcompact("plan", "--explain", *COMPACT, directory).out
    found = explained(directory)
    for condition in found["conditions"]:
        line = next(line for line in text.splitlines() if line.startswith(f"{condition['name']} "))
        assert condition["explanation"] in line
        assert (f" {condition['verdict']}, decides" in line) == condition["decides"]
    for forecast in found["forecasts"]:
        assert forecast["explanation"] in text
    setting = found["change_by_setting"]
    assert f"{setting['name']}=" in text
    buffer = found["broker"]["buffer_bytes_for_one_pass"]
    assert f"one pass is certain with log.cleaner.dedupe.buffer.size={buffer}" in text


def test_the_partition_with_most_keys_decides_about_the_buffer(tmp_path: Path) -> None:
    partition(tmp_path, settings("name=few-0", "log now=10:00\n0: a=1\n1: a=2"))
    partition(tmp_path, settings("name=many-0"))
    partition(tmp_path, settings("name=done-0 checkpoint=7"))
    ran = kcompact("plan", "--explain", "--json", *COMPACT, tmp_path)
    buffer = ran.json["buffer"]
    assert (Path(buffer["directory"]).name, buffer["keys_at_most"], buffer["keys_per_pass"]) == ("many-0", 6, 5_033_164)
    assert buffer["buffer_bytes_for_one_pass"] == (1 << 20) + 1
    text = kcompact("plan", "--explain", *COMPACT, tmp_path).out
    assert "\nbuffer of a broker: at most 6 keys in many-0, and the map is full at 5,033,164; one pass is " in text
    nothing = kcompact("plan", "--explain", "--json", *COMPACT, tmp_path / "done-0")
    assert nothing.json["buffer"] is None
    none_is_enough = ("--config", "log.cleaner.io.buffer.load.factor=1e-8")
    text = kcompact("plan", "--explain", *none_is_enough, *COMPACT, tmp_path).out
    assert "; no buffer is certain to be enough for one pass" in text


def test_an_active_segment_that_is_old_enough_waits_for_a_record(tmp_path: Path) -> None:
    text = "log now=10:00 checkpoint=1\n0: a=1\n1: a=2"
    found = kcompact("plan", "--explain", *COMPACT, "--config", "segment.ms=1", partition(tmp_path, text)).out
    assert "; it is old enough: a broker closes it when it appends the next record" in found
    assert (
        "on: the next record closes the active segment"
        in kcompact(
            *("plan", "--explain", *COMPACT, "--config", "segment.ms=1", "--config", "min.cleanable.dirty.ratio=0.1"),
            tmp_path,
        ).out
    )


def test_damage_is_a_condition_and_still_an_error(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / "00000000000000000006.log", 20)
    ran = kcompact("plan", "--explain", "--json", *COMPACT, directory)
    assert ran.code == 3
    assert ran.partition["explain"]["decided_by"] == "uncleanable"
    shown = kcompact("plan", "--explain", *COMPACT, directory)
    assert shown.code == 3
    assert "blocks, decides" in shown.out


def test_a_partition_without_a_plan_has_no_explanation(tmp_path: Path) -> None:
    (tmp_path / "logs" / "orders-0").mkdir(parents=True)
    partition(tmp_path / "logs", "log name=users-0 now=10:00\n0: a=1 a=2\n2: a=3")
    ran = kcompact(
        "plan", "--explain", "--compare", "min.cleanable.dirty.ratio=1", "--json", *COMPACT, tmp_path / "logs"
    )
    entries = {each["topic"]: each for each in ran.json["partitions"]}
    assert entries["users"]["explain"]["decided_by"] == "min.cleanable.dirty.ratio"
    assert all(entries[topic][name] is None for topic in entries if topic != "users" for name in ("explain", "compare"))


def test_compare(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=3"))
    options = ("--compare", "min.cleanable.dirty.ratio=0.1", "--compare", "delete.retention.ms=0")
    ran = kcompact("plan", "--json", *options, *COMPACT, directory)
    compared = ran.partition["compare"]
    assert (compared["today"]["reason"], compared["changed"]["reason"]) == ("below-ratio", "dirty-ratio")
    assert {"eligible", "reason", "groups", "delete_horizon_ms"} <= set(compared["differs"])
    assert ran.json["compare"]["settings"] == ["min.cleanable.dirty.ratio=0.1", "delete.retention.ms=0"]
    assert (ran.json["compare"]["today"]["to_clean"], ran.json["compare"]["changed"]["to_clean"]) == (0, 1)
    text = kcompact("plan", *options, *COMPACT, directory).out
    assert "1 partition of 1 would differ with min.cleanable.dirty.ratio=0.1, delete.retention.ms=0\n" in text
    quiet = kcompact("plan", "--quiet", *options, *COMPACT, directory).out
    assert quiet.splitlines()[0] in text
    # The plan itself is that of today, and so is the plan of the same settings passed with --config.
    assert ran.partition["reason"] == "below-ratio"
    passed = kcompact("plan", "--json", *COMPACT, "--config", "min.cleanable.dirty.ratio=0.1", directory)
    assert passed.partition["groups"] != []
    assert len(passed.partition["groups"]) == compared["changed"]["groups"]


def test_no_setting_of_a_topic_holds_for_the_metadata_log(tmp_path: Path) -> None:
    directory = partition(tmp_path, DIRTY.replace("now=10:00", "now=10:00 name=__cluster_metadata-0", 1))
    ran = kcompact("plan", "--explain", "--json", "--compare", "segment.ms=1", *COMPACT, directory)
    assert ran.partition["compare"] is None
    explained = ran.partition["explain"]
    assert [each["name"] for each in explained["conditions"]] == ["uncleanable", "internal-topic"]
    assert "--include-internal" not in explained["conditions"][1]["explanation"]
    assert (explained["forecasts"], explained["change_by_setting"]) == ([], None)


def test_an_empty_policy_has_a_name(tmp_path: Path) -> None:
    text = kcompact("plan", "--compare", "cleanup.policy=", *COMPACT, partition(tmp_path)).out
    assert text.splitlines()[1].split() == ["orders-0", "cleanup.policy", "compact", "none"]


def test_compare_settings_of_the_broker(tmp_path: Path) -> None:
    """They change no verdict, but what a broker does."""
    directory = partition(tmp_path)
    for setting, field, changed in (
        ("log.cleaner.enable=false", "decided_by", "log.cleaner.enable"),
        ("log.cleaner.io.max.bytes.per.second=4", "kafka_seconds_throttled", 314.25),
        ("segment.ms=60000", "rolls_from_ms", 1704099660001),
    ):
        ran = kcompact("plan", "--json", "--compare", setting, *COMPACT, directory)
        assert field in ran.partition["compare"]["differs"]
        assert ran.partition["compare"]["changed"][field] == changed


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("min.cleanable.ratio=1", "--compare: 'min.cleanable.ratio' is neither a topic setting nor a broker setting"),
        ("nothing", "--compare: 'nothing' is not [TOPIC:]NAME=VALUE"),
        ("min.cleanable.dirty.ratio=2", "min.cleanable.dirty.ratio: '2' must be between 0 and 1"),
    ],
)
def test_a_wrong_setting_to_compare(option: str, problem: str, tmp_path: Path) -> None:
    ran = kcompact("plan", "--compare", option, *COMPACT, partition(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err


def test_settings_without_effect_are_noted(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = kcompact("plan", "--compare", "compression.type=zstd", "--compare", "segment.ms=1", *COMPACT, directory)
    no_effect = "has no effect: cleaning does not depend on this setting"
    assert ran.complaints == f"note: --compare compression.type=zstd {no_effect}\n"
    unused = f"note: --config segment.ms=1 {no_effect}\n"
    assert kcompact("plan", "--config", "segment.ms=1", *COMPACT, directory).complaints == unused
    assert kcompact("plan", "--explain", "--config", "segment.ms=1", *COMPACT, directory).complaints == ""


def test_many_partitions_have_a_row_each(tmp_path: Path) -> None:
    logs = examples.build("why-not", tmp_path / "logs")
    ran = kcompact("plan", "--explain", *COMPACT, logs)
    rows = [line.split() for line in ran.out.split("\n\n")[1].splitlines()[1:]]
    described = json.loads(kcompact("plan", "--explain", "--json", *COMPACT, logs).out)["partitions"]
    decided = {Path(each["directory"]).name: each["explain"]["decided_by"] for each in described}
    assert {row[0] for row in rows} == set(decided)
    assert all(decided[row[0]] in row for row in rows)
    sizes = ran.out.split("\n\n")[0].splitlines()
    assert sum(int(line.split()[2]) for line in sizes[1:]) == len(rows)
    reasons = kcompact("plan", "--explain", "--json", *COMPACT, logs).json["reasons"]
    assert [each["reason"] for each in reasons] == [line.split()[0] for line in sizes[1:]]
    assert sum(each["size_bytes"] for each in reasons) == sum(
        segment["size_bytes"] for each in described for segment in each["segments"]
    )
    verbose = kcompact("plan", "--explain", "-v", *COMPACT, logs).out
    assert verbose.count("\ncleanup.policy ") == len(rows)


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    partition(tmp_path)
    (tmp_path / "orders-0.bak").mkdir()
    assert "\nleft out: 1 directory" in kcompact("plan", "--explain", *COMPACT, tmp_path).out


def test_both_options_print_both(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=3"))
    compared = ("--compare", "min.cleanable.dirty.ratio=0.1")
    both = kcompact("plan", "--explain", *compared, *COMPACT, directory).out
    assert both.endswith("\n\n" + kcompact("plan", *compared, *COMPACT, directory).out)
    assert "blocks, decides" in both
    quiet = kcompact("plan", "--explain", "--quiet", *COMPACT, directory).out
    assert quiet == kcompact("plan", "--quiet", *COMPACT, directory).out


def test_the_next_command_does_not_explain(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = kcompact("plan", "--explain", *COMPACT, directory)
    assert "--explain" not in ran.out.splitlines()[-1]


def test_costs_bound_what_a_dry_run_counts(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    cost = explained(directory)["here"]
    ran = kcompact("clean", "--dry-run", "--engine", "in-process", "--json", *COMPACT, directory)
    assert ran.partition["bytes_written"] <= cost["bytes_written_at_most"]
    assert ran.partition["bytes_read"] + ran.partition["map_bytes_read"] == cost["log_bytes_read"]


def test_explain_is_offered_to_programs(tmp_path: Path) -> None:
    spec = log_dsl.parse("log now=10:00\n0: a=1 a=2\n2: a=3")
    plan = plan_partition(log_writer.write(spec, tmp_path), spec.config, now_ms=spec.now_ms)
    assert explain(plan).decisive.decides


SCREEN = 24
"""The lines of the terminals of `on_terminal`."""


@pytest.mark.long
def test_many_partitions_fit_on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path / "logs", one_in=8)
    monkeypatch.chdir(tmp_path)
    # Broken lines, the hint and the errors come on top of a screen.
    for width, lines in on_terminal((100,), "plan", "--explain", *COMPACT, "logs").items():
        report = after_notes(lines[: next(n for n, line in enumerate(lines) if line.startswith("next: ")) + 1])
        assert len(report) <= SCREEN + 8, report
        assert max(map(len, report[:-1])) <= width
        assert any(line.endswith(" of them to clean; -v explains each, --json has all") for line in report)
        assert any(line.startswith("orders-0 ") and "now" in line for line in report)
    compared = ("--compare", "min.cleanable.dirty.ratio=0.1")
    for lines in on_terminal((100,), "plan", *compared, *COMPACT, "logs").values():
        report = after_notes(lines[: next(n for n, line in enumerate(lines) if "would differ" in line) + 4])
        assert len(report) <= SCREEN
        assert any(line.endswith(" more; -v lists them") for line in report)


@pytest.mark.parametrize(
    ("to_clean", "others", "most", "expected"),
    [
        (2, 3, 5, (2, 3)),
        (9, 9, 6, (3, 3)),
        (9, 9, 5, (3, 2)),
        (9, 1, 6, (5, 1)),
        (1, 9, 6, (1, 5)),
        (0, 9, 6, (0, 6)),
        (9, 0, 6, (6, 0)),
    ],
)
def test_the_rows_are_shared(to_clean: int, others: int, most: int, expected: tuple[int, int]) -> None:
    """The first of those to clean and the largest of the others, however many of one kind there are."""
    dirty = [explain(planned(log_of(segment(0), segment(100)))) for _ in range(to_clean)]
    clean = [explain(planned(log_of(segment(0, number), segment(100), checkpoint=100))) for number in range(others)]
    rows = rows_to_show([*dirty, *clean], most)
    assert rows == [*dirty[: expected[0]], *reversed(clean[others - expected[1] :])]


@pytest.mark.parametrize(
    ("words", "options", "reason"),
    [
        ("hw=7", ("--config", "min.compaction.lag.ms=9223372036854775807"), "min-compaction-lag"),
        ("hw=2", (), "high-watermark"),
        ("unclean recovery=0 hw=7", ("--unclean",), "recovery-point"),
    ],
)
def test_what_can_be_won_later(words: str, options: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    for number in range(4):
        partition(tmp_path, settings(f"{words} name=orders-{number}"))
    arguments: tuple[str | Path, ...] = ("plan", "--explain", *COMPACT, *options, tmp_path)
    (held_back,) = kcompact(*arguments, "--json").json["reasons"]
    assert (held_back["reason"], held_back["bytes_to_win_at_most"]) == (reason, 0)
    assert held_back["bytes_to_win_later_at_most"] == 4 * 419  # The closed segments.
    assert re.search(rf"^{reason} +no +4 +1.9 KiB +1.6 KiB later$", kcompact(*arguments).out, re.MULTILINE)


def test_only_what_is_held_back_is_won_later(tmp_path: Path) -> None:
    write_many(tmp_path / "logs", one_in=20)
    reasons = kcompact("plan", "--explain", "--json", *COMPACT, tmp_path / "logs").json["reasons"]
    later = {each["reason"] for each in reasons if each["bytes_to_win_later_at_most"]}
    assert later == {"high-watermark"}
