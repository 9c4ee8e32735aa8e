"""`groups`: its table, its JSON, and paths that have no groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kcompact.format.batch import Record, build
from tests.support import examples
from tests.support.command_line import CONTROL, flip, kcompact, partition
from tests.support.coordinator_keys import offset_key, offset_value

LOG = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return examples.build("groups", tmp_path / "logs")


def test_the_table(log_dir: Path) -> None:
    ran = kcompact("groups", log_dir)
    assert (ran.code, ran.err) == (0, "")
    header, *rows, blank, totals = ran.out.splitlines()
    assert header.split() == "group type partition members offsets tombstones records size live".split()
    assert [row.split()[:6] for row in rows] == [
        ["billing", "classic", "0", "1", "2", "0"],
        ["shipping", "consumer", "0", "1", "1", "0"],
        ["reports", "deleted", "0", "0", "0", "2"],
    ]
    assert blank == ""
    assert re.fullmatch(
        r"3 groups, 1 of them deleted: 3 live offsets, 2 tombstones, [\d.]+ KiB, \d+ B of it live", totals
    )


def test_json(log_dir: Path) -> None:
    entry = kcompact("groups", "--json", log_dir).partition
    assert (entry["topic"], entry["partition"], entry["error"], entry["exit_code"]) == (
        "__consumer_offsets",
        0,
        None,
        0,
    )
    assert [group["group"] for group in entry["groups"]] == ["billing", "shipping", "reports"]
    assert entry["groups"][0].keys() == {
        *("group", "type", "members", "offsets", "pending_offsets", "tombstones", "records", "size_bytes", "live_bytes")
    }
    assert (entry["undecoded_records"], entry["other_bytes"]) == (0, 0)


def test_a_group_whose_name_would_control_a_terminal(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-3"
    directory.mkdir()
    records = [Record(0, 1, offset_key("a\x1b[31m\u202eb"), offset_value(1)), Record(1, 1, b"\0\x63", b"")]
    (directory / LOG).write_bytes(build(records))
    ran = kcompact("groups", directory)
    assert not CONTROL.search(ran.out)
    assert "not decoded: 1 record, " in ran.out


def test_damage_of_one_partition_leaves_the_others(log_dir: Path) -> None:
    other = partition(log_dir, "log name=__consumer_offsets-1 now=10:00\n0: a=1")
    flip(log_dir / "__consumer_offsets-0" / LOG, 70)
    ran = kcompact("groups", "--json", log_dir)
    assert ran.code == 3
    damaged, sound = sorted(ran.json["partitions"], key=lambda entry: entry["partition"])
    assert (damaged["exit_code"], damaged["groups"], damaged["undecoded_records"]) == (3, [], None)
    assert "checksum" in damaged["error"]
    assert (sound["exit_code"], sound["undecoded_records"], sound["directory"]) == (0, 1, str(other))
    shown = kcompact("groups", log_dir)
    assert shown.code == 3
    assert "checksum" in shown.err


@pytest.mark.parametrize("name", ["__transaction_state-0", "orders-0"])
def test_a_partition_without_groups_is_refused(name: str, tmp_path: Path) -> None:
    ran = kcompact("groups", partition(tmp_path, f"log name={name} now=10:00\n0: a=1"))
    assert (ran.code, ran.out) == (4, "")
    assert "groups needs a partition of __consumer_offsets; there is none" in ran.err


def test_a_file_and_a_missing_path_are_refused(log_dir: Path) -> None:
    ran = kcompact("groups", log_dir / "__consumer_offsets-0" / LOG)
    assert (ran.code, ran.out) == (4, "")
    assert "needs a partition directory or a log directory" in ran.err
    missing = kcompact("groups", log_dir / "nothing", log_dir)
    assert missing.code == 4
    assert "no such directory" in missing.err
    assert "billing" in missing.out
