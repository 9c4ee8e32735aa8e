"""`--unclean` of each command, and `recover --foreign`: after a kill, a power cut, or a broker's own crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import (
    LOG6,
    clean,
    digest,
    flip,
    kcompact,
    partition,
    settings,
)

TORN = b"\0" * 100


def contents(directory: Path) -> dict[str, str]:
    """Return the contents of all files, without their times."""
    return {name: was.split()[0] for name, was in digest(directory).items()}


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


@pytest.mark.parametrize("removed", [1, 21])
def test_few_files_are_named(tmp_path: Path, removed: int) -> None:
    directory = partition(tmp_path)
    for number in range(removed):
        (directory / f"{number:020d}.index.deleted").write_bytes(b"")
    out = kcompact("recover", "--foreign", directory).out
    assert ("00000000000000000000.index.deleted" in out, "of a broker" in out) == (removed == 1, True)


@pytest.mark.parametrize("command", ["verify", "gaps", "keys", "records", "records --latest"])
def test_a_torn_end_is_read_as_a_broker_will_have_it(command: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", settings("unclean recovery=6 hw=7"))
    closed = partition(tmp_path / "closed", settings("hw=7"))
    whole = kcompact(*command.split(), "--json", closed)
    with (directory / LOG6).open("ab") as log:
        log.write(b"\0\0\0\0\0\0\0\x07\0\0\1")
    before = digest(directory.parent)
    found = kcompact(*command.split(), directory)
    assert found.code == 3
    if command != "records":
        hint = f"The log was not closed: {LOG6} has a torn end at position"
        assert hint in found.err + found.out or "cuts it off after an unclean shutdown" in found.out
        assert "Restore this segment" not in found.err + found.out
    recovered = kcompact(*command.split(), "--unclean", directory)
    assert recovered.code == 0, recovered
    if command.startswith("records"):
        assert kcompact(*command.split(), "--unclean", "--json", directory).out == whole.out
    assert digest(directory.parent) == before


@pytest.mark.parametrize("command", ["verify", "keys"])
def test_damage_that_no_broker_cuts_off_keeps_its_advice(command: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "data", settings("unclean recovery=6 hw=7"))
    flip(directory / f"{0:020d}.log", 65)
    found = kcompact(command, directory)
    assert found.code == 3
    assert "The log was not closed" not in found.err + found.out
