"""Writes lines of text from columns of numbers and fields of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    BASE64,
    DONE,
    FIELD_BINARY,
    FIELD_NULL,
    FIELD_TEXT,
    FIELD_UNDECIDED,
    FULL,
    HEX,
    LITERAL,
    NUMBER,
    QUOTED,
    UNDECIDED,
)
from kcompact.kernels.loops.memory import copy_bytes, loop

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Column, Table

_MAX_DIGITS = 20
"""The digits of a 64-bit integer, and its sign."""
_BACKSLASH, _QUOTE, _EQUALS, _MINUS, _ZERO = 0x5C, 0x22, 0x3D, 0x2D, 0x30
_TAB, _LINE_FEED, _CARRIAGE_RETURN = 0x09, 0x0A, 0x0D


@loop
def _write_number(out, position, value):
    """Write an integer in decimal; return the position after it. There must be room for `_MAX_DIGITS`."""
    rest = np.uint64(value)
    if value < 0:
        out[position] = _MINUS
        position += 1
        rest = ~rest + np.uint64(1)
    digits = 1
    power = np.uint64(10)
    while digits < 19 and rest >= power:
        digits += 1
        power *= np.uint64(10)
    for at in range(position + digits - 1, position - 1, -1):
        quotient = rest // np.uint64(10)
        out[at] = np.uint8(_ZERO) + np.uint8(rest - quotient * np.uint64(10))
        rest = quotient
    return position + digits


@loop
def _write_plain(out, position, data, start, end, is_quoted):
    """Write printable ASCII, with backslashes before quotes and backslashes if `is_quoted`.

    Returns the position after it, -1 if another byte is found. There must be room for twice the bytes.
    """
    for at in range(start, end):
        byte = data[at]
        if byte < 0x20 or byte > 0x7E:
            return np.int64(-1)
        if is_quoted and byte in (_QUOTE, _BACKSLASH):
            out[position] = _BACKSLASH
            position += 1
        out[position] = byte
        position += 1
    return position


@loop
def _hex_digit(value):
    return value + 0x30 if value < 10 else value + 0x57


@loop
def _write_hex(out, position, data, start, end):
    """Write two digits for each byte; return the position after them."""
    for at in range(start, end):
        byte = np.int64(data[at])
        out[position] = _hex_digit(byte >> 4)
        out[position + 1] = _hex_digit(byte & 15)
        position += 2
    return position


@loop
def _base64_digit(value):
    if value < 26:
        return value + 0x41
    if value < 52:
        return value + 0x47
    if value < 62:
        return value - 4
    return np.int64(0x2B if value == 62 else 0x2F)


@loop
def _write_base64(out, position, data, start, end):
    """Write bytes in base64, padded; return the position after them. There must be room for four for each three."""
    while start < end:
        count = min(np.int64(3), end - start)
        group = np.int64(data[start]) << 16
        if count > 1:
            group |= np.int64(data[start + 1]) << 8
        if count > 2:
            group |= np.int64(data[start + 2])
        out[position] = _base64_digit(group >> 18)
        out[position + 1] = _base64_digit(group >> 12 & 63)
        out[position + 2] = _base64_digit(group >> 6 & 63) if count > 1 else np.int64(_EQUALS)
        out[position + 3] = _base64_digit(group & 63) if count > 2 else np.int64(_EQUALS)
        position += 4
        start += 3
    return position


@loop
def _utf8_size(data, at, end):
    """Return the size of the UTF-8 character at a byte above 0x7F, 0 if there is none."""
    lead = data[at]
    if lead < 0xC2 or lead > 0xF4:
        return 0
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if size > end - at:
        return 0
    # The second byte of some characters has a smaller range: no longer form than needed, no surrogate, no code point
    # above U+10FFFF.
    least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if data[at + 1] < least or data[at + 1] > most:
        return 0
    for follower in range(at + 2, at + size):
        if data[follower] & 0xC0 != 0x80:
            return 0
    return size


@loop
def _field_kind(data, at, end):
    """Return the kind of a field that is not null."""
    kind = FIELD_TEXT
    while at < end:
        byte = data[at]
        size = 1
        if byte > 0x7F:
            size = _utf8_size(data, at, end)
            if size == 0:
                return FIELD_BINARY
            kind = FIELD_UNDECIDED
        elif byte < 0x20 or byte == 0x7F:
            if byte not in (_TAB, _LINE_FEED, _CARRIAGE_RETURN):
                return FIELD_BINARY
            kind = FIELD_UNDECIDED
        at += size
    return kind


@loop
def field_kinds(data: Bytes, rows: Column, starts: Column, sizes: Column, kinds: Bytes) -> None:
    """starts, sizes i64[n] (size -1: null) -> kinds u8[len(rows)].

    The kind of the field of each row: FIELD_TEXT, FIELD_BINARY, FIELD_NULL or FIELD_UNDECIDED. Definition:
    `cli.output.dump.raw_field`.
    """
    for number in range(min(len(rows), len(kinds))):
        row = rows[number]
        start, size = starts[row], sizes[row]
        if size < 0:
            kinds[number] = FIELD_NULL
        elif start < 0 or size > len(data) - start:
            kinds[number] = FIELD_UNDECIDED
        else:
            kinds[number] = _field_kind(data, start, start + size)


@loop
def write_lines(
    data: Bytes,
    values: Column,
    starts: Column,
    rows: Column,
    kinds: Bytes,
    first: int,
    end: int,
    programs: Table,
    operations: Table,
    literals: Bytes,
    out: Bytes,
) -> tuple[int, int, int]:
    """programs i64[p, 2], operations i64[q, 3] -> (lines done, bytes written, code).

    Writes the lines [first, end). A line of kind k has the operations from `programs[k, 0]` to `programs[k, 1]`. Their
    numbers, except those of literals, are columns of values: `starts` has the position of the first value of each. A
    field of bytes has a column of starts and one of sizes. Stops at a line that has no room (FULL), and at one that the
    definition must write (UNDECIDED): its kind has no program, a field is null, or PLAIN and QUOTED do not write its
    bytes. Definition: `cli.output.dump.line`, `json.dumps`.
    """
    position = np.int64(0)
    for number in range(first, end):
        kind, row = np.int64(kinds[number]), rows[number]
        if kind >= programs.shape[0]:
            return number, position, UNDECIDED
        line_start = position
        for step in range(programs[kind, 0], programs[kind, 1]):
            operation = operations[step, 0]
            if operation == LITERAL:
                start, count = operations[step, 1], operations[step, 2] - operations[step, 1]
                if count > len(out) - position:
                    return number, line_start, FULL
                copy_bytes(out, position, literals, start, count)
                position += count
                continue
            value = values[starts[operations[step, 1]] + row]
            if operation == NUMBER:
                if len(out) - position < _MAX_DIGITS:
                    return number, line_start, FULL
                position = _write_number(out, position, value)
                continue
            count = values[starts[operations[step, 2]] + row]
            if value < 0 or count < 0 or count > len(data) - value:
                return number, line_start, UNDECIDED
            if (len(out) - position - 4) // 2 < count:
                return number, line_start, FULL
            if operation == HEX:
                position = _write_hex(out, position, data, value, value + count)
            elif operation == BASE64:
                position = _write_base64(out, position, data, value, value + count)
            else:
                position = _write_plain(out, position, data, value, value + count, operation == QUOTED)
                if position < 0:
                    return number, line_start, UNDECIDED
    return end, position, DONE
