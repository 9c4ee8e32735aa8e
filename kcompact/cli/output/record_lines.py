"""The lines of `dump` for whole runs of records, written by a kernel.

The kernel fills in numbers and printable ASCII. The text between them comes from `dump`: each kind of line is made
once, with a placeholder for each value, and cut there. `dump` also writes what the kernel leaves: markers, records with
headers, batches of old formats, and text that is not plain ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kcompact import kernels
from kcompact.cli.output.dump import LineForm, header_fields
from kcompact.cli.output.field_decoder import FieldDecoder
from kcompact.cli.output.streams import encoded
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import NO_TIMESTAMP, Header, Record
from kcompact.format.codec import Codec
from kcompact.kernels import (
    ATTRIBUTES,
    BASE64,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    FIELD_BINARY,
    FIELD_NULL,
    FIELD_TEXT,
    FIELD_UNDECIDED,
    HEX,
    LINE_COLUMNS,
    LITERAL,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NUMBER,
    PLAIN,
    QUOTED,
    TRANSACTIONAL_BIT,
    Bytes,
    Column,
    Mask,
    Table,
)
from kcompact.log.files import LogFile
from kcompact.log.record_fields import OF_BATCHES, OF_RECORDS, FieldType
from kcompact.log.records import RecordRun
from kcompact.readable import MAX_SHOWN_CHARS

_ANY_FILE = LogFile.at("")
_OUT_BYTES = 4 << 20
_WORTH_A_CALL = 64
"""A call of the kernel takes as long as the definition takes for some of so many lines."""
_MOST_DEFINED = 1 << 10
"""At most so many lines are written by the definition before the kernel is tried again."""

_RECORD_VALUES = (*(field.dumped for field in OF_RECORDS.values()), "keyStart", "payloadStart")
_NUMBERS = (FieldType.INT16, FieldType.INT32, FieldType.INT64, FieldType.TIME)
_NUMBERS_OF_BATCH = [field for field in OF_BATCHES.values() if field.type in _NUMBERS]
_BATCH_VALUES = tuple(field.dumped for field in _NUMBERS_OF_BATCH)
_KEY, _PAYLOAD = ("keyStart", "keySize"), ("payloadStart", "valueSize")
_CONTENT = {"key": _KEY, "keyBase64": _KEY, "payload": _PAYLOAD, "payloadBase64": _PAYLOAD}
_EXAMPLES = {FIELD_TEXT: b"", FIELD_BINARY: b"\0", FIELD_NULL: None}
"""A key or payload of each kind."""
_TIMES = ("CreateTime", "LogAppendTime")

_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
_BY_DEFINITION = 255
"""A kind of line without a program."""
_FILE_FIELD = -1
"""The position of a literal that each log has its own of: the name of its file."""
_PLACEHOLDER = 7_770_000_000_000_000_000
"""Placeholders are this number and the next ones. No other number is in a line when it is cut."""


class _Program(NamedTuple):
    """The operations of the lines of all kinds."""

    programs: Table
    operations: Table
    literals: Bytes
    kind_of_attributes: Column
    """The kind of a batch's line."""
    raw_fields: tuple[str, ...]
    """Key and payload, if they are shown and have no decoder."""

    def of_log(self, form: LineForm) -> tuple[Table, Bytes]:
        """Return the operations and the literals for one log: JSON has the name of its file in each line."""
        if not form.as_json:
            return self.operations, self.literals
        literals = np.concatenate((self.literals, np.frombuffer(encoded(_file_field(form)), np.uint8)))
        operations = self.operations.copy()
        operations[operations[:, 1] == _FILE_FIELD, 1:] = len(self.literals), len(literals)
        return operations, literals


