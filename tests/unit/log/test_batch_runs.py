"""`log.batch_runs`: the arrays that batches are read into."""

from __future__ import annotations

from pathlib import Path

from kcompact.format.batch import Record, build
from kcompact.log.batch_runs import verified_runs
from kcompact.log.files import LogFile


def test_a_small_file_is_read_into_small_arrays(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(build([Record(offset, 0, b"k", b"v")]) for offset in range(3)))
    (run,) = verified_runs(LogFile.at(path), base_offset=0, end_offset=3)
    assert len(run.table) == run.count == 3
    assert run.data.nbytes == run.buffer.nbytes == path.stat().st_size
    assert run.rows.nbytes < 1000
