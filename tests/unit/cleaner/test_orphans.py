"""A log with indexes whose `.log` is gone is cleaned as without them, and they stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.errors import LogChangedError
from kcompact.format.names import Suffix, file_name
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.swap.recovery.interrupted_round import recover
from tests.support import log_dsl, log_writer
from tests.support.parameters import one_in

SPEC = log_dsl.parse(
    "log now=10:00 min.cleanable.dirty.ratio=0 segment.bytes=220\n5: a=1 b=1\n10: a=2\n20: b=2 c=1\n30: a=3\n40: d=1"
)
"""Two groups: 5, 10 and 20, 30."""

BASES = {
    "below the log": 2,
    "in a group": 7,
    "between groups": 19,
    "in the second group": 25,
    "active": 41,
    "above": 99,
}
CONTENTS = {Suffix.INDEX: b"an index of another log", Suffix.TIME_INDEX: bytes(24), Suffix.TXN_INDEX: b""}


def plan_of(directory: Path) -> CleanPlan:
    return plan_partition(directory, SPEC.config, now_ms=SPEC.now_ms)


def clean(plan: CleanPlan, options: CleanOptions | None = None) -> None:
    with log_dir_lock(plan.log.directory.parent) as lock:
        clean_partition(plan, InProcess(), lock=lock, options=options)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def cleaned_without_orphans(tmp_path: Path) -> dict[str, bytes]:
    directory = log_writer.write(SPEC, tmp_path / "expected")
    clean(plan_of(directory))
    return content(directory)


@pytest.mark.parametrize("suffix", CONTENTS)
@pytest.mark.parametrize("base", one_in(2, BASES))
def test_an_orphan_changes_nothing(
    base: str, suffix: Suffix, cleaned_without_orphans: dict[str, bytes], tmp_path: Path
) -> None:
    directory = log_writer.write(SPEC, tmp_path / "logs")
    name = file_name(BASES[base], suffix)
    (directory / name).write_bytes(CONTENTS[suffix])
    plan = plan_of(directory)
    assert [[segment.base_offset for segment in group] for group in plan.groups] == [[5, 10], [20, 30]]
    assert f"{name} has no .log beside it; a broker would delete it" in [note.text for note in plan.log.notes]
    clean(plan, CleanOptions(output=tmp_path / "out"))
    assert content(tmp_path / "out" / directory.name) == cleaned_without_orphans
    clean(plan)
    assert content(directory) == {**cleaned_without_orphans, name: CONTENTS[suffix]}
    assert not recover(directory).changed


@pytest.mark.parametrize("suffix", CONTENTS)
def test_an_index_at_the_base_of_a_group_is_replaced(
    suffix: Suffix, cleaned_without_orphans: dict[str, bytes], tmp_path: Path
) -> None:
    """It has a log, so it is no orphan, and the new segment needs its name."""
    directory = log_writer.write(SPEC, tmp_path / "logs")
    path = directory / file_name(20, suffix)
    path.write_bytes(b"")
    plan = plan_of(directory)
    assert plan.log.orphans == ()
    clean(plan)
    assert content(directory) == cleaned_without_orphans


def test_an_orphan_that_is_changed_meanwhile_stops_the_cleaning(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path / "logs")
    orphan = directory / file_name(7, Suffix.INDEX)
    orphan.write_bytes(b"")
    plan = plan_of(directory)
    orphan.write_bytes(b"another process writes here")
    before = content(directory)
    with pytest.raises(LogChangedError):
        clean(plan)
    assert content(directory) == before