class RunLines:
    """Writes the lines of runs, of one log after the other."""

    def __init__(self) -> None:
        self._programs: dict[LineForm, _Program | None] = {}
        """The programs of each form, whatever the log."""
        self._out = np.empty(_OUT_BYTES, np.uint8)

    def of(self, form: LineForm, run: RecordRun, chosen: Mask | None = None) -> Iterator[bytes | memoryview]:
        """Yield pieces of the lines of a run. A piece is valid until the next one.

        With `chosen`, only those records are listed, and the batches that have any. Raises CorruptBatchError for a
        marker that is too short.
        """
        rows, is_batch = _lines(run, chosen, with_batches=form.with_batches)
        program = self._program_of(form)
        if program is None:
            for start in range(0, len(rows), _MOST_DEFINED):
                yield from _defined(form, run, rows, is_batch, start, start + _MOST_DEFINED)
            return
        yield from self._written(form, run, rows, is_batch, program)

    def _program_of(self, form: LineForm) -> _Program | None:
        of_any_log = replace(form, label="", file=_ANY_FILE)
        if of_any_log not in self._programs:
            self._programs[of_any_log] = _program(of_any_log)
        return self._programs[of_any_log]

    def _written(
        self, form: LineForm, run: RecordRun, rows: Column, is_batch: Mask, program: _Program
    ) -> Iterator[bytes | memoryview]:
        values = _record_values(run), _batch_values(run)
        starts = np.concatenate(
            (np.arange(len(_RECORD_VALUES)) * len(run), values[0].size + np.arange(len(_BATCH_VALUES)) * len(run.table))
        )
        operations, literals = program.of_log(form)
        kinds = _kinds(form, run, rows, is_batch, program)
        flat = np.concatenate((values[0].ravel(), values[1].ravel()))
        first, defined = 0, 1
        while first < len(rows):
            before = first
            first, size, _ = kernels.write_lines(
                run.data, flat, starts, rows, kinds, first, len(rows), program.programs, operations, literals, self._out
            )
            if size:
                yield self._out[:size].data
                defined = 1 if first - before >= _WORTH_A_CALL else defined
            elif first < len(rows):  # A line that only the definition writes. There may be many of them.
                yield from _defined(form, run, rows, is_batch, first, first + defined)
                first, defined = first + defined, min(2 * defined, _MOST_DEFINED)


def _kinds(form: LineForm, run: RecordRun, rows: Column, is_batch: Mask, program: _Program) -> Bytes:
    """Return the kind of each line."""
    of_batch = program.kind_of_attributes[run.table[:, ATTRIBUTES] & _ATTRIBUTES]
    of_batch[run.table[:, MAGIC] != 2] = _BY_DEFINITION
    records = rows[~is_batch]
    attributes = run.batch_column(ATTRIBUTES)[records]
    key = _field_kinds(run.data, records, run.key_start, run.key_size, is_raw="key" in program.raw_fields)
    value = _field_kinds(run.data, records, run.value_start, run.value_size, is_raw="payload" in program.raw_fields)
    of_record = _record_kind(attributes & LOG_APPEND_TIME_BIT != 0, key, value)
    is_unusual = (run.headers_count[records] > 0) | (attributes & CONTROL_BIT != 0)
    is_unusual |= run.batch_column(MAGIC)[records] != 2
    is_unusual |= (key == FIELD_UNDECIDED) | (value == FIELD_UNDECIDED)
    if _shows_data(form) and not form.as_json:  # A byte becomes two characters at most.
        is_unusual |= 2 * np.maximum(run.key_size, run.value_size)[records] > MAX_SHOWN_CHARS
    of_record[is_unusual] = _BY_DEFINITION
    kinds = np.empty(len(rows), np.uint8)
    kinds[is_batch], kinds[~is_batch] = of_batch[rows[is_batch]], of_record
    return kinds


def _field_kinds(data: Bytes, rows: Column, starts: Column, sizes: Column, *, is_raw: bool) -> Bytes:
    """Return the kind of the key or the value of some records. If it is not shown as it is, only null matters."""
    if not is_raw:
        return np.where(sizes[rows] < 0, FIELD_NULL, FIELD_TEXT).astype(np.uint8)
    kinds = np.empty(len(rows), np.uint8)
    kernels.field_kinds(data, rows, starts, sizes, kinds)
    return kinds


def _defined(form: LineForm, run: RecordRun, rows: Column, is_batch: Mask, first: int, end: int) -> Iterator[bytes]:
    """Yield some lines as the definition writes them."""
    lines, headers = [], dict[int, tuple[Header, int]]()
    try:
        for row, of_batch in zip(rows[first:end].tolist(), is_batch[first:end].tolist(), strict=True):
            number = row if of_batch else int(run.batch[row])
            if number not in headers:
                headers[number] = run.header(number)
            header, position = headers[number]
            if of_batch:
                lines.append(form.batch_line(header, position, is_valid=True))
            else:
                lines.append(form.record_line(header, position, run.record(row)))
    except CorruptBatchError:
        yield encoded("".join(lines))
        raise
    yield encoded("".join(lines))


def _lines(run: RecordRun, chosen: Mask | None, *, with_batches: bool) -> tuple[Column, Mask]:
    """Return the row of each line in its table, of batches or of records, and whether it is the line of a batch."""
    records = np.arange(len(run)) if chosen is None else np.flatnonzero(chosen)
    if not with_batches:
        return records, np.zeros(len(records), bool)
    batch = run.batch[records]
    batches = np.arange(len(run.table)) if chosen is None else np.unique(batch)
    rows, is_batch = np.empty(len(records) + len(batches), np.int64), np.zeros(len(records) + len(batches), bool)
    is_batch[np.arange(len(batches)) + np.searchsorted(batch, batches)] = True
    rows[is_batch], rows[~is_batch] = batches, records
    return rows, is_batch


