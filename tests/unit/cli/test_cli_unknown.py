"""What was not measured is null in the JSON, not 0; what was counted is a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import checkout
from kcompact.cleaner.journal import read_journal
from tests.support.command_line import COMPACT, DIRTY, LOG0, clean, flip, kcompact, partition, settings

pytestmark = pytest.mark.usefixtures("no_sync")

COUNTED_BY_A_CLEANING = (
    *("end_offset", "bytes_read", "bytes_written", "messages_read", "messages_written", "map_bytes_read", "map_keys"),
    *("invalid_messages", "kafka_passes_at_least", "engine", "elapsed_s"),
)


def seen(command: str, path: Path) -> dict[str, Any]:
    return kcompact(command, "--json", *COMPACT, path).partition


def test_a_copy_of_what_is_not_cleaned_has_no_counts(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs", settings("checkpoint=6"))
    entry = clean("--output", tmp_path / "out", directory).partition
    assert entry["status"] == "copied"
    assert {entry[name] for name in COUNTED_BY_A_CLEANING} == {None}


def test_records_that_no_header_counts(tmp_path: Path) -> None:
    """The header of a compressed batch of format 1 does not say how many records it has."""
    log_dir = checkout.copy_directory("legacy", "before", tmp_path / "logs")
    headers, verified = (seen(command, log_dir) for command in ("inspect", "verify"))
    unknown = [each["base_offset"] for each in headers["segments"] if each["records"] is None]
    assert unknown
    counts = {each["base_offset"]: each["records"] for each in verified["segments"]}
    assert all(counts[base] > 0 for base in unknown)
    assert all(each["records"] in (None, counts[each["base_offset"]]) for each in headers["segments"])


def test_a_topic_without_a_counted_partition_has_no_sums(tmp_path: Path) -> None:
    found = kcompact("keys", "--json", *COMPACT, damaged_at_once(tmp_path)).json
    assert found["partitions"][0]["keys"] is None
    (topic,) = found["topics"]
    assert (topic["directories"], len(topic["incomplete"])) == ([], 1)
    assert {topic[name] for name in ("records", "live_keys_bytes", "distinct_keys", "most_shared")} == {None}


def damaged_at_once(log_dir: Path) -> Path:
    """Return a partition of which nothing can be planned or counted."""
    directory = partition(log_dir)
    (directory / f"{LOG0}.swap").write_bytes(b"")
    (directory / LOG0).unlink()
    (directory / LOG0).mkdir()
    return directory


def test_a_failed_recovery_and_a_failed_restore(tmp_path: Path) -> None:
    (failed,) = kcompact("recover", "--json", tmp_path / "absent-0").json["partitions"]
    assert failed["status"] == "failed"
    assert {failed[name] for name in ("finished", "removed_staging", "left_behind", "only_copies")} == {None}
    partition(tmp_path / "logs", DIRTY)
    assert clean("--keep-replaced", tmp_path / "kept", tmp_path / "logs").code == 0
    flip(tmp_path / "kept" / "orders-0" / LOG0, -1)
    (failed,) = kcompact("restore", "--json", tmp_path / "kept").json["partitions"]
    assert failed["status"] == "failed"
    assert {failed[name] for name in ("files", "size_bytes", "not_restored")} == {None}


def test_the_journal_of_a_deletion_has_no_counts(tmp_path: Path) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"
    policy = ("--config", "cleanup.policy=delete", "--config", "retention.ms=1")
    ran = clean("--apply-retention", "--journal", journal, *policy, directory)
    assert ran.partition["status"] == "deleted", ran
    _, end = read_journal(journal)
    assert end is not None
    assert (end["status"], end["end_offset"], end["counts"]) == ("deleted", None, None)
    assert end["deleted"]
