"""Exports hold the records of a log: read back with DuckDB, Polars and the csv module, and compared."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kcompact.export import arrow
from kcompact.export.arrow import ArrowWriter
from kcompact.export.columns import RecordSource
from kcompact.export.csv import CsvWriter
from kcompact.format.batch import Batch, Record, build, parse_batches, read_records
from kcompact.format.codec import Codec
from kcompact.log.files import LogFile
from kcompact.log.records import record_runs
from tests.support import log_dsl
from tests.support.command_line import ROOT

LOG = """
log
0: a=1 [b=2 c=~](lz4) "a b"=""@7^09:30{h=x i=~ h=2}
8: [~=v d=4{h=""}](pid=7 epoch=1 seq=5 txn) commit(pid=7 epoch=1) [e=5 f=6]@20..29(append max=10:00)
30: [g=~](horizon=2d10:00) h=*3000 [""=x](gzip)
"""
DATA = b"".join(segment.data for segment in log_dsl.parse(LOG).segments)
BINARY = b"".join(
    build([Record(40 + number, 1000, bytes([0xFF, number]), b'\0\r\n,"', ((b"\xffname", bytes([number])),))])
    for number in range(3)
) + build([Record(50, -1, b"k", b"v", tuple((b"n%d" % n, b"v") for n in range(40)))], codec=Codec.SNAPPY)
FIXTURES = sorted((ROOT / "fixtures" / "logs").glob("*/before/**/00000000000000000000.log"))
SOURCE = RecordSource(topic=1, partition=3, base_offset=0)
TOPICS = ["other", "events"]


def export(data: bytes, writer: Any, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    for run in record_runs(LogFile.at(path)):
        writer.write(run, np.arange(len(run)), SOURCE)
    writer.close()


def arrow_file(data: bytes, kind: str, tmp_path: Path, *, with_data: bool = True) -> Path:
    target = tmp_path / f"records.{kind}"
    with target.open("wb") as file:
        export(data, ArrowWriter(file, kind, TOPICS, with_data=with_data), tmp_path)
    return target


def expected(data: bytes) -> list[dict[str, Any]]:
    return [row(batch, record) for batch in parse_batches(data, file="") for record in read_records(batch, file="")]


def row(batch: Batch, record: Record) -> dict[str, Any]:
    """The columns of a record, by the definition."""
    header = batch.header
    sequence = header.base_sequence + record.offset - header.base_offset
    return {
        "topic": "events",
        "partition": 3,
        "segment": 0,
        "offset": record.offset,
        "timestamp": time(record.timestamp),
        "timestamp_ms": unless_minus_one(record.timestamp),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "key_size": None if record.key is None else len(record.key),
        "value_size": None if record.value is None else len(record.value),
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers],
        "base_offset": header.base_offset,
        "leader_epoch": unless_minus_one(header.partition_leader_epoch),
        "producer_id": unless_minus_one(header.producer_id),
        "producer_epoch": unless_minus_one(header.producer_epoch),
        "sequence": None if header.base_sequence < 0 else sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "codec": Codec(header.codec_id).name.lower(),
        "delete_horizon": None if header.delete_horizon_ms is None else time(header.delete_horizon_ms),
        "delete_horizon_ms": header.delete_horizon_ms,
    }


def unless_minus_one(number: int) -> int | None:
    return None if number == -1 else number


def time(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms == -1 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("data", [DATA, BINARY, DATA + BINARY, b""], ids=["log", "binary", "both", "empty"])
def test_every_reader_finds_the_records(data: bytes, kind: str, tmp_path: Path) -> None:
    path = arrow_file(data, kind, tmp_path)
    rows = expected(data)
    if kind == "parquet":
        by_polars = polars.read_parquet(path)
        table = pq.read_table(path)
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.read_parquet(str(path)).to_arrow_table()
        assert by_duckdb.to_pylist() == rows
    else:
        by_polars = polars.read_ipc(path)
        table = pa.ipc.open_file(path).read_all()
    assert by_polars.to_dicts() == rows
    assert table.to_pylist() == rows


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_times_that_no_reader_can_show(kind: str, tmp_path: Path) -> None:
    """A producer that writes nanoseconds, and the extremes of 64 bits."""
    times = [0, -2, 1_700_000_000_000_000_000, -(2**63), 2**63 - 1, arrow.MOST_TIME_MS, -arrow.MOST_TIME_MS]
    data = b"".join(build([Record(number, one, b"k", b"v")]) for number, one in enumerate(times))
    path = arrow_file(data, kind, tmp_path)
    table = pq.read_table(path) if kind == "parquet" else pa.ipc.open_file(path).read_all()
    connection = duckdb.connect()
    connection.register("records", table)
    rows = connection.execute("SELECT epoch_ms(timestamp), timestamp_ms FROM records").fetchall()
    assert rows == [(one if abs(one) <= arrow.MOST_TIME_MS else None, one) for one in times]
    if kind == "parquet":
        (count,) = connection.execute("SELECT count(timestamp) FROM read_parquet(?)", [str(path)]).fetchall()
        assert count == (4,)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parents[2].name + path.parent.name)
def test_fixtures(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    assert polars.read_parquet(arrow_file(data, "parquet", tmp_path)).to_dicts() == expected(data)


def test_types(tmp_path: Path) -> None:
    schema = pq.read_schema(arrow_file(DATA, "parquet", tmp_path))
    assert {field.name: str(field.type) for field in schema} == {
        "topic": NAMES,
        "partition": "int32",
        "segment": "int64",
        "offset": "int64",
        "timestamp": "timestamp[ms, tz=UTC]",
        "timestamp_ms": "int64",
        "timestamp_type": NAMES,
        "key_size": "int32",
        "value_size": "int32",
        "key": "binary",
        "value": "binary",
        "headers": "list<element: struct<key: string not null, value: binary>>",
        "base_offset": "int64",
        "leader_epoch": "int32",
        "producer_id": "int64",
        "producer_epoch": "int16",
        "sequence": "int32",
        "is_transactional": "bool",
        "is_control": "bool",
        "codec": NAMES,
        "delete_horizon": "timestamp[ms, tz=UTC]",
        "delete_horizon_ms": "int64",
    }


NAMES = "dictionary<values=string, indices=int32, ordered=0>"


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_without_data_nothing_of_a_key_or_value_is_written(kind: str, tmp_path: Path) -> None:
    data = build([Record(0, 1000, b"secret-key", b"secret-value", ((b"name", b"secret-header"),))])
    if kind == "csv":
        content = csv_of(data, tmp_path, with_data=False).encode()
        assert next(csv.reader([content.decode().splitlines()[1]]))[8] == '["name"]'
    else:
        path = arrow_file(data, kind, tmp_path, with_data=False)
        content = path.read_bytes()
        frame = polars.read_parquet(path) if kind == "parquet" else polars.read_ipc(path)
        assert frame["header_keys"].to_list() == [["name"]]
        assert not {"key", "value", "headers"} & set(frame.columns)
    assert b"secret" not in content


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROW_GROUP_RECORDS", 2)
    data = b"".join(build([Record(offset, 1000, b"k", b"v")]) for offset in range(9))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    target = tmp_path / "records.parquet"
    with target.open("wb") as file:
        writer = ArrowWriter(file, "parquet", TOPICS, with_data=True)
        for run in record_runs(LogFile.at(path)):
            for number in range(len(run)):
                writer.write(run, np.array([number]), SOURCE)
        writer.close()
    metadata = pq.read_metadata(target)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [2, 2, 2, 2, 1]


def test_too_many_bytes_for_an_array_are_an_error() -> None:
    size = np.array([1 << 30, -1, 1 << 30])
    with pytest.raises(OverflowError, match="2,147,483,648 bytes"):
        arrow.binary_array(np.zeros(1, np.uint8), np.zeros(3, np.int64), size)


def test_pieces_for_arrays_with_small_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 5)
    assert pq.read_table(arrow_file(DATA, "parquet", tmp_path)).to_pylist() == expected(DATA)


@pytest.mark.parametrize("few", [0, 1000])
def test_headers_one_by_one_and_together(few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_FEW_RECORDS", few)
    assert pq.read_table(arrow_file(DATA + BINARY, "parquet", tmp_path)).to_pylist() == expected(DATA + BINARY)


# CSV


def csv_of(data: bytes, tmp_path: Path, *, with_data: bool = True, guards_formulas: bool = False) -> str:
    file = io.BytesIO()
    export(data, CsvWriter(file.write, TOPICS, with_data=with_data, guards_formulas=guards_formulas), tmp_path)
    return file.getvalue().decode()


def test_rows_of_csv(tmp_path: Path) -> None:
    text = csv_of(DATA + BINARY, tmp_path)
    assert text.startswith("topic,partition,segment,offset,timestamp_ms,")
    assert text.endswith("\r\n")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [from_csv(each) for each in rows] == [as_csv(each) for each in expected(DATA + BINARY)]


def as_csv(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ("timestamp", "delete_horizon")}


def from_csv(cells: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: int(cell) if cell.lstrip("-").isdigit() else cell or None
        for name, cell in cells.items()
        if name not in ("key", "value", "key_base64", "value_base64", "headers")
    }
    for name in ("is_transactional", "is_control"):
        fields[name] = {"true": True, "false": False}[cells[name]]
    for name in ("key", "value"):
        raw = base64.b64decode(cells[f"{name}_base64"]) or cells[name].encode()
        fields[name] = None if cells[f"{name}_size"] == "" else raw
    fields["headers"] = [
        {"key": each["key"], "value": header_value(each)} for each in json.loads(cells["headers"] or "[]")
    ]
    return fields


def header_value(header: dict[str, str | None]) -> bytes | None:
    if "valueBase64" in header:
        return base64.b64decode(header["valueBase64"] or "")
    return None if header["value"] is None else header["value"].encode()


@pytest.mark.parametrize("key", [b"=1+1", b"@SUM(A1)", b"-2", b'a"b', b"a,b", b"a\r\nb", b"\t", "\u00e9".encode()])
def test_cells_are_what_is_in_the_log(key: bytes, tmp_path: Path) -> None:
    """Also what a spreadsheet would take for a formula: docs/records.md says how to open such a file."""
    text = csv_of(build([Record(0, 1000, key, b"")]), tmp_path)
    (found,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (found["key"], found["key_base64"]) == (key.decode(), "")


@pytest.mark.parametrize(
    ("key", "is_guarded"),
    [
        *((key, True) for key in (b"=1+1", b"@SUM(A1)", b"+cmd", b"-2+3", b"-", b"\t=1", b"+1-1", b"-1e", b"--1")),
        *((key, False) for key in (b"-2", b"+2", b"-2.5", b"1=1", b" =1", b"'=1", b"", b"a@b", b"-1e-3")),
    ],
)
def test_a_formula_can_be_guarded(key: bytes, is_guarded: bool, tmp_path: Path) -> None:
    text = csv_of(build([Record(0, 1000, key, b"v", ((key, key),))]), tmp_path, guards_formulas=True)
    (found,) = csv.DictReader(io.StringIO(text, newline=""))
    assert found["key"] == ("'" if is_guarded else "") + key.decode()
    assert {name: cell for name, cell in found.items() if name != "key" and cell.startswith("'")} == {}


def test_bytes_in_base64_can_look_like_a_formula(tmp_path: Path) -> None:
    text = csv_of(build([Record(0, 1000, b"\xf8\xff", b"v")]), tmp_path, guards_formulas=True)
    (found,) = csv.DictReader(io.StringIO(text, newline=""))
    assert found["key_base64"] == "'+P8="


def test_duckdb_reads_csv(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(csv_of(DATA, tmp_path), newline="")
    found = duckdb.connect().execute(
        "SELECT count(*), sum(value_size), count(*) FILTER (value_size IS NULL) FROM read_csv(?)", [str(path)]
    )
    rows = expected(DATA)
    sizes = [each["value_size"] for each in rows]
    assert found.fetchall() == [(len(rows), sum(size or 0 for size in sizes), sizes.count(None))]
