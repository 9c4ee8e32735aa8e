"""`log.segment_reader`: how large batches are, by the first ones of each file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.format.batch import Record, build
from kcompact.log.batch_headers import mean_batch_bytes
from kcompact.log.files import LogFile


@pytest.mark.parametrize("counts", [[30], [1, 5], [7, 7, 7]])
def test_the_mean_of_the_first_batches(counts: list[int], tmp_path: Path) -> None:
    files = []
    for number, count in enumerate(counts):
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"".join(build([Record(offset, 0, b"k", b"v")]) for offset in range(count)))
        files.append((LogFile.at(path), path.stat().st_size))
    assert mean_batch_bytes(files) == len(build([Record(0, 0, b"k", b"v")]))


def test_unreadable_and_damaged_files_have_no_batches(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(bytes(100))
    assert mean_batch_bytes([(LogFile.at(tmp_path / name), 100) for name in ("damaged", "missing")]) == 200
