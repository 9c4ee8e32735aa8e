"""The kernels' scan of a split: how it opens the files beside the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.clean.offset_map import KeyCollector
from kcompact.clean.split_kernels import scan_split
from kcompact.errors import RefusedError, StorageError
from kcompact.format.names import Suffix
from kcompact.log.files import LogFile
from kcompact.log.inflate import Buffers
from kcompact.stages.job import Split
from tests.support import log_dsl, log_writer
from tests.support.jobs import JOB

CLEANING = replace(JOB, upper_bound_offset=3)


def scan(directory: Path) -> None:
    (log,) = directory.glob(f"*0{Suffix.LOG}")
    size = log.stat().st_size
    split = Split(log=LogFile.at(log), start_position=0, end_position=size, base_offset=0, end_offset=3)
    scan_split(replace(CLEANING, directory=str(directory)), split, KeyCollector(1, 1000), Buffers())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse("log index.interval.bytes=0\n0: a=1 b=2 a=3"), tmp_path / "logs")


def test_an_index_behind_a_link_is_refused(directory: Path, tmp_path: Path) -> None:
    (index,) = directory.glob(f"*0{Suffix.INDEX}")
    index.rename(tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="symbolic link"):
        scan(directory)


def test_an_index_that_cannot_be_read_is_a_storage_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    scan(directory)  # Loads the kernels, so that it is not their file that cannot be read.
    monkeypatch.setattr("os.pread", fail)
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        scan(directory)