def _record_values(run: RecordRun) -> Table:
    every = slice(None)
    return np.stack([*(field.get(run, every) for field in OF_RECORDS.values()), run.key_start, run.value_start])


def _batch_values(run: RecordRun) -> Table:
    return np.stack([field.get(run, slice(None)) for field in _NUMBERS_OF_BATCH])


# Programs


def _record_kind(is_append_time: Any, key_kind: Any, value_kind: Any) -> Any:
    return len(_EXAMPLES) * (len(_EXAMPLES) * is_append_time + key_kind) + value_kind


def _shows_data(form: LineForm) -> bool:
    return form.print_data or form.decoder is not None


def _decoders(form: LineForm) -> dict[str, str | None] | None:
    """Return the decoders of key and payload by name; None if a record is decoded as a whole."""
    if form.decoder is None:
        return dict.fromkeys(("key", "payload"))
    return form.decoder.names if isinstance(form.decoder, FieldDecoder) else None


def _program(form: LineForm) -> _Program | None:
    """Return the programs of the lines of a form: of records by their kind, then of batches by their attributes.

    None if the kernel cannot write the lines of records.
    """
    text = QUOTED if form.as_json else PLAIN
    known = {None: text, "utf8": text, "hex": HEX, "base64": BASE64}
    decoders = _decoders(form)
    if decoders is None or not known.keys() >= set(decoders.values()):
        return None
    content = {field: known[name] for field, name in decoders.items()} | {
        f"{field}Base64": BASE64 for field in decoders
    }
    lines = [
        _with_placeholders(
            form.record_fields(_header(append_time * LOG_APPEND_TIME_BIT), 0, Record(0, 0, key, value)), _RECORD_VALUES
        )
        for append_time in (0, 1)
        for key in _EXAMPLES.values()
        for value in _EXAMPLES.values()
    ]
    kind_of_attributes = np.full(_ATTRIBUTES + 1, _BY_DEFINITION, np.int64)
    for attributes in range(_ATTRIBUTES + 1):
        if attributes & CODEC_MASK <= Codec.ZSTD:
            kind_of_attributes[attributes] = len(lines)
            header = header_fields(_header(attributes), 0, is_valid=True)
            lines.append(_with_placeholders(header, _BATCH_VALUES, len(_RECORD_VALUES)))
    literals, programs, operations = bytearray(), [], list[tuple[int, int, int]]()
    for number, fields in enumerate(lines):
        is_record = number < kind_of_attributes[0]
        start = len(operations)
        if form.as_json:
            operations.append((LITERAL, _FILE_FIELD, _FILE_FIELD))
        line = form.printed(fields, is_record=is_record).removeprefix(_file_field(form))
        shown = [(content[name], *map(_RECORD_VALUES.index, _CONTENT[name])) for name in fields if name in content]
        _cut(line, {value: (operation, size) for operation, value, size in shown}, literals, operations)
        programs.append((start, len(operations)))
    return _Program(
        np.array(programs, np.int64),
        np.array(operations, np.int64).reshape(-1, LINE_COLUMNS),
        np.frombuffer(bytes(literals), np.uint8),
        kind_of_attributes,
        tuple(field for field, name in decoders.items() if name is None) if _shows_data(form) else (),
    )


def _header(attributes: int) -> Header:
    return Header(0, 0, 0, 2, 0, attributes, 0, NO_TIMESTAMP, 0, 0, 0, 0, 0)


def _file_field(form: LineForm) -> str:
    """Return what all lines of a log begin with."""
    return json.dumps({"file": form.label})[:-1] if form.as_json else ""


def _with_placeholders(fields: Mapping[str, Any], values: tuple[str, ...], first_value: int = 0) -> dict[str, Any]:
    """Return fields with a placeholder for each number, and for key and payload unless they are null.

    `first_value` is the number of the first of the `values`.
    """
    placeholder_fields = dict(fields)
    for name, value in fields.items():
        if name in _CONTENT and value is not None:
            placeholder_fields[name] = str(_PLACEHOLDER + first_value + values.index(_CONTENT[name][0]))
        elif type(value) is int:
            placeholder_fields[name] = _PLACEHOLDER + first_value + values.index("time" if name in _TIMES else name)
    return placeholder_fields


def _cut(
    line: str, fields: Mapping[int, tuple[int, int]], literals: bytearray, operations: list[tuple[int, int, int]]
) -> None:
    """Add the operations that write a line. Of key and payload, `fields` has operation and size by the placeholder."""
    pieces = re.split(rf"({_PLACEHOLDER // 100}\d\d)", line)
    for literal, placeholder in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        start = len(literals)
        literals += encoded(literal)
        operations.append((LITERAL, start, len(literals)))
        if placeholder:
            value = int(placeholder) - _PLACEHOLDER
            operation, size = fields.get(value, (NUMBER, 0))
            operations.append((operation, value, size))
