"""`plan --unclean`, `clean --unclean` and `recover --foreign`: after a kill, a power cut, or a broker's own crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    LOG0,
    LOG3,
    LOG6,
    clean,
    digest,
    flip,
    kcompact,
    leave_swap,
    note_texts,
    partition,
    settings,
    values,
)

TORN = b"\0" * 100


def contents(directory: Path) -> dict[str, str]:
    """Return the contents of all files, without their times."""
    return {name: was.split()[0] for name, was in digest(directory).items()}


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A partition whose broker was killed: flushed up to its active segment, which has a torn end."""
    directory = partition(tmp_path / "data", settings("unclean recovery=6 hw=7"))
    with (directory / LOG6).open("ab") as log:
        log.write(TORN)
    return directory


def test_without_the_option_it_is_refused_and_the_option_is_named(torn: Path) -> None:
    before = digest(torn.parent)
    planned = kcompact("plan", "--json", *COMPACT, torn)
    cleaned = clean(torn)
    assert (planned.code, planned.json["partitions"][0]["reason"]) == (0, "unclean-shutdown")
    assert "--unclean" in planned.json["partitions"][0]["hint"]
    assert cleaned.code == 4
    assert "--unclean" in cleaned.json["partitions"][0]["error"]
    assert digest(torn.parent) == before


def test_what_was_flushed_is_cleaned_and_the_rest_is_left(torn: Path) -> None:
    kept = {name: was for name, was in digest(torn).items() if name.startswith(f"{6:020d}")}
    (planned,) = kcompact("plan", "--unclean", "--json", *COMPACT, torn).json["partitions"]
    assert (planned["eligible"], planned["log_end_offset"], planned["groups"]) == (True, 7, [[0, 3]])
    assert any("torn end" in note for note in note_texts(planned))

    (cleaned,) = clean("--unclean", torn).json["partitions"]
    assert (cleaned["status"], cleaned["end_offset"]) == ("cleaned", 6)
    assert {name: was for name, was in digest(torn).items() if name in kept} == kept
    assert not (torn.parent / ".kafka_cleanshutdown").exists()
    log = torn / LOG6
    log.write_bytes(log.read_bytes().removesuffix(TORN))
    assert values(torn) == COMPACTED

    (again,) = clean("--unclean", torn).json["partitions"]
    assert (again["status"], again["reason"]) == ("skipped", "active-only")


