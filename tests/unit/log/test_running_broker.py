"""A partition that a running broker has open: growing files, verdicts, and readings that are repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.errors import CorruptBatchError, CorruptIndexError, LogChangedError, RefusedError, StorageError
from kcompact.log import unchanged_reading
from kcompact.log.directory import LogDir, PartitionLog, read_log, read_log_dir
from kcompact.log.files import files_in
from kcompact.log.lock import has_broker, log_dir_lock
from kcompact.log.unchanged_reading import REPEATS, read_unchanged
from tests.support import log_dsl, log_writer
from tests.support.command_line import running_broker

TEXT = "log index.interval.bytes=100\n0: a=1 b=1 c=1 d=1\n4: a=2\n5: a=3 b=3 c=3 d=3 e=3 f=3"
CLOSED, ACTIVE = f"{4:020d}", f"{5:020d}"
BATCH_BYTES = 70


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(TEXT), tmp_path / "logs")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_reading, "_PAUSES_S", (0,) * REPEATS)


def running(directory: Path) -> LogDir:
    """Return the log directory as it is while a broker runs."""
    return replace(read_log_dir(directory.parent), is_running=True, is_clean_shutdown=False)


def test_a_broker_is_told_from_another_kcompact(tmp_path: Path) -> None:
    log_dir = log_writer.write(log_dsl.parse(TEXT), tmp_path / "logs").parent
    assert not has_broker(log_dir)
    with log_dir_lock(log_dir):
        assert not has_broker(log_dir)
        assert not read_log_dir(log_dir).is_running
    with running_broker(log_dir):
        assert has_broker(log_dir)
        assert read_log_dir(log_dir).is_running
    assert not read_log_dir(log_dir).is_running


def test_a_lock_in_a_directory_without_the_files_of_a_broker_is_no_broker(tmp_path: Path) -> None:
    log_dir = log_writer.write(replace(log_dsl.parse(TEXT), lone=True), tmp_path / "logs").parent
    with running_broker(log_dir):
        assert not read_log_dir(log_dir).is_running


def grow(name: str, data: bytes) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with (directory / name).open("ab") as file:
            file.write(data)

    return change


def cut(name: str, size_bytes: int) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with (directory / name).open("r+b") as file:
            file.truncate(size_bytes)

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


def add(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).touch()


ZEROS = bytes(12 * 8 * 40)  # Whole entries of both indexes.
TORN_ENTRY = (8).to_bytes(4, "big") + bytes(4)
"""A relative offset that is written, and a position that is not yet."""

GROWING = [
    # what the broker is doing, (log end, bytes of the active log, of its index)
    ("nothing", [], (11, 420, 16)),
    ("preallocated indexes", [grow(ACTIVE + ".index", ZEROS), grow(ACTIVE + ".timeindex", ZEROS)], (11, 420, 16)),
    ("a torn index entry", [grow(ACTIVE + ".index", TORN_ENTRY + ZEROS)], (11, 420, 16)),
    ("a torn batch", [cut(ACTIVE + ".log", 6 * BATCH_BYTES - 1)], (10, 350, 16)),
    ("a torn header", [cut(ACTIVE + ".log", 5 * BATCH_BYTES + 11)], (10, 350, 16)),
    ("allocated space behind the log", [grow(ACTIVE + ".log", ZEROS)], (11, 420, 16)),
    ("no index yet", [remove(ACTIVE + ".index"), remove(ACTIVE + ".timeindex")], (11, 420, 0)),
    ("an empty log", [cut(ACTIVE + end, 0) for end in (".log", ".index", ".timeindex")], (5, 0, 0)),
    ("a cleaning", [add(f"{0:020d}.log.cleaned"), add(f"{0:020d}.index.cleaned")], (11, 420, 16)),
    ("a deletion", [add(f"{0:020d}.log.deleted")], (11, 420, 16)),
]


@pytest.mark.parametrize(("changes", "expected"), [case[1:] for case in GROWING], ids=[case[0] for case in GROWING])
def test_what_grows_is_read_up_to_its_last_whole_part(
    directory: Path, changes: list[Callable[[Path], None]], expected: tuple[int, int, int]
) -> None:
    for change in changes:
        change(directory)
    found = read_log(directory, log_dir=running(directory))
    active = found.active_segment
    assert (found.log_end_offset, active.size_bytes, active.index_bytes) == expected
    assert (found.damage, found.leftovers) == ((), ())
    assert active.files[0].size_bytes == active.size_bytes


def test_a_log_that_is_cut_at_any_byte_ends_with_its_last_whole_batch(directory: Path) -> None:
    for suffix in (".index", ".timeindex"):  # A broker writes them after the log.
        cut(ACTIVE + suffix, 0)(directory)
    content, log_dir = (directory / (ACTIVE + ".log")).read_bytes(), running(directory)
    for size_bytes in range(len(content)):
        (directory / (ACTIVE + ".log")).write_bytes(content[:size_bytes])
        found = read_log(directory, log_dir=log_dir)
        whole = size_bytes // BATCH_BYTES
        assert (found.log_end_offset, found.active_segment.size_bytes) == (5 + whole, whole * BATCH_BYTES)
        assert found.damage == ()
        # Zeros may be space that the broker has allocated.
        assert bool(found.notes) is bool(content[whole * BATCH_BYTES : size_bytes].strip(b"\0"))


def flip(name: str, position: int) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        content[position] ^= 0xFF
        (directory / name).write_bytes(content)

    return change


DAMAGE = [
    ("the active log", flip(ACTIVE + ".log", 5 * BATCH_BYTES + 65), CorruptBatchError),
    ("an older log", flip(CLOSED + ".log", 0), CorruptBatchError),
    ("an index of half an entry", grow(ACTIVE + ".index", b"half"), CorruptIndexError),
    ("two entries of the active index", flip(ACTIVE + ".index", 7), CorruptIndexError),
]


@pytest.mark.parametrize(("change", "error"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_damage_is_still_damage(directory: Path, change: Callable[[Path], None], error: type[Exception]) -> None:
    change(directory)
    if len((directory / (ACTIVE + ".index")).read_bytes()) == 16:
        flip(ACTIVE + ".index", 15)(directory)
    assert [type(each) for each in read_log(directory, log_dir=running(directory)).damage] == [error]


# --- Readings


class Broker:
    """Changes a partition at each reading, as long as it has changes."""

    def __init__(self, directory: Path, changes: Iterator[Callable[[Path], None]]) -> None:
        self.directory = directory
        self.changes = changes
        self.readings = 0

    def read(self, log_dir: LogDir) -> PartitionLog:
        """Read the log, and let the broker change it before the reading is over."""
        self.readings += 1
        found = read_log(self.directory, log_dir=replace(log_dir, is_running=True))
        change = next(self.changes, None)
        if change is not None:
            change(self.directory)
        return found


def roll(directory: Path) -> None:
    (directory / f"{11:020d}.log").touch()


def delete(directory: Path) -> None:
    (directory / f"{0:020d}.log").rename(directory / f"{0:020d}.log.deleted")


def replaced(directory: Path) -> None:
    """Replace the first segment as a cleaning does: the same name, another file."""
    old, new = directory / f"{0:020d}.log", directory / "new"
    shutil.copy2(old, new)
    new.rename(old)


def begin_swap(directory: Path) -> None:
    (directory / f"{0:020d}.log").rename(directory / f"{0:020d}.log.swap")


def end_swap(directory: Path) -> None:
    (directory / f"{0:020d}.log.swap").rename(directory / f"{0:020d}.log")


def append(directory: Path) -> None:
    grow(ACTIVE + ".log", (directory / (ACTIVE + ".log")).read_bytes()[:BATCH_BYTES])(directory)


MEANWHILE = [
    ("nothing", [], 1),
    ("growing", [append], 1),
    ("a rolled segment", [roll], 2),
    ("a deleted segment", [delete], 2),
    ("a cleaned segment", [replaced], 2),
    ("three cleaned segments", [replaced] * 3, 4),
    ("all kinds", [roll, delete, replaced], 3),
]


@pytest.mark.parametrize(("changes", "readings"), [case[1:] for case in MEANWHILE], ids=[case[0] for case in MEANWHILE])
def test_a_change_during_a_reading_makes_another(
    directory: Path, monkeypatch: pytest.MonkeyPatch, changes: list[Callable[[Path], None]], readings: int
) -> None:
    monkeypatch.setattr(unchanged_reading, "read_log_dir", lambda path: running(directory))
    present = [change for change in changes if change is not replaced or delete not in changes]
    broker = Broker(directory, iter(present))
    found = read_unchanged(files_in(directory), running(directory), broker.read)
    assert broker.readings == len([change for change in present if change is not append]) + 1
    assert broker.readings <= readings
    names = {path.name for path in directory.glob("*.log")}
    assert {segment.log_name for segment in found.segments} == names


def test_a_partition_that_always_changes_is_given_up(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_reading, "read_log_dir", lambda path: running(directory))
    broker = Broker(directory, iter([replaced] * 10))
    with pytest.raises(LogChangedError, match="during each of 4 readings") as raised:
        read_unchanged(files_in(directory), running(directory), broker.read)
    assert (broker.readings, raised.value.exit_code) == (REPEATS + 1, 6)


def test_a_swap_of_the_broker_is_waited_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_swap(directory)
    repeats: list[Path] = []

    def again(path: Path) -> LogDir:
        repeats.append(path)
        if len(repeats) == 2:
            end_swap(directory)
        return running(directory)

    monkeypatch.setattr(unchanged_reading, "read_log_dir", again)
    found = read_unchanged(
        files_in(directory), running(directory), lambda log_dir: read_log(directory, log_dir=log_dir)
    )
    assert [segment.base_offset for segment in found.segments] == [0, 4, 5]


def test_damage_counts_only_if_nothing_has_changed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_reading, "read_log_dir", lambda path: running(directory))
    readings = []

    def read(log_dir: LogDir) -> str:
        readings.append(log_dir)
        if len(readings) == 1:
            replaced(directory)
        if len(readings) < 3:
            raise CorruptBatchError(file=directory / CLOSED, problem="half old, half new")
        return "read"

    with pytest.raises(CorruptBatchError):
        read_unchanged(files_in(directory), running(directory), read)
    assert len(readings) == 2


GONE = StorageError(path="x", problem=FileNotFoundError(2, "No such file or directory"))


@pytest.mark.parametrize("error", [GONE, FileNotFoundError("x"), LogChangedError(path="x", problem="changed")])
def test_what_is_gone_is_read_again_only_beside_a_broker(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(unchanged_reading, "read_log_dir", lambda path: running(directory))
    readings: list[LogDir] = []

    def read(log_dir: LogDir) -> None:
        readings.append(log_dir)
        raise error

    with pytest.raises(LogChangedError):
        read_unchanged(files_in(directory), running(directory), read)
    with pytest.raises(type(error)):
        read_unchanged(files_in(directory), read_log_dir(directory.parent), read)
    assert len(readings) == REPEATS + 2


def test_a_refusal_that_stays_is_raised_at_once(directory: Path) -> None:
    def read(log_dir: LogDir) -> None:
        raise RefusedError(path=directory, problem="tiered")

    with pytest.raises(RefusedError):
        read_unchanged(files_in(directory), running(directory), read)
