"""`format.java_values`: texts that Java and Python read differently. `tests/spark` compares more of them with Java."""

from __future__ import annotations

import math

import pytest

from kcompact.format.java_values import read_boolean, read_double, read_integer, read_list, trimmed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5),
        ("+5", 5),
        ("-05", -5),
        ("-0", 0),
        ("\u0665\u0660", 50),
        ("5\u0660\uff11", 501),
        ("0" * 5000 + "7", 7),
        (str(2**63), 2**63),
        ("-" + "9" * 5000, -(2**64)),
        *((text, None) for text in ("", "+", "-", "+-5", "--5", "1_0", " 5", "5 ", "5\xa0", "5.0", "0x5", "5L")),
        *((text, None) for text in ("\U0001d7d3", "\xb2", "\u2166", "\u4e94", "five", "5\0")),
    ],
)
def test_integers(text: str, expected: int | None) -> None:
    assert read_integer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0.9", 0.9), ("0.9d", 0.9), ("0.9F", 0.9), (".5", 0.5)),
        *(("5.", 5.0), ("+5", 5.0), ("1e-3", 0.001), ("1.E2", 100.0)),
        *(("0x1p-1", 0.5), ("0X.8P0d", 0.5), ("-0x1.8p1", -3.0), ("0x1.p0", 1.0), ("0x1p99999999999", math.inf)),
        *(("-0x1p9999", -math.inf), ("0x1p-99999999999", 0.0), ("1e99999999999", math.inf), ("0e99999999999", 0.0)),
        *(("Infinity", math.inf), ("+Infinity", math.inf), ("-Infinity", -math.inf), ("\0 7 \x1f", 7.0)),
        *((text, None) for text in ". e5 1e 1e+ 1_0 inf nan infinity INFINITY NaNd \u0665 5dd 5L 1,5".split()),
        *((text, None) for text in ("", "5\xa0", "\x855", "0x1", "0x.p1", "0x1.8", "0x1p", "0xp1")),
    ],
)
def test_doubles(text: str, expected: float | None) -> None:
    assert read_double(text) == expected


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN", " NaN\n"])
def test_not_a_number(text: str) -> None:
    assert math.isnan(read_double(text) or 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        (" TRUE\t", True),
        ("fal\u017fe", False),
        *((text, None) for text in ("yes", "", "true\xa0", "t")),
    ],
)
def test_booleans(text: str, expected: bool | None) -> None:
    assert read_boolean(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("", []), (" \0", []), ("a", ["a"]), (" a\t,\x0b b ", ["a", "b"]), (",", ["", ""]), ("a,", ["a", ""])),
        *(("a\xa0, b", ["a\xa0", "b"]), ("a\x1c,b", ["a\x1c", "b"]), ("A b", ["A b"])),
    ],
)
def test_lists(text: str, expected: list[str]) -> None:
    assert read_list(text) == expected


def test_what_is_trimmed() -> None:
    assert trimmed("".join(map(chr, range(0x21))) + "x\x7f\xa0\u2003") == "x\x7f\xa0\u2003"
