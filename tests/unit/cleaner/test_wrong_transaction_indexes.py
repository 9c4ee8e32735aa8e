"""A `.txnindex` that contradicts the markers of its log: refused before anything changes, or rebuilt from them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptDataError, NotEnoughSpaceError
from kcompact.log.directory import read_log
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from kcompact.questions.verify.log import verify_log
from tests.support import log_dsl, log_writer
from tests.support.committed_view import committed_view
from tests.support.copies import read_files
from tests.support.machine_code import switched
from tests.support.parameters import one_in
from tests.support.wrong_transaction_indexes import ENTRY, SPEC, WRONG

VIEW = {b"a": b"1", b"b": b"1", b"c": b"2", b"d": b"2", b"e": b"1", b"f": b"1", b"g": b"1"}

LAST_STABLE_OFFSET_AT = 26


def clean(directory: Path, options: CleanOptions | None = None, *, end_offset: int = 15) -> CleanResult:
    options = options or CleanOptions()
    plan = plan_partition(directory, SPEC.config, now_ms=SPEC.now_ms, rebuild_indexes=options.rebuild_indexes)
    assert plan.first_uncleanable_offset == end_offset
    with log_dir_lock(directory.parent) as lock:
        return clean_partition(plan, InProcess(), lock=lock, options=options)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(SPEC, tmp_path / "logs")


@pytest.mark.usefixtures("compiled")
def test_sound_indexes_are_not_refused(directory: Path) -> None:
    assert committed_view(directory) == VIEW
    clean(directory)
    assert committed_view(directory) == VIEW
    clean(directory)  # Entries without data are left in the indexes.
    assert committed_view(directory) == VIEW


@pytest.mark.parametrize("wrong", [name for name, wrong in WRONG.items() if not wrong.is_harmless])
def test_a_wrong_index_is_refused(wrong: str, directory: Path, tmp_path: Path) -> None:
    path = WRONG[wrong].apply(directory)
    before = read_files(directory)
    ways = (
        (CleanOptions(), False),
        (CleanOptions(dry_run=True), True),
        (CleanOptions(output=tmp_path / "out"), True),
    )
    for options, compiled in ways:
        with switched(compiled=compiled), pytest.raises(CorruptDataError, match=WRONG[wrong].message) as refused:
            clean(directory, options)
        assert refused.value.exit_code == 3
        assert refused.value.file == str(path)
        assert "`rebuild_indexes=True`" in str(refused.value)
        assert read_files(directory) == before


@pytest.mark.parametrize("wrong", [name for name, wrong in WRONG.items() if wrong.is_harmless])
def test_an_index_that_misleads_nobody_is_not_refused(wrong: str, directory: Path) -> None:
    WRONG[wrong].apply(directory)
    clean(directory)
    assert committed_view(directory) == VIEW


@pytest.mark.parametrize("base_offset", [0, 7, 15, 18])
def test_a_changed_byte_is_refused_or_misleads_nobody(base_offset: int, tmp_path: Path) -> None:
    rng = random.Random(base_offset)
    accepted = set[int]()
    for position in range(ENTRY.size):
        directory = log_writer.write(SPEC, tmp_path / f"{position}")
        path = directory / f"{base_offset:020d}.txnindex"
        data = bytearray(path.read_bytes())
        data[position] ^= rng.randint(1, 255)
        path.write_bytes(data)
        try:
            for _ in range(2):
                clean(directory)
                assert committed_view(directory) == VIEW
        except CorruptDataError:
            continue
        accepted.add(position)
    assert accepted == set(range(LAST_STABLE_OFFSET_AT, ENTRY.size))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files below the young segments after a cleaning with sound indexes."""
    directory = log_writer.write(SPEC, tmp_path_factory.mktemp("sound"))
    clean(directory)
    return below_young_segments(directory)


@pytest.mark.parametrize("wrong", one_in(2, WRONG))
def test_rebuilt_from_the_markers_the_result_is_that_of_sound_indexes(
    wrong: str, directory: Path, sound: dict[str, bytes], tmp_path: Path
) -> None:
    WRONG[wrong].apply(directory)
    clean(directory, CleanOptions(rebuild_indexes=True, output=tmp_path / "out"))
    copy = tmp_path / "out" / directory.name
    clean(directory, CleanOptions(rebuild_indexes=True))
    for result in (copy, directory):
        assert committed_view(result) == VIEW
        assert below_young_segments(result) == sound
    # In place, an index behind the cleaned range stays as it is.
    assert not verify_log(read_log(copy)).is_damaged
    assert not verify_log(read_log(directory)).is_damaged or WRONG[wrong].base_offset >= 15


BEHIND_THE_RANGE = log_dsl.parse(
    """log lone now=10:00 min.cleanable.dirty.ratio=0 min.compaction.lag.ms=15m
    0: a=1 b=1 a=2
    3: c=1^09:50(pid=7 txn) abort^09:50(pid=7)
    5: d=1^09:55(pid=7 txn) abort^09:55(pid=7) e=1^09:55
    txnindex 3: pid=7 first=3 last=4 stable=5
    txnindex 5: pid=7 first=5 last=6 stable=7
    """
)
"""Whole aborted transactions in a segment that is too young, and in the active one. The cleaned range has none."""


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("data", [None, b""], ids=["missing", "empty"])
@pytest.mark.parametrize("base_offset", [3, 5])
def test_an_index_that_is_lost_behind_the_cleaned_range_is_refused(
    base_offset: int, data: bytes | None, tmp_path: Path
) -> None:
    directory = log_writer.write(BEHIND_THE_RANGE, tmp_path / "logs")
    clean(directory, CleanOptions(output=tmp_path / "sound"), end_offset=3)
    path = directory / f"{base_offset:020d}.txnindex"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    before = read_files(directory)
    for options in (CleanOptions(), CleanOptions(dry_run=True), CleanOptions(output=tmp_path / "out")):
        with pytest.raises(CorruptDataError, match=f"has no entry for the ABORT marker at offset {base_offset + 1}"):
            clean(directory, options, end_offset=3)
        assert read_files(directory) == before
    clean(directory, CleanOptions(rebuild_indexes=True, output=tmp_path / "out"), end_offset=3)
    sound = read_files(tmp_path / "sound" / directory.name)
    assert read_files(tmp_path / "out" / directory.name) == sound
    clean(directory, CleanOptions(rebuild_indexes=True), end_offset=3)
    assert read_files(directory) == sound
    assert path.stat().st_mode == path.with_suffix(".log").stat().st_mode
    clean(directory, end_offset=3)


def test_a_run_that_fails_after_it_has_added_an_index_leaves_a_sound_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = log_writer.write(BEHIND_THE_RANGE, tmp_path / "logs")
    whole = read_files(directory)
    path = directory / f"{5:020d}.txnindex"
    path.unlink()

    def full(*arguments: object, **options: object) -> None:
        raise NotEnoughSpaceError(path=directory, needed_bytes=1, free_bytes=0)

    monkeypatch.setattr("kcompact.cleaner.partition.write_manifest", full)
    with pytest.raises(NotEnoughSpaceError):
        clean(directory, CleanOptions(rebuild_indexes=True), end_offset=3)
    assert read_files(directory) == whole
    assert {each.name for each in directory.iterdir()} == set(whole)


def below_young_segments(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_files(directory).items() if name < f"{15:020d}"}
