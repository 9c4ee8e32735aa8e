"""The commands on a log directory that a broker has locked: what works, what it says, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from kcompact.cleaner import partition as partition_module
from kcompact.cleaner import round as round_module
from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.round_end import SwappedPartition
from kcompact.log import unchanged_reading
from kcompact.log.directory import read_log
from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    DIRTY,
    LOG0,
    LOG3,
    LOG6,
    clean,
    digest,
    kcompact,
    note_texts,
    partition,
    running_broker,
    values,
)

TORN = bytes(11) + b"\1"
PADDING = bytes(12 * 8 * 40)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_reading, "_PAUSES_S", (0, 0, 0))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition as a broker has it open: preallocated indexes, a torn batch, a file of its cleaner."""
    made = partition(tmp_path / "logs", DIRTY.replace("log ", "log unclean hw=7 "))
    for suffix in (".index", ".timeindex"):
        append((made / LOG6).with_suffix(suffix), PADDING)
    append(made / LOG6, TORN)
    (made / f"{LOG0}.cleaned").touch()
    return made


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_plan_is_real(directory: Path) -> None:
    with running_broker(directory.parent):
        ran = kcompact("plan", *COMPACT, "--json", directory.parent)
        text = kcompact("plan", *COMPACT, directory.parent)
    assert ran.code == 0, ran.err
    entry = ran.partition
    assert (entry["reason"], entry["eligible"], entry["log_end_offset"]) == ("dirty-ratio", True, 7)
    (note,) = ran.notes
    assert "a broker is running on" in note
    assert "the high watermark is that of the checkpoint" in note
    assert note in text.err
    assert "next:" not in text.out  # Nothing can be cleaned in place now.
    unlocked = kcompact("plan", *COMPACT, "--json", directory.parent)
    assert unlocked.partition["reason"] != "dirty-ratio"  # Not shut down cleanly, and with a torn tail.


def test_an_inspection_shows_no_damage(directory: Path) -> None:
    with running_broker(directory.parent):
        ran = kcompact("inspect", *COMPACT, "--json", directory)
        verified = kcompact("verify", *COMPACT, "--json", directory)
        dumped = kcompact("records", "--json", directory)
    assert (ran.code, verified.code, dumped.code) == (0, 0, 0), (ran.err, verified.out, dumped.err)
    assert [line["offset"] for line in dumped.lines] == list(range(7))
    assert [segment["batches"] for segment in ran.partition["segments"]] == [3, 3, 1]
    assert "a broker is running on" in note_texts(ran.json)[0]
    assert [finding for finding in verified.partition["findings"] if finding["severity"] == "damage"] == []


def test_a_dry_run_counts_what_a_cleaning_would_leave(directory: Path) -> None:
    before = digest(directory)
    with running_broker(directory.parent):
        ran = clean("--dry-run", directory.parent)
    assert ran.code == 0, ran.err
    entry = ran.partition
    assert (entry["status"], entry["messages_read"], entry["messages_written"]) == ("dry-run", 6, 4)
    assert [note for note in note_texts(ran.json) if "the cleaning itself has to wait" in note]
    assert digest(directory) == before


@pytest.mark.parametrize("whole", [True, False], ids=["a log directory", "a partition"])
def test_a_copy_is_whole(directory: Path, tmp_path: Path, whole: bool) -> None:
    before = digest(directory)
    output = tmp_path / "output"
    with running_broker(directory.parent):
        ran = clean("--output", output, directory.parent if whole else directory)
    assert ran.code == 0, ran.err
    assert digest(directory) == before
    copy = output / directory.name
    assert values(copy) == COMPACTED
    names = {path.name for path in copy.iterdir()}
    assert {name for name in names if name.endswith(".log")} == {LOG0, LOG6}
    assert f"{LOG0}.cleaned" not in names
    assert (copy / LOG6).read_bytes() == (directory / LOG6).read_bytes()[: -len(TORN)]
    for suffix in (".index", ".timeindex"):
        source = (directory / LOG6).with_suffix(suffix).read_bytes()
        assert (copy / LOG6).with_suffix(suffix).read_bytes() == source[: -len(PADDING)]
    # Whoever loads the copy has to look at its end.
    assert not (output / ".kafka_cleanshutdown").exists()
    assert (output / "meta.properties").exists() is whole
    checkpoint = (output / "replication-offset-checkpoint").read_text()
    assert "orders 0 7" in checkpoint


