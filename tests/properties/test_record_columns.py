"""`log.records`: what the kernels decode is what the definition decodes, also of damaged logs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import KcompactError
from kcompact.format.batch import Record, build, parse_batches, read_records
from kcompact.format.codec import Codec
from kcompact.kernels import ATTRIBUTES, BASE_OFFSET, BASE_SEQUENCE, COLUMNS, LAST_OFFSET, MAGIC, POSITION, SIZE
from kcompact.log import records as records_module
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun, record_runs
from tests.support.kernel_inputs import LOG_NAME, any_batch, any_log_bytes, same_offsets
from tests.support.machine_code import switched
from tests.support.parameters import few_examples

COMPARED = sorted(set(range(COLUMNS)) - {POSITION, *range(12, MAGIC)})


def read(path: Path, *, compiled: bool, start_position: int = 0) -> tuple[list[object], list[object], str]:
    """Return the batches and the records of a file, and the error at its end."""
    with switched(compiled=compiled):
        return _read(path, start_position)


def _read(path: Path, start_position: int) -> tuple[list[object], list[object], str]:
    batches: list[object] = []
    records: list[object] = []
    try:
        for run in record_runs(LogFile.at(path), start_position=start_position):
            first = len(batches)
            positions = (run.table[:, POSITION] + run.start_position).tolist()
            batches += zip(positions, run.table[:, COMPARED].tolist(), strict=True)
            records += [(first + int(run.batch[row]), run.record(row)) for row in range(len(run))]
            assert run.end_position == positions[-1] + int(run.table[-1, SIZE])
    except KcompactError as problem:
        return batches, records, f"{type(problem).__name__}: {problem}"
    return batches, records, ""


def written(data: bytes, directory: str) -> Path:
    path = Path(directory) / LOG_NAME
    path.write_bytes(data)
    return path


@pytest.mark.long
@few_examples()
@given(any_log_bytes | st.lists(any_batch, min_size=1, max_size=4).map(same_offsets), st.sampled_from([1, 3, 1 << 16]))
def test_the_columns_are_the_records(data: bytes, run_records: int) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        path = written(data, directory)
        defined = read(path, compiled=False)
        patch.setattr(records_module, "RUN_RECORDS", run_records)
        patch.setattr(records_module, "DEFINED_RECORDS", run_records)
        assert read(path, compiled=True) == defined
        assert read(path, compiled=False) == defined


def one_batch(offset: int, codec: Codec, **fields: Any) -> bytes:
    records = [
        Record(offset, 7, b"key", None, ((b"name", b"content"), (b"", None))),
        Record(offset + 1, -9, None, b"value" * offset),
        Record(offset + 3, 2**62, b"", b""),
    ]
    return build(records, codec=codec, base_sequence=2**31 - 1, producer_id=5, producer_epoch=1, **fields)


@pytest.mark.parametrize(
    "codecs",
    [
        [Codec.NONE, Codec.NONE],
        [Codec.ZSTD, Codec.ZSTD],
        [Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP],  # Their sections are in two arrays.
        [Codec.SNAPPY, Codec.NONE],
    ],
)
def test_every_field(codecs: list[Codec], compiled: bool, tmp_path: Path) -> None:
    data = b"".join(one_batch(10 * number, codec, log_append_time=number == 1) for number, codec in enumerate(codecs))
    path = written(data, str(tmp_path))
    expected = [record for batch in parse_batches(data, file="") for record in read_records(batch, file="")]
    (run,) = record_runs(LogFile.at(path))
    assert [run.record(row) for row in range(len(run))] == expected
    assert run.sequence.tolist() == [2**31 - 1, 0, 2] * len(codecs)
    assert run.batch_column(BASE_OFFSET).tolist() == [10 * number for number in range(len(codecs)) for _ in range(3)]
    assert run.table[:, [LAST_OFFSET, BASE_SEQUENCE]].tolist() == [
        [10 * number + 3, 2**31 - 1] for number in range(len(codecs))
    ]
    assert (run.table[:, ATTRIBUTES] & 7).tolist() == codecs
    assert run.headers_count.tolist() == [2, 0, 0] * len(codecs)
    assert run.key_size.tolist() == [3, -1, 0] * len(codecs)


def of_positions(path: Path) -> list[int]:
    return [batch.position for batch in parse_batches(path.read_bytes(), file="")]


def test_a_part_of_a_file(compiled: bool, tmp_path: Path) -> None:
    path = written(b"".join(one_batch(10 * number, Codec.NONE) for number in range(4)), str(tmp_path))
    positions = of_positions(path)
    runs = list(record_runs(LogFile.at(path), start_position=positions[1], end_position=positions[3]))
    assert [int(offset) for run in runs for offset in run.offset] == [10, 11, 13, 20, 21, 23]


def test_a_wrong_checksum_ends_the_records_and_names_the_batch(compiled: bool, tmp_path: Path) -> None:
    data = bytearray(b"".join(one_batch(10 * number, Codec.NONE) for number in range(3)))
    path = written(bytes(data), str(tmp_path))
    positions = of_positions(path)
    data[positions[1] + 70] ^= 1
    path.write_bytes(bytes(data))
    found: list[RecordRun] = []
    with pytest.raises(KcompactError, match=rf"position {positions[1]}, offset 10: checksum 0x"):
        found.extend(record_runs(LogFile.at(path)))
    assert [len(run.table) for run in found] == [1]
    assert [int(offset) for run in found for offset in run.offset] == [0, 1, 3]
