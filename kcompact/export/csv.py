"""Records as CSV by RFC 4180: a row with the names of the columns, then a row for each record.

The columns are those of the other exports, with times as Unix milliseconds. Null is empty. A key or value is in one of
two columns: printable text as it is, or else any bytes in base64. Cells are what is in the log. Only if the user asks
for it, those that a spreadsheet would take for a formula, such as the key `=1+1`, get an apostrophe before them.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from kcompact.export import columns
from kcompact.export.columns import CODECS, TIMESTAMP_TYPES, Extra, FieldValues, RecordSource
from kcompact.format.batch import java_string
from kcompact.kernels import Column
from kcompact.log.record_fields import FieldType
from kcompact.log.records import RecordRun
from kcompact.readable import printable_text

Cell = str | int
_MILLISECONDS = "_ms"
_FORMULA = re.compile(r"(?![+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?$)[=+@\t\r-]")
"""How a cell begins that a spreadsheet takes for a formula: not one that is a number."""


class CsvWriter:
    """Writes records as rows of CSV, after a row with the names of the columns."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        topics: Sequence[str],
        *,
        with_data: bool,
        guards_formulas: bool = False,
        extra: Sequence[Extra] = (),
    ) -> None:
        self._write_bytes, self._topics, self._with_data = write, topics, with_data
        self._guards_formulas = guards_formulas
        names = [name for name, _ in self._cells(columns.empty_run(), columns.NO_ROWS, RecordSource(0, 0, 0), extra)]
        self._write([names])

    def write(self, run: RecordRun, rows: Column, source: RecordSource, extra: Sequence[Extra] = ()) -> None:
        """Write some records of a run."""
        self._write(zip(*(cells for _, cells in self._cells(run, rows, source, extra)), strict=True))

    def close(self) -> None:
        """Do nothing: every row is written at once."""

    def _write(self, rows: Iterable[Sequence[Cell]]) -> None:
        if self._guards_formulas:
            rows = ([_guarded(cell) for cell in row] for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._write_bytes(text.getvalue().encode())

    def _cells(
        self, run: RecordRun, rows: Column, source: RecordSource, extra: Sequence[Extra]
    ) -> Iterator[tuple[str, Sequence[Cell]]]:
        """Yield the name and the cells of each column."""
        for field in columns.head(run, rows, source):
            yield self._named(field)
        if self._with_data:
            yield from _contents("key", [run.key(row) for row in rows.tolist()])
            yield from _contents("value", [run.value(row) for row in rows.tolist()])
        yield from _headers(run, rows, with_data=self._with_data)
        for name, _, values in extra:
            yield name, ["" if value is None else str(value) for value in values]
        for field in columns.tail(run, rows):
            yield self._named(field)

    def _named(self, field: FieldValues) -> tuple[str, Sequence[Cell]]:
        values: list[int] = field.values.tolist()
        words = {
            FieldType.TOPIC: self._topics,
            FieldType.TIMESTAMP_TYPE: TIMESTAMP_TYPES,
            FieldType.CODEC: CODECS,
            FieldType.TRUTH: ("false", "true"),
        }.get(field.kind)
        cells: list[Cell] = [words[value] for value in values] if words else list(values)
        if field.is_null is not None:
            cells = ["" if is_null else cell for cell, is_null in zip(cells, field.is_null.tolist(), strict=True)]
        return field.name + (_MILLISECONDS if field.kind is FieldType.TIME else ""), cells


def _guarded(cell: Cell) -> Cell:
    """Return a cell that no spreadsheet takes for a formula. Source: OWASP, "CSV Injection"."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _contents(name: str, contents: Sequence[bytes | None]) -> Iterator[tuple[str, Sequence[Cell]]]:
    texts = [None if content is None else printable_text(content) for content in contents]
    yield name, [text or "" for text in texts]
    yield (
        f"{name}_base64",
        [
            "" if text is not None or content is None else base64.b64encode(content).decode()
            for content, text in zip(contents, texts, strict=True)
        ],
    )


def _headers(run: RecordRun, rows: Column, *, with_data: bool) -> Iterator[tuple[str, Sequence[Cell]]]:
    """Yield the column of record headers, each cell as JSON, empty without headers."""
    counts = run.headers_count[rows].tolist()
    headers = [run.headers(row) if count else () for row, count in zip(rows.tolist(), counts, strict=True)]
    if not with_data:
        yield "header_keys", [json.dumps([java_string(name) for name, _ in each]) if each else "" for each in headers]
        return
    yield "headers", [json.dumps([_header(*one) for one in each]) if each else "" for each in headers]


def _header(name: bytes, value: bytes | None) -> dict[str, str | None]:
    text = None if value is None else printable_text(value)
    if value is None or text is not None:
        return {"key": java_string(name), "value": text}
    return {"key": java_string(name), "valueBase64": base64.b64encode(value).decode()}
