"""Kafka's small text files as lines, words and integers, for checkpoints, properties and `partition.metadata`.

Lines, white space and integers follow Java (`BufferedReader.readLine`, `String.split`, `Integer.parseInt`), which is
stricter and looser than Python in different places.
"""

from __future__ import annotations

import re

from kcompact.errors import CorruptCheckpointError, UnsupportedError
from kcompact.format.java_values import read_integer

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_WHITESPACE = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_SHOWN_CHARACTERS = 80


def split_lines(data: bytes, *, file: str, max_bytes: int) -> list[str]:
    """Return the lines of a text file. Raises CorruptCheckpointError for more than `max_bytes` and for invalid UTF-8.

    Rule: BufferedReader.readLine.
    """
    if len(data) > max_bytes:
        problem = f"the file has {len(data):,} bytes, more than the limit of {max_bytes:,} for such a file"
        raise CorruptCheckpointError(file=file, problem=problem)
    try:
        lines = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(file=file, position=error.start, problem="not UTF-8") from None
    return lines[:-1] if lines[-1] == "" else lines


def split_words(line: str) -> list[str]:
    """Return the words of a line. Leading white space gives an empty first word, trailing white space gives none.

    Rule: String.split with the pattern `\\s+`.
    """
    words = _WHITESPACE.split(line)
    while len(words) > 1 and words[-1] == "":
        words.pop()
    return words


def parse_integer(word: str, *, low: int, high: int, what: str) -> int:
    """Return `word` as an integer. Raises ValueError, naming `what`, for other text and outside [low, high]."""
    number = read_integer(word)
    if number is None or not low <= number <= high:
        raise ValueError(f"{quoted(word)} is not a valid {what}")
    return number


def parse_digits(text: str, *, most: int = 10) -> int | None:
    """Return the number that ASCII digits write, None for any other text and for more than `most` digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most else None


def parse_non_negative(line: str, number: int, *, file: str) -> int:
    """Return the line `number` as an integer from 0 to INT_MAX. Raises CorruptCheckpointError."""
    try:
        return parse_integer(line, low=0, high=INT_MAX, what="number")
    except ValueError as error:
        raise malformed(file, number, str(error)) from None


NEWER_FILE = (
    "If a newer Kafka wrote this file, install a newer kcompact, or let that broker clean the log. Otherwise the file "
    "is damaged: restore it from a backup."
)
"""What to do about a file of an unknown version. Its content decides, so it is refused."""


def unknown_version(file: str, version: int) -> UnsupportedError:
    """Return the error for a file of a partition that has another version than 0."""
    problem = f"line 1: version {version} is unknown, only version 0 is known"
    return UnsupportedError(path=file, problem=problem, hint=NEWER_FILE)


def malformed(file: str, line: int, problem: str) -> CorruptCheckpointError:
    """Return the error for a line, counted from 1."""
    return CorruptCheckpointError(file=file, problem=f"line {line}: {problem}")


def quoted(text: str) -> str:
    """Return text from a file as a message shows it: in quotes, escaped, and cut after 80 characters."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")