@pytest.mark.parametrize("settings_of_log", ["unclean recovery=6 hw=7", "unclean recovery=0 hw=7 checkpoint=99"])
def test_a_copy_is_what_a_cleaning_in_place_leaves(settings_of_log: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", settings(settings_of_log))
    with (directory / LOG6).open("ab") as log:
        log.write(TORN)
    before = digest(directory.parent)
    copied = clean("--unclean", "--output", tmp_path / "out", directory.parent)
    assert (copied.code, digest(directory.parent)) == (0, before)
    assert clean("--unclean", directory.parent).code == 0
    assert contents(tmp_path / "out") == contents(directory.parent)
    assert not (tmp_path / "out" / ".kafka_cleanshutdown").exists()


def test_the_way_back_is_open_with_a_torn_segment_in_the_middle(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", settings("unclean recovery=3 hw=7"))
    flip(directory / f"{3:020d}.log", 65)
    before = digest(directory)
    kept = tmp_path / "kept"
    (cleaned,) = clean("--unclean", "--keep-replaced", kept, directory).json["partitions"]
    assert cleaned["status"] == "cleaned"
    assert kcompact("restore", "--check", kept).code == 0
    assert kcompact("restore", kept).code == 0
    assert digest(directory) == before


def test_retention_leaves_what_the_broker_recovers(torn: Path) -> None:
    kept = {name: was for name, was in digest(torn).items() if name.startswith(f"{6:020d}")}
    policy = ("--config", "cleanup.policy=delete", "--config", "retention.ms=0")
    ran = kcompact("clean", "--yes", "--json", *policy, "--unclean", "--apply-retention", torn)
    (entry,) = ran.json["partitions"]
    assert (ran.code, [each["base_offset"] for each in entry["deleted_segments"]]) == (0, [0, 3])
    assert {name: was for name, was in digest(torn).items() if name[:1].isdigit()} == kept


@pytest.mark.parametrize(
    ("recovery", "base", "code", "status"),
    [
        (6, LOG0, 3, "failed"),  # What would be replaced is damaged.
        (0, LOG0, 0, "skipped"),  # The broker cuts the log there.
        (3, LOG6, 0, "cleaned"),
    ],
)
def test_damage_below_and_above_the_recovery_point(
    tmp_path: Path, recovery: int, base: str, code: int, status: str
) -> None:
    directory = partition(tmp_path, settings(f"unclean recovery={recovery} hw=7"))
    flip(directory / base, 65)
    ran = clean("--unclean", directory)
    assert (ran.code, ran.json["partitions"][0]["status"]) == (code, status), ran.err


def test_a_clean_shutdown_is_planned_as_without_the_option(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    plans = [kcompact("plan", "--json", *COMPACT, *options, directory).json for options in ((), ("--unclean",))]
    assert plans[0] == plans[1]


def test_what_a_broker_has_left_is_ended_only_with_the_option(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    (directory / f"{LOG0}.cleaned").write_bytes(b"")
    (directory / f"{LOG6}.deleted").write_bytes(b"")
    before = digest(tmp_path)
    refused = kcompact("recover", directory)
    assert (refused.code, "kcompact recover --foreign" in refused.err) == (8, True)
    assert digest(tmp_path) == before

    ran = kcompact("recover", "--foreign", "--json", directory)
    (entry,) = ran.json["partitions"]
    assert (ran.code, entry["status"], entry["undone"]) == (0, "undone", 0)
    assert entry["broker_files"] == [f"{LOG0}.cleaned", f"{LOG6}.deleted"]
    assert "of a broker" not in kcompact("recover", "--foreign", directory).out
    assert clean(directory).code == 0
    assert values(directory) == COMPACTED


@pytest.mark.parametrize("removed", [1, 21])
def test_few_files_are_named(tmp_path: Path, removed: int) -> None:
    directory = partition(tmp_path)
    for number in range(removed):
        (directory / f"{number:020d}.index.deleted").write_bytes(b"")
    out = kcompact("recover", "--foreign", directory).out
    assert ("00000000000000000000.index.deleted" in out, "of a broker" in out) == (removed == 1, True)


def test_a_segment_that_may_be_the_only_copy_stays_and_is_named(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    (directory / LOG3).rename(directory / f"{LOG3}.deleted")
    before = digest(directory)
    ran = kcompact("recover", "--foreign", directory)
    assert (ran.code, f"{LOG3}.deleted left for the broker" in ran.out) == (0, True)
    assert "segment 3 were left alone" in ran.err
    assert digest(directory) == before
    assert kcompact("recover", "--foreign", "--json", directory).json["partitions"][0]["only_copies"] == [3]
    assert clean(directory).code == 0
    assert (directory / f"{LOG3}.deleted").exists()


def test_a_partition_of_deleted_segments_alone_stays(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    for path in [*directory.glob("*.log")]:
        path.rename(f"{path}.deleted")
    before = digest(tmp_path)
    for path in (directory, directory.parent):
        ran = kcompact("recover", "--foreign", path)
        assert (ran.code, "every segment is marked as deleted" in ran.err) == (8, True)
    for command in ("plan", "clean"):
        assert "every segment is marked as deleted" in kcompact(command, *COMPACT, directory).err
    assert digest(tmp_path) == before


def test_an_incomplete_new_segment_is_not_installed(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    leave_swap(directory)
    before = digest(tmp_path)
    ran = kcompact("recover", "--foreign", directory)
    assert (ran.code, "is incomplete" in ran.err) == (8, True)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("recovery", ["", "recovery=0 "])
def test_when_nothing_was_flushed_a_hint_says_how_to_go_on(recovery: str, tmp_path: Path) -> None:
    for number in range(3):
        partition(tmp_path, settings(f"unclean {recovery}hw=7 name=orders-{number}"))
    ran = kcompact("clean", "--engine", "in-process", "--unclean", "--force", *COMPACT, tmp_path)
    (hint,) = (line for line in ran.out.splitlines() if line.startswith("hint: "))
    assert ran.code == 0
    assert "start it once, stop it cleanly, and clean without --unclean" in hint
    assert "--output DIR" in hint
    planned = kcompact("plan", "--json", "--unclean", *COMPACT, tmp_path).json["partitions"]
    assert {(entry["reason"], f"hint: {entry['hint']}") for entry in planned} == {("recovery-point", hint)}
