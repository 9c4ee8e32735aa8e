"""A simulated broker changes a log between any two files that kcompact opens: every copy is of one moment.

The broker takes the steps of Kafka 4.3.1 in their order: a batch in two writes, then its index entries, each in two;
a roll, which cuts the indexes first; a cleaning, with the renames of `LocalLog.replaceSegments`; a deletion.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import clean_log_dir
from kcompact.format.batch import Record, build, parse_batches
from kcompact.format.names import index_name, log_name, time_index_name
from kcompact.format.properties import MetaProperties
from kcompact.log import directory as directory_module
from kcompact.log import unchanged_reading
from kcompact.log.directory import LogDir, PartitionLog, read_log, read_log_dir
from kcompact.log.files import files_in
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.options import PlanOptions
from tests.support.broker_files import build_meta_properties
from tests.support.log_reader import read_log_records
from tests.support.log_writer import DEFAULT_TIME

PREALLOCATED = 12 * 8 * 20
KEYS = 3
NAMES = (log_name, index_name, time_index_name)

Steps = Iterator[None]
FINISH = -1


@dataclass
class Broker:
    """A broker with one partition. `take` does the next steps of what it is doing, then begins something new."""

    directory: Path
    begins: Iterator[str]
    sent: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    end_offset: int = 0
    log_bytes: int = 0
    entries: int = 0
    doing: Steps = field(default_factory=lambda: iter(()))
    lock: threading.Lock = field(default_factory=threading.Lock)
    actor: int | None = None
    """The thread that the broker works in now."""

    def take(self, count: int) -> None:
        """Do the next `count` steps, or finish what was begun."""
        self.actor = threading.get_ident()
        if count == FINISH:
            self.finish()
            count = 0
        for _ in range(count):
            while next(self.doing, self) is self:
                begin: Callable[[], Steps] = getattr(self, next(self.begins))
                self.doing = begin()
        self.actor = None

    def finish(self) -> None:
        """Finish what was begun."""
        for _ in self.doing:
            pass

    def path(self, name: Callable[[int], str], base: int) -> Path:
        return self.directory / name(base)

    def append(self) -> Steps:
        offset, timestamp = self.end_offset, DEFAULT_TIME + self.end_offset
        key, value = b"key-%d" % (offset % KEYS), b"value-%d" % offset
        data = build([Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=())])
        self.sent[offset] = (key, value)
        active = self.bases[-1]
        with self.path(log_name, active).open("ab") as log:
            log.write(data[:40])
            log.flush()
            yield
            log.write(data[40:])
        self.end_offset += 1
        position, self.log_bytes = self.log_bytes, self.log_bytes + len(data)
        yield
        number, self.entries = self.entries, self.entries + 1
        relative = (offset - active).to_bytes(4, "big")
        if position == 0:
            self.entries = number  # The first batch gets no entry.
            return
        yield from self.put(index_name, active, number * 8, [relative, position.to_bytes(4, "big")])
        yield from self.put(time_index_name, active, number * 12, [timestamp.to_bytes(8, "big"), relative])

    def put(self, name: Callable[[int], str], base: int, position: int, parts: Sequence[bytes]) -> Steps:
        """Write an entry part by part."""
        with self.path(name, base).open("r+b") as file:
            for part in parts:
                file.seek(position)
                file.write(part)
                file.flush()
                position += len(part)
                yield

    def roll(self) -> Steps:
        if self.bases and self.log_bytes == 0:
            return
        if self.bases:
            os.truncate(self.path(time_index_name, self.bases[-1]), self.entries * 12)
            yield
            os.truncate(self.path(index_name, self.bases[-1]), self.entries * 8)
            yield
        self.log_bytes = self.entries = 0
        self.path(log_name, self.end_offset).touch()
        self.bases.append(self.end_offset)
        yield
        for name in (index_name, time_index_name):
            self.path(name, self.bases[-1]).write_bytes(bytes(PREALLOCATED))
            yield

    def clean(self) -> Steps:
        """Replace the first two closed segments by one, without what later closed segments supersede."""
        closed = self.bases[:-1]
        if len(closed) < 2:
            return
        newest: dict[bytes | None, int] = {}
        for base in closed:
            newest |= {record.key: record.offset for record in read_log_records(self.path(log_name, base))}
        old = closed[:2]
        data = b""
        for base in old:
            path = self.path(log_name, base)
            for batch in parse_batches(path.read_bytes(), file=path.name):
                if batch.header.last_offset in newest.values():
                    data += bytes(batch.data)
        for name, content in zip(NAMES, (data, b"", b""), strict=True):
            Path(f"{self.path(name, old[0])}.cleaned").write_bytes(content)
            yield
        yield from self.renamed(old[:1], ".cleaned", ".swap")
        self.bases.remove(old[1])
        yield from self.renamed(old, "", ".deleted")
        yield from self.renamed(old[:1], ".swap", "")
        yield from self.removed(old)

    def delete(self) -> Steps:
        """Delete the first segment."""
        if len(self.bases) < 2:
            return
        old = [self.bases.pop(0)]
        yield from self.renamed(old, "", ".deleted")
        yield from self.removed(old)

    def renamed(self, bases: Sequence[int], before: str, after: str) -> Steps:
        for base in bases:
            for name in NAMES:
                path = self.path(name, base)
                Path(f"{path}{before}").rename(f"{path}{after}")
                yield

    def removed(self, bases: Sequence[int]) -> Steps:
        for base in bases:
            for name in NAMES:
                Path(f"{self.path(name, base)}.deleted").unlink()
                yield


@contextmanager
def meanwhile(broker: Broker, counts: Iterator[int]) -> Iterator[None]:
    """Let the broker take so many steps before each file of the partition is opened, and each listing of it."""

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any, *arguments: Any, **options: Any) -> Any:
            is_inside = isinstance(path, str | os.PathLike) and Path(path).is_relative_to(broker.directory)
            is_inside |= options.get("dir_fd") is not None and str(path)[:20].isdigit()
            if is_inside and broker.actor != threading.get_ident():
                with broker.lock:  # The stages of a cleaning open files in several threads.
                    broker.take(next(counts))
            return function(path, *arguments, **options)

        return called

    with (
        mock.patch.object(os, "open", before(os.open)),
        mock.patch.object(os, "scandir", before(os.scandir)),
        mock.patch.object(directory_module, "has_broker", lambda log_dir: (log_dir / ".lock").exists()),
        mock.patch.object(unchanged_reading, "_PAUSES_S", (0, 0, 0)),
    ):
        yield


@pytest.fixture(scope="module")
def scratch(in_memory: Path) -> Path:
    return in_memory


def newest_of(records: dict[int, tuple[bytes, bytes]], start: int, end: int) -> dict[int, tuple[bytes, bytes]]:
    """Return the newest record of each key in a range of offsets."""
    last = {records[offset][0]: offset for offset in sorted(records) if start <= offset < end}
    return {offset: records[offset] for offset in last.values()}


MIXED = ("append", "append", "append", "roll", "append", "append", "clean", "append", "delete", "append", "roll")
APPENDING = ("append",)
MOST_OPENED = 90
"""No command of these tests opens more files of the partition, and lists it more often, together."""


def begun(scratch: Path, begins: Iterable[str], steps: int) -> Broker:
    """Return a broker that has taken some steps in a new log directory."""
    shutil.rmtree(scratch / "logs", ignore_errors=True)
    shutil.rmtree(scratch / "output", ignore_errors=True)
    partition = scratch / "logs" / "orders-0"
    partition.mkdir(parents=True)
    properties = MetaProperties(version=1, cluster_id=None, node_id=1, directory_id=None)
    (scratch / "logs" / "meta.properties").write_bytes(build_meta_properties(properties))
    (scratch / "logs" / ".lock").touch()
    broker = Broker(partition, chain(["roll"], begins))
    broker.take(1 + steps)
    return broker


def copied(scratch: Path) -> RoundResult:
    """Clean the log directory into a new copy."""
    shutil.rmtree(scratch / "output", ignore_errors=True)
    return clean_log_dir(
        scratch / "logs",
        {"cleanup.policy": "compact"},
        plan_options=PlanOptions(now_ms=DEFAULT_TIME + 1_000, force=True),
        options=CleanOptions(output=scratch / "output"),
    )


def require_sound(result: RoundResult, scratch: Path, broker: Broker, least_end: int) -> None:
    """Require a copy that a broker had at one moment, or an error that says that it had none."""
    assert result.exit_code in (0, 6), result.partitions
    if result.exit_code:
        return
    copy = read_log(scratch / "output" / "orders-0", log_dir=LogDir(path=scratch / "output"))
    assert copy.damage == ()
    assert least_end <= copy.log_end_offset <= broker.end_offset
    records = {
        record.offset: (record.key, record.value)
        for segment in copy.segments
        for record in read_log_records(copy.directory / segment.log_name)
    }
    assert records.items() <= broker.sent.items()
    expected = newest_of(broker.sent, copy.segments[0].base_offset, copy.log_end_offset)
    assert expected.items() <= records.items()


def amid(opened: int, burst: int) -> Iterator[int]:
    """Return the steps before each file that is opened: a burst before one, then what is left of a cleaning."""
    return chain(repeat(0, opened), [burst, 1, 1, 1, FINISH], repeat(0))


@given(
    st.lists(st.sampled_from(["append", "append", "append", "roll", "clean", "delete"]), min_size=1, max_size=40),
    st.integers(0, 120),
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 5, 20]), max_size=60),
    st.integers(0, MOST_OPENED),
)
def test_a_copy_is_of_one_moment(
    scratch: Path, begins: list[str], steps_before: int, counts: list[int], wait: int
) -> None:
    broker = begun(scratch, chain(begins, repeat("append")), steps_before)
    least_end = broker.end_offset
    with meanwhile(broker, chain(repeat(0, wait), counts, repeat(0))):
        result = copied(scratch)
    require_sound(result, scratch, broker, least_end)
    broker.finish()
    # When the broker is left alone, nothing is in the way.
    with meanwhile(broker, repeat(0)):
        assert copied(scratch).exit_code == 0


@pytest.mark.long
@pytest.mark.parametrize("stride", [6, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("begins", "steps_before", "burst"), [(MIXED, 150, 90), (MIXED, 163, 7), (APPENDING, 61, 40)])
def test_a_burst_of_changes_at_any_time_does_no_harm(
    scratch: Path, begins: Sequence[str], steps_before: int, burst: int, stride: int
) -> None:
    codes = []
    for opened in range(burst % 2, MOST_OPENED, stride):
        broker = begun(scratch, cycle(begins), steps_before)
        broker.finish()
        least_end = broker.end_offset
        with meanwhile(broker, amid(opened, burst)):
            result = copied(scratch)
        codes.append(result.exit_code)
        require_sound(result, scratch, broker, least_end)
    assert codes.count(0) > len(codes) * 0.9, codes


def _read(directory: Path, log_dir: LogDir) -> PartitionLog:
    return read_log(directory, log_dir=log_dir)


@pytest.mark.parametrize(("begins", "steps_before", "burst"), [(MIXED, 150, 90), (MIXED, 163, 7), (APPENDING, 61, 40)])
def test_a_reading_amid_changes_is_of_one_moment(
    scratch: Path, begins: Sequence[str], steps_before: int, burst: int
) -> None:
    for opened in range(MOST_OPENED // 3):
        broker = begun(scratch, cycle(begins), steps_before)
        broker.finish()
        least_end = broker.end_offset
        log_dir = replace(read_log_dir(scratch / "logs"), is_running=True)
        with meanwhile(broker, amid(opened, burst)):
            log = read_unchanged(files_in(broker.directory), log_dir, partial(_read, broker.directory))
        assert log.damage == (), opened
        assert least_end <= log.log_end_offset <= broker.end_offset
        present = {path.name for path in broker.directory.glob("*.log")}
        assert {segment.log_name for segment in log.segments} <= present | {log.active_segment.log_name}
