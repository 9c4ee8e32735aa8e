"""The seam where bytes come from: a second storage, in memory, gives the same answers as a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcompact.clean.prepare import prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import LogChangedError
from kcompact.format.names import Suffix
from kcompact.log import files as log_files
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.files import FileIdentity, LogFile, OpenFile
from kcompact.log.records import record_runs
from kcompact.log.segment_reader import batches
from kcompact.plan.partition import plan_partition
from kcompact.questions.gaps.answer import log_gaps
from kcompact.questions.keys.count import count_keys
from kcompact.questions.transactions.answer import log_transaction_report
from kcompact.questions.verify.log import verify_file, verify_log
from tests.support import log_dsl, log_writer

TEXT = """log now=10:00 name=orders-0
0: a=1 b=2 c=3(pid=5 txn) d=4(pid=5 txn) abort(pid=5)
5: a=~ b=6 e=7(pid=6 txn) commit(pid=6)
9: a=8 f=9
11: g=1
txnindex 0: pid=5 first=2 last=4 stable=5"""
NOWHERE = Path("/nowhere/kafka-logs")

STORED: dict[Path, bytes] = {}
IDENTITIES: dict[Path, FileIdentity] = {}


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """The files of a directory that is on no disk: all that another storage needs, beside `MemoryFile`."""

    directory: Path

    def file(self, name: str) -> LogFile:
        return LogFile(self, self.directory / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in STORED if path.parent == self.directory)

    def exists(self, name: str) -> bool:
        return self.directory / name in STORED

    def is_closed(self, name: str) -> bool:
        return False

    def on_disk(self, take: Callable[[int], None]) -> AbstractContextManager[None]:
        raise NotImplementedError

    def identity(self, name: str) -> FileIdentity:
        if not self.exists(name):
            raise FileNotFoundError(2, "No such file or directory", str(self.directory / name))
        return IDENTITIES[self.directory / name]

    @contextmanager
    def open(self, file: LogFile, *, identity: FileIdentity | None = None) -> Iterator[OpenFile]:
        if identity is not None and identity != file.identity():
            raise LogChangedError(path=file.path, problem="was changed")
        with MemoryFile(STORED[file.path]) as opened:
            yield opened


class MemoryFile:
    """Bytes that are read in ranges. Only the kernels make them a file, which has a descriptor."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._descriptor = -1

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    @property
    def stored_bytes(self) -> int:
        return len(self._data)

    def descriptor_of(self, position: int, end: int) -> int:
        if self._descriptor < 0:
            self._descriptor = os.memfd_create("object")
            os.write(self._descriptor, self._data)
        return self._descriptor

    def read(self, size_bytes: int, position: int) -> bytes:
        return self._data[position : position + size_bytes]

    def read_into(self, target: memoryview, position: int) -> int:
        data = self.read(len(target), position)
        target[: len(data)] = data
        return len(data)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A partition directory, whose files are also stored in memory, and nowhere on the disk below that path."""
    directory = log_writer.write(log_dsl.parse(TEXT), tmp_path / "kafka-logs")
    for path in (*directory.iterdir(), *directory.parent.iterdir()):
        if path.is_file():
            stored = NOWHERE / path.relative_to(directory.parent)
            STORED[stored], IDENTITIES[stored] = path.read_bytes(), FileIdentity.of(path.name, path.stat())
    yield directory
    STORED.clear()
    IDENTITIES.clear()


def answers(partition: Path) -> list[object]:
    """Return what reading a partition answers, without the place where it is."""
    log = read_log(partition)
    plan = plan_partition(partition, log_dsl.parse(TEXT).config, now_ms=log_dsl.parse(TEXT).now_ms)
    return [
        (log.segments, log.snapshots, log.log_start_offset, log.log_end_offset, log.checkpoint_offset, log.damage),
        (plan.reason, plan.first_dirty_offset, plan.first_uncleanable_offset, plan.producers),
        verify_log(log),
        log_gaps(plan),
        log_transaction_report(plan),
        listed(log),
        [each.counts for each in count_keys([plan], InProcess()).logs],
        [(task.group, task.survivors, task.records) for task in prepare_clean(plan, InProcess()).tasks],
    ]


def listed(log: PartitionLog) -> list[object]:
    """Return the offsets of the records, and the bytes of the batches."""
    files = [log.file(segment.log_name) for segment in log.segments]
    offsets: list[object] = [run.offset.tolist() for file in files for run in record_runs(file)]
    return offsets + [(batch.position, bytes(batch.data)) for file in files for batch in batches(file)]


def test_a_log_in_memory_is_read_like_one_in_a_directory(
    directory: Path, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(directory)
    monkeypatch.setattr(log_files, "LocalFiles", MemoryFiles)
    assert answers(NOWHERE / directory.name) == expected


def test_damage_in_memory_is_found_like_that_in_a_directory(
    directory: Path, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{0:020d}{Suffix.LOG}"
    damaged = bytearray((directory / name).read_bytes())
    damaged[100] ^= 1
    (directory / name).write_bytes(bytes(damaged))
    STORED[NOWHERE / directory.name / name] = bytes(damaged)
    expected = verify_log(read_log(directory))
    assert expected.is_damaged
    monkeypatch.setattr(log_files, "LocalFiles", MemoryFiles)
    found = verify_log(read_log(NOWHERE / directory.name))
    assert found.findings == expected.findings


def test_a_file_is_verified_in_a_directory_that_cannot_be_listed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    log = LogFile.at(directory / f"{0:020d}{Suffix.LOG}")
    monkeypatch.setattr(log_files.LocalFiles, "names", refuse)
    assert verify_file(log, 0).segments[0].batches > 0
