"""`keys`: its JSON and text, its options, and what it counts of a damaged or growing log."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.json.keys import COUNTS
from kcompact.cli.json.partitions import ERROR, IDENTITY
from kcompact.keys import count
from kcompact.keys.count import count_keys
from kcompact.log import settled
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    LOG0,
    LOG3,
    LOG6,
    digest,
    flip,
    kcompact,
    note_texts,
    on_terminal,
    partition,
    running_broker,
)

KEYS = ("keys", *COMPACT)
SHOWN = {each: hashlib.sha256(each.encode()).hexdigest()[:16] for each in "abcd"}


def keys_of(*arguments: str | Path) -> dict[str, Any]:
    """Return the keys of the only partition."""
    found: dict[str, Any] = kcompact(*KEYS, "--json", *arguments).partition["keys"]
    return found


def counts_in(fields: dict[str, Any]) -> dict[str, int]:
    """Return the counts that are not zero, without bytes."""
    return {name: fields[name] for name in COUNTS.names if fields[name] and not name.endswith("_bytes")}


def test_json_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = kcompact(*KEYS, "--json", tmp_path)
    assert (ran.code, ran.err, digest(tmp_path)) == (0, "", before)
    assert ran.json.keys() == {"version", "command", "now_ms", "notes", "partitions", "left_out", "topics"}
    entry = ran.partition
    assert entry.keys() == IDENTITY.names | ERROR.names | {"keys", "notes"}
    keys = entry["keys"]
    assert keys.keys() >= COUNTS.names
    assert counts_in(keys) == {
        "records": 7,
        "data_records": 7,
        "live_keys": 3,
        "superseded_records": 3,
        "latest_tombstones": 1,
        "unstamped_tombstones": 1,
        "batches": 7,
    }
    assert (keys["distinct_keys"], keys["duplicate_factor"]) == (4, 1.75)
    assert (keys["log_start_offset"], keys["committed_end_offset"], keys["counted_to_offset"]) == (0, 7, 7)
    assert {role: counts_in(counts) for role, counts in keys["sections"].items()} == {
        "dirty": {
            "records": 6,
            "data_records": 6,
            "live_keys": 2,
            "superseded_records": 3,
            "latest_tombstones": 1,
            "unstamped_tombstones": 1,
            "batches": 6,
        },
        "active": {"records": 1, "data_records": 1, "live_keys": 1, "batches": 1},
    }
    assert [(each["base_offset"], each["role"]) for each in keys["segments"]] == [
        *((0, "dirty"), (3, "dirty"), (6, "active"))
    ]
    assert keys["versions"] == [
        {"least": 1, "most": 1, "keys": 2, "records": 2},
        {"least": 2, "most": 3, "keys": 2, "records": 5},
    ]
    assert (keys["old_keys"], keys["oldest"], keys["prefixes"]) == (None, [], None)
    (topic,) = ran.json["topics"]
    assert (topic["topic"], topic["directories"]) == ("orders", [str(directory)])
    assert (topic["distinct_keys"], topic["keys_in_several_partitions"]) == (4, 0)


def test_keys_are_hashed_unless_data_is_asked_for(tmp_path: Path) -> None:
    partition(tmp_path)
    (most, *_) = keys_of(tmp_path)["most_versions"]
    assert most == {
        "key_sha256": SHOWN["a"],
        "versions": 3,
        "bytes": 27,
        "latest_offset": 6,
        "latest_timestamp_ms": 1704099600000,
        "latest_bytes": 9,
        "is_tombstone": False,
    }
    shown = keys_of("--print-data", tmp_path)["most_versions"]
    assert [each["key"] for each in shown] == ["a", "b", "c", "d"]
    text = kcompact(*KEYS, tmp_path).out
    assert SHOWN["a"] in text
    assert "\na " not in text
    assert "\na " in kcompact(*KEYS, "--print-data", tmp_path).out


def test_a_key_that_is_no_text_is_shown_safely(tmp_path: Path) -> None:
    partition(tmp_path, 'log now=10:00\n0: "\x1b[31m"=1')
    assert "\x1b" not in kcompact(*KEYS, "--print-data", tmp_path).out


def test_a_long_key_makes_no_line_long_and_an_empty_one_is_seen(tmp_path: Path) -> None:
    partition(tmp_path, f'log now=10:00\n0: {"k" * 5000}=1 ""=1')
    lines = kcompact(*KEYS, "--print-data", tmp_path).out.splitlines()
    assert max(map(len, lines)) < 200
    assert any(line.startswith("k" * 80 + "... (4,920 more)") for line in lines)
    assert any(line.startswith("(empty)") for line in lines)
    assert {"k" * 5000, ""} == {each["key"] for each in keys_of("--print-data", tmp_path)["most_bytes"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--top", "1"], {"most_versions": [SHOWN["a"]], "oldest": []}),
        (["--top", "0"], {"most_versions": [], "most_bytes": []}),
        (["--older-than", "30m"], {"old_keys": 3, "old_keys_bytes": 27, "oldest": ["b", "c", "a"]}),
        (["--older-than", "2h"], {"old_keys": 0, "old_keys_bytes": 0, "oldest": []}),
        (["--older-than", "1h"], {"old_keys": 0}),
        (["--older-than", "3599999ms"], {"old_keys": 3}),
    ],
)
def test_lists(arguments: list[str], expected: dict[str, Any], tmp_path: Path) -> None:
    partition(tmp_path)
    keys = keys_of(*arguments, tmp_path)
    for name, value in expected.items():
        found = keys[name]
        if isinstance(found, list):
            found, value = [each["key_sha256"] for each in found], [SHOWN.get(each, each) for each in value]
        assert found == value, name


def test_prefixes(tmp_path: Path) -> None:
    partition(tmp_path, 'log now=10:00\n0: "u:1"=1 "u:2"=22 "u:1"=3 "o:1"=4 plain=5\n5: "o:1"=~')
    found = keys_of("--prefix", ":", "--print-data", tmp_path)["prefixes"]
    assert (found["separator"], found["count"], found["is_complete"]) == (":", 3, True)
    rows = [(each["prefix"], each["keys"], each["records"], each["live_keys"]) for each in found["most_records"]]
    assert rows == [("u", 2, 3, 2), ("o", 1, 2, 0), (None, 1, 1, 1)]
    hashed = keys_of("--prefix", ":", tmp_path)["prefixes"]["most_bytes"]
    assert [each["prefix_sha256"] for each in hashed] == [
        *(hashlib.sha256(b"u").hexdigest()[:16], hashlib.sha256(b"o").hexdigest()[:16], None)
    ]
    assert "(no separator)" in kcompact(*KEYS, "--prefix", ":", tmp_path).out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--spark-conf", "a"], "'a' is not NAME=VALUE"),
        (["--older-than", "3"], "'3' has no unit: 3d, 3h or 3m"),
        (["--older-than", "9999999999d"], "more than 8000 years"),
        (["--prefix", ""], "the separator is empty"),
        (["--top", "-1"], "--top"),
    ],
)
def test_command_lines_that_are_refused(arguments: list[str], problem: str, tmp_path: Path) -> None:
    ran = kcompact("keys", *arguments, partition(tmp_path))
    assert ran.code == 2
    assert problem in ran.err


def test_settings_of_spark_without_spark_and_single_files_are_refused(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = kcompact(*KEYS, "--engine", "in-process", "--master", "local[1]", directory)
    assert (ran.code, "in-process does not use a Spark master" in ran.err) == (2, True)
    ran = kcompact(*KEYS, directory / LOG0)
    assert (ran.code, "keys needs a partition directory" in ran.err) == (4, True)
    ran = kcompact(*KEYS, "--json", directory, directory / LOG0)
    assert ran.code == 4
    assert [(each["directory"], bool(each["keys"])) for each in ran.json["partitions"]] == [
        (str(directory), True),
        (str(directory / LOG0), False),
    ]


def test_a_damaged_log_is_counted_up_to_the_damage(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / LOG3, -1)
    ran = kcompact(*KEYS, "--json", tmp_path)
    assert ran.code == 3
    assert f"{LOG3}, position 140, offset 5" in ran.err
    keys = ran.partition["keys"]
    assert (keys["counted_to_offset"], keys["live_keys"], keys["records"]) == (5, 3, 5)
    assert "counted up to offset 5" in kcompact(*KEYS, tmp_path).out


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_spoils_no_count(suffix: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, DIRTY.replace("log ", "log index.interval.bytes=0 "))
    expected = keys_of(tmp_path)
    flip((directory / LOG0).with_suffix(suffix), -1, 0x55)
    ran = kcompact(*KEYS, "--json", tmp_path)
    assert counts_in(ran.partition["keys"]) == counts_in(expected)


def test_a_damaged_snapshot_leaves_open_transactions_undecided(tmp_path: Path) -> None:
    text = "log now=10:00\n0: a=1 [a=2 b=2](pid=7 epoch=0 seq=0 txn) b=3\nsnapshot 4: pid=7 epoch=0 seq=1 last=2"
    directory = partition(tmp_path, text)
    flip(directory / f"{4:020d}.snapshot", -1)
    ran = kcompact(*KEYS, "--json", tmp_path)
    keys = ran.partition["keys"]
    assert (ran.code, keys["committed_end_offset"], counts_in(keys)["undecided_records"]) == (3, 1, 3)


def test_one_partition_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    partition(tmp_path)
    bad = partition(tmp_path, DIRTY.replace("log ", "log name=orders-1 "))
    (bad / LOG0).unlink()
    (bad / LOG0).symlink_to("/dev/null")
    ran = kcompact(*KEYS, "--json", tmp_path, tmp_path / "missing")
    assert ran.code != 0
    found = {Path(each["directory"]).name: each for each in ran.json["partitions"]}
    assert counts_in(found["orders-0"]["keys"])["live_keys"] == 3
    assert (found["orders-1"]["keys"], found["missing"]["keys"]) == (None, None)
    assert found["orders-1"]["error"]
    assert ran.json["topics"][0]["incomplete"] == [str(bad)]
    ran = kcompact(*KEYS, tmp_path)
    assert f"orders-1  {bad}\n  not counted: {bad / LOG0}: " in ran.out
    assert "orders  1 of 2 partitions" in ran.out
    assert "  incomplete: orders-1 could not be counted" in ran.out


def test_the_sums_of_a_topic_name_a_partition_that_was_counted_up_to_its_damage(tmp_path: Path) -> None:
    partition(tmp_path)
    bad = partition(tmp_path, DIRTY.replace("log ", "log name=orders-1 "))
    flip(bad / LOG3, -1)
    assert kcompact(*KEYS, "--json", tmp_path).json["topics"][0]["incomplete"] == [str(bad)]
    assert "  incomplete: orders-1 could not be counted, or only up to the damage" in kcompact(*KEYS, tmp_path).out


def test_keys_of_several_partitions_are_named_and_copies_are_counted_apart(tmp_path: Path) -> None:
    for name, text in (("orders-0", "0: a=1 b=2"), ("orders-1", "0: c=1 a=~"), ("users-0", "0: a=1")):
        partition(tmp_path / "logs", f"log now=10:00 name={name}\n{text}")
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    topics = kcompact(*KEYS, "--print-data", "--json", tmp_path / "logs", tmp_path / "copy").json["topics"]
    assert [topic["topic"] for topic in topics] == ["orders", "users", "orders", "users"]
    for topic, base in ((topics[0], "logs"), (topics[2], "copy")):
        assert (topic["distinct_keys"], topic["keys_in_several_partitions"]) == (3, 1)
        (shared,) = topic["most_shared"]
        assert (shared["key"], shared["versions"]) == ("a", 2)
        assert shared["directories"] == [str(tmp_path / base / name) for name in ("orders-0", "orders-1")]
    text = kcompact(*KEYS, tmp_path / "logs").out
    assert "1 key in several partitions" in text


@pytest.mark.parametrize("command", ["keys", "gaps", "transactions"])
def test_where_nothing_counts_as_replicated_the_output_says_why(command: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    note = "replication-offset-checkpoint has no entry for this partition"
    assert note not in kcompact(command, *COMPACT, directory).out
    partition(tmp_path, "log name=users-0 hw=1\n0: a=1")  # Its entry is the only one of the checkpoint.
    ran = kcompact(command, *COMPACT, directory)
    assert f"  note: {note}, so no record counts as replicated; pass --high-watermark leo" in ran.out
    shown = {"keys": "see the log up to offset 0; the high watermark is 0, the log end 7", "gaps": "a consumer"}
    assert shown.get(command, "0, the high watermark: no transaction holds it back; the log ends at 7") in ran.out
    assert note not in kcompact(command, "--high-watermark", "leo", *COMPACT, directory).out


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_PAUSES_S", (0, 0, 0))


@pytest.mark.usefixtures("no_pauses")
def test_beside_a_running_broker(tmp_path: Path) -> None:
    directory = partition(tmp_path, DIRTY.replace("log ", "log unclean hw=7 "))
    with (directory / LOG6).open("ab") as file:
        file.write(bytes(11) + b"\1")  # A batch that the broker is writing.
    with running_broker(tmp_path):
        ran = kcompact(*KEYS, "--json", directory)
    assert (ran.code, counts_in(ran.partition["keys"])["live_keys"]) == (0, 3)
    assert "a broker is running on" in note_texts(ran.json)[0]


@pytest.mark.usefixtures("no_pauses")
def test_a_segment_that_a_running_broker_replaces_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path, DIRTY.replace("log ", "log unclean hw=7 "))
    counted: list[int] = []

    def replacing(*arguments: Any, **options: Any) -> Any:
        if not counted:
            content = (directory / LOG0).read_bytes()
            (directory / LOG0).unlink()
            (directory / LOG0).write_bytes(content)
        counted.append(1)
        return real(*arguments, **options)

    real = count_keys
    monkeypatch.setattr(count, "count_keys", replacing)
    with running_broker(tmp_path):
        ran = kcompact(*KEYS, "--json", directory)
    assert (ran.code, len(counted), counts_in(ran.partition["keys"])["records"]) == (0, 2, 7)


def test_a_small_log_loads_no_compiler_and_no_spark(tmp_path: Path) -> None:
    partition(tmp_path)
    program = (
        "import sys; from kcompact.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyspark', 'py4j', 'numba', 'llvmlite', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *KEYS, "--json", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stderr.strip().endswith("[]")
    assert json.loads(ran.stdout)["partitions"][0]["keys"]["live_keys"] == 3


def test_on_a_narrow_terminal(tmp_path: Path) -> None:
    partition(tmp_path)
    shown = on_terminal([40, 80], *KEYS, "--older-than", "1m", "--prefix", ":", tmp_path)
    for width, lines in shown.items():
        assert any("7 records, 4 keys (3 live)" in line for line in lines)
        assert sum(SHOWN["a"] in line and len(line) <= width for line in lines) == 3