def test_a_copy_without_a_cleaning_has_the_segments_as_they_are(directory: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with running_broker(directory.parent):
        ran = clean("--config", "min.cleanable.dirty.ratio=1", "--output", output, directory.parent)
    assert ran.code == 0, ran.err
    for name in (LOG0, LOG3):
        assert (output / directory.name / name).read_bytes() == (directory / name).read_bytes()


def test_in_place_is_refused_once(directory: Path) -> None:
    partition(directory.parent, DIRTY.replace("log ", "log unclean name=more-0 "))
    before = digest(directory)
    with running_broker(directory.parent):
        ran = clean("--yes", directory.parent)
        text = kcompact("clean", "--engine", "in-process", "--yes", *COMPACT, directory.parent)
    assert (ran.code, text.code) == (5, 5)
    assert text.err.count(") holds this lock") == 1
    assert digest(directory) == before


def test_without_its_broker_an_unclean_directory_is_refused(directory: Path) -> None:
    with running_broker(directory.parent):
        pass
    assert clean("--dry-run", directory.parent).code == 3  # The torn tail.
    (directory / LOG6).write_bytes((directory / LOG6).read_bytes()[: -len(TORN)])
    (directory / f"{LOG0}.cleaned").unlink()
    ran = clean("--dry-run", directory.parent)
    assert ran.code == 4
    assert json.loads(ran.out)["partitions"][0]["reason"] == "unclean-shutdown"


# --- What the broker changes meanwhile


def replaced(directory: Path) -> None:
    """Replace the second segment as the broker's cleaner does: the same name, another file."""
    new = directory / f"{LOG3}.cleaned"
    shutil.copy2(directory / LOG3, new)
    new.rename(directory / LOG3)


def merged(directory: Path) -> None:
    """Replace the first two segments by the first one's name, as a cleaning that groups them."""
    data = (directory / LOG0).read_bytes() + (directory / LOG3).read_bytes()
    new = directory / f"{LOG0}.cleaned"
    new.write_bytes(data)
    new.rename(directory / LOG0)
    for old in (LOG0, LOG3):
        for suffix in (".index", ".timeindex"):
            (directory / old).with_suffix(suffix).write_bytes(b"")
    for suffix in (".log", ".index", ".timeindex"):
        (directory / LOG3).with_suffix(suffix).unlink(missing_ok=True)


def deleted(directory: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = (directory / LOG0).with_suffix(suffix)
        path.rename(f"{path}.deleted")


def grown(directory: Path) -> None:
    append(directory / LOG6, TORN)


def rolled(directory: Path) -> None:
    (directory / f"{7:020d}.log").touch()


MEANWHILE = [
    # what the broker does after each plan, until none is left; the exit code; the segments read by the last plan
    ("grown", [grown] * 5, 0, [0, 3, 6]),
    ("rolled", [rolled], 0, [0, 3, 6]),
    ("replaced", [replaced], 0, [0, 3, 6]),
    ("merged", [merged], 0, [0, 6]),
    ("deleted", [deleted], 0, [3, 6]),
    ("replaced and deleted", [replaced, deleted], 0, [3, 6]),
    ("replaced again and again", [replaced] * 9, 6, None),
]


@pytest.mark.parametrize("mode", ["--dry-run", "--output"])
@pytest.mark.parametrize(("changes", "code", "bases"), [case[1:] for case in MEANWHILE], ids=[c[0] for c in MEANWHILE])
def test_what_changes_between_plan_and_cleaning_is_planned_again(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    changes: list[Callable[[Path], None]],
    code: int,
    bases: list[int] | None,
) -> None:
    left = iter(changes)
    inside = partition_module.swap_in

    def changed_before(cleaning: Cleaning) -> SwappedPartition | CleanResult:
        for change in islice(left, 1):
            change(directory)
        return inside(cleaning)

    monkeypatch.setattr(round_module, "swap_in", changed_before)
    output = tmp_path / "output"
    with running_broker(directory.parent):
        ran = clean("--force", *([mode] if mode == "--dry-run" else [mode, output]), directory.parent)
    assert ran.code == code, ran.err
    if bases is None:
        assert "during each of 4 readings" in ran.err
        return
    entry = ran.partition
    assert entry["end_offset"] == 6
    if mode == "--output":
        made = read_log(output / directory.name)
        assert (made.damage, made.log_end_offset, made.active_segment.base_offset) == ((), 7, 6)
        assert made.segments[0].base_offset == bases[0]
    else:
        assert entry["messages_read"] == (3 if bases[0] == 3 else 6)


def test_a_growing_file_that_was_replaced_is_not_copied(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, plans = partition_module.swap_in, []

    def changed_before(cleaning: Cleaning) -> SwappedPartition | CleanResult:
        plans.append(cleaning.plan)
        if len(plans) == 1:
            shutil.copy2(directory / LOG6, directory / "new")
            (directory / "new").rename(directory / LOG6)
        return inside(cleaning)

    monkeypatch.setattr(round_module, "swap_in", changed_before)
    with running_broker(directory.parent):
        ran = clean("--force", "--output", tmp_path / "output", directory.parent)
    assert (ran.code, len(plans)) == (0, 2), ran.err
