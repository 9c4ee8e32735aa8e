"""CSV gives back what is in the log: written, read by the csv module, Polars and DuckDB, and compared."""

from __future__ import annotations

import base64
import csv
import io
import json
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import polars
from hypothesis import example, given
from hypothesis import strategies as st

from kcompact.export.columns import Extra, RecordSource
from kcompact.export.csv import CsvWriter
from kcompact.format.batch import Record, build
from kcompact.log.files import LogFile
from kcompact.log.records import record_runs

TEXTS = st.text(alphabet="\r\n\t ,;\"'\\=a\0\u00e9\u2028", max_size=6)
SOURCE = RecordSource(topic=0, partition=3, base_offset=0)


def csv_of(texts: list[str], log: Path) -> str:
    """Return the CSV of a log with a record for each text, which is its key, its value, its header, and decoded."""
    log.write_bytes(
        b"".join(
            build([Record(offset, 1000, text.encode(), text.encode(), ((text.encode(), text.encode()),))])
            for offset, text in enumerate(texts)
        )
    )
    file, column = io.BytesIO(), Extra("value_decoded", str, ())
    writer = CsvWriter(file.write, ["events"], with_data=True, extra=[column])
    for run in record_runs(LogFile.at(log)):
        rows = np.arange(len(run))
        decoded = [texts[offset] for offset in run.offset.tolist()]
        writer.write(run, rows, SOURCE, [column._replace(values=decoded)])
    writer.close()
    return file.getvalue().decode()


def content(cells: dict[str, str], name: str) -> str:
    return cells[name] or base64.b64decode(cells[f"{name}_base64"]).decode()


@given(st.lists(TEXTS, min_size=1, max_size=4))
@example(["\r"])
@example(["a\rb", "\r\n", '"\r"', "\n\r"])
def test_csv_gives_back_what_is_in_the_log(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written = csv_of(texts, Path(directory) / "00000000000000000000.log")
    rows = list(csv.DictReader(io.StringIO(written, newline=""), strict=True))
    assert [content(row, "key") for row in rows] == texts
    assert [content(row, "value") for row in rows] == texts
    assert [row["value_decoded"] for row in rows] == texts
    names = [json.loads(row["headers"])[0]["key"] for row in rows]
    assert names == texts
    assert [int(row["offset"]) for row in rows] == list(range(len(texts)))


def test_other_readers_find_the_same_texts(tmp_path: Path) -> None:
    texts = ["\r", "a\rb", "a\r", "\ra", "\r\n", "\n", "\n\r", '"', '"\r', ",\r,", " ", "\t", "a"]
    path = tmp_path / "records.csv"
    path.write_text(csv_of(texts, tmp_path / "00000000000000000000.log"), newline="")
    assert polars.read_csv(path, infer_schema=False)["value_decoded"].to_list() == texts
    found = duckdb.connect().execute("SELECT value_decoded FROM read_csv(?, all_varchar = true)", [str(path)])
    assert [text for (text,) in found.fetchall()] == texts
