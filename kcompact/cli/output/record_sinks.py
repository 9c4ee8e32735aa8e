"""Where listed records go when they do not become lines: a table, CSV, or a file for other tools.

A file is refused before anything is read, and it is there under its name only when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from kcompact.cli.output import streams
from kcompact.cli.output.dump import compact
from kcompact.errors import UnsupportedError
from kcompact.export.columns import Extra, RecordSource
from kcompact.export.files import new_file, require_new
from kcompact.format.names import TopicPartition, parse_directory, parse_file_name
from kcompact.host.installation import how_to_add
from kcompact.readable import printable_text, time

if TYPE_CHECKING:
    from kcompact.cli.output.field_decoder import FieldDecoder
    from kcompact.kernels import Mask
    from kcompact.log.records import RecordRun
    from kcompact.views.parts import Cell

_DECODED_TYPES: dict[str, type[str] | type[int] | type[float]] = {"int": int, "long": int, "double": float}
"""The types of decoded keys and values, those of the other decoders are text."""
_CELL_CHARS = 60


class Sink(Protocol):
    """Takes the records of logs, in their order."""

    def write(self, run: RecordRun, chosen: Mask | None, log: Path) -> None:
        """Take the chosen records of a run, or all of them."""

    def close(self) -> None:
        """Finish, after the last record."""


class _Writer(Protocol):
    """One of the writers of `export`."""

    def write(self, run: RecordRun, rows: Any, source: RecordSource, extra: Sequence[Extra]) -> None: ...

    def close(self) -> None: ...


class _Export:
    """Passes records on to a writer, with the segment that they come from and with what is decoded."""

    def __init__(self, writer: _Writer, topics: Sequence[str], decoder: FieldDecoder | None) -> None:
        self._writer, self._topics, self._decoder = writer, topics, decoder

    def write(self, run: RecordRun, chosen: Mask | None, log: Path) -> None:
        """Write the chosen records of a run, or all of them."""
        rows = np.arange(len(run)) if chosen is None else np.flatnonzero(chosen)
        if len(rows):
            extra = _decoded(run, rows.tolist(), self._decoder)
            self._writer.write(run, rows, _source(log, self._topics), extra)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class _Table:
    """Collects records for a table, which is printed at the end."""

    def __init__(self, *, with_data: bool, decoder: FieldDecoder | None) -> None:
        self._with_data, self._decoder = with_data, decoder
        self._rows: list[dict[str, Cell]] = []

    def write(self, run: RecordRun, chosen: Mask | None, log: Path) -> None:
        """Take the chosen records of a run, or all of them."""
        from kcompact.views.parts import cell

        partition = _partition_of(log)
        for number in range(len(run)) if chosen is None else np.flatnonzero(chosen).tolist():
            record = run.record(number)
            header, _ = run.header(int(run.batch[number]))
            fields: dict[str, Any] = {
                "partition": partition,
                "offset": record.offset,
                "time": time(record.timestamp),
                "key bytes": None if record.key is None else len(record.key),
                "value bytes": None if record.value is None else len(record.value),
                "headers": len(record.headers),
                "producer": None if header.producer_id < 0 else header.producer_id,
                "epoch": None if header.partition_leader_epoch < 0 else header.partition_leader_epoch,
                "what": _what(record.key, record.value, is_control=header.is_control),
            }
            if self._with_data:
                fields["key"] = self._shown("key", record.key, record.offset)
                fields["value"] = self._shown("payload", record.value, record.offset)
            # One may want to copy each of these numbers, so they have no separators.
            self._rows.append({name: cell(None if value is None else str(value)) for name, value in fields.items()})

    def _shown(self, field: str, data: bytes | None, offset: int) -> str | None:
        if data is None:
            return None
        text = _decoded_text(self._decoder, field, data, offset)
        if text is None:
            text = printable_text(data)
        if text is None:
            text = f"0x{data[: _CELL_CHARS // 2 + 1].hex()}"
        return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}\u2026"

    def close(self) -> None:
        """Print the table."""
        from kcompact.cli.output.printer import Printer
        from kcompact.views.parts import Table

        numbers = ("offset", "key bytes", "value bytes", "headers", "producer", "epoch")
        columns = ("partition", "offset", "time", "key", "value", *numbers[1:], "what")
        shown = tuple(name for name in columns if not self._rows or name in self._rows[0])
        table = Table(
            columns=shown,
            rows=tuple(tuple(fields[name] for name in shown) for fields in self._rows),
            numbers=numbers,
            whole=("time",),
            optional=("epoch", "producer", "headers"),
        )
        Printer().parts([table])


@contextmanager
def csv_on_output(
    logs: Sequence[Path], *, with_data: bool, guards_formulas: bool, decoder: FieldDecoder | None
) -> Iterator[Sink]:
    """Yield a sink that prints CSV."""
    from kcompact.export.csv import CsvWriter

    topics, extra = _topics(logs), _columns(decoder)
    writer = CsvWriter(streams.write, topics, with_data=with_data, guards_formulas=guards_formulas, extra=extra)
    yield _Export(writer, topics, decoder)


@contextmanager
def table(*, with_data: bool, decoder: FieldDecoder | None) -> Iterator[Sink]:
    """Yield a sink that prints a table at the end."""
    sink = _Table(with_data=with_data, decoder=decoder)
    yield sink
    sink.close()


@contextmanager
def lines_in_file(path: Path, logs: Sequence[Path]) -> Iterator[Callable[[bytes | memoryview], object]]:
    """Yield a function that writes lines to a new file."""
    with new_file(path, _directories(logs), logs) as file:
        yield file.write


@contextmanager
def export_to_file(
    path: Path, logs: Sequence[Path], *, with_data: bool, guards_formulas: bool, decoder: FieldDecoder | None
) -> Iterator[Sink]:
    """Yield a sink that writes a new file, of the format that its name says."""
    topics = _topics(logs)
    require_new(path, _directories(logs))
    make = _writer_of(path, guards_formulas=guards_formulas)
    with new_file(path, _directories(logs), logs) as file:
        sink = _Export(make(file, topics, with_data, _columns(decoder)), topics, decoder)
        yield sink
        sink.close()


def _writer_of(
    path: Path, *, guards_formulas: bool
) -> Callable[[BinaryIO, Sequence[str], bool, Sequence[Extra]], _Writer]:
    """Return what makes the writer for a file. Raises UnsupportedError without pyarrow."""
    kind = path.suffix.lower().removeprefix(".")
    if kind == "csv":
        from kcompact.export.csv import CsvWriter

        return lambda file, topics, with_data, extra: CsvWriter(
            file.write, topics, with_data=with_data, guards_formulas=guards_formulas, extra=extra
        )
    try:
        from kcompact.export.arrow import ArrowWriter
    except ImportError as problem:
        raise UnsupportedError(
            path=path,
            problem=f"Parquet and Arrow files need pyarrow ({problem}); use .csv or .jsonl, or {how_to_add('arrow')}",
        ) from None
    return lambda file, topics, with_data, extra: ArrowWriter(file, kind, topics, with_data=with_data, extra=extra)


# What is known of a log by its path


def _partition_of(log: Path) -> TopicPartition | None:
    parsed = parse_directory(log.absolute().parent.name)
    return parsed.topic_partition if parsed else None


def _topics(logs: Sequence[Path]) -> list[str]:
    return sorted({partition.topic for partition in map(_partition_of, logs) if partition})


def _directories(logs: Sequence[Path]) -> list[Path]:
    return sorted({log.absolute().parent for log in logs if _partition_of(log)})


def _source(log: Path, topics: Sequence[str]) -> RecordSource:
    partition, name = _partition_of(log), parse_file_name(log.name)
    return RecordSource(
        topics.index(partition.topic) if partition else None,
        partition.partition if partition else None,
        name.base_offset if name else None,
    )


# Decoded keys and values


def _columns(decoder: FieldDecoder | None) -> list[Extra]:
    """Return the columns of decoded keys and values, without any."""
    return [] if decoder is None else [_column(decoder, field, []) for field in _fields(decoder)]


def _fields(decoder: FieldDecoder) -> list[str]:
    return [field for field, name in decoder.names.items() if name is not None]


def _column(decoder: FieldDecoder, field: str, values: Sequence[object]) -> Extra:
    name = "key" if field == "key" else "value"
    return Extra(f"{name}_decoded", _DECODED_TYPES.get(decoder.names[field] or "", str), values)


def _decoded(run: RecordRun, rows: Sequence[int], decoder: FieldDecoder | None) -> list[Extra]:
    if decoder is None:
        return []
    columns = []
    for field in _fields(decoder):
        read = run.key if field == "key" else run.value
        values = [_decoded_value(decoder, field, read(row), int(run.offset[row])) for row in rows]
        columns.append(_column(decoder, field, values))
    return columns


def _decoded_value(decoder: FieldDecoder, field: str, data: bytes | None, offset: int) -> object:
    """Return a decoded key or value in the type of its column, None if it is null or cannot be decoded."""
    name = decoder.names[field] or ""
    if data is None:
        return None
    if _DECODED_TYPES.get(name, str) is str:
        return _decoded_text(decoder, field, data, offset)
    try:
        return _DECODED_TYPES[name](decoder.decoded(field, data, offset))
    except ValueError:
        return None


def _decoded_text(decoder: FieldDecoder | None, field: str, data: bytes, offset: int) -> str | None:
    if decoder is None or decoder.names[field] is None:
        return None
    try:
        value = decoder.decoded(field, data, offset)
    except ValueError:
        return None
    return value if isinstance(value, str) else compact(value)


def _what(key: bytes | None, value: bytes | None, *, is_control: bool) -> str:
    if is_control:
        return "control"
    if key is None:
        return "null key"
    return "tombstone" if value is None else ""
