"""Values as text for a terminal: escaped, relative to the working directory, numbers as Java prints them."""

from __future__ import annotations

import os
import re
from decimal import ROUND_HALF_UP, Decimal
from math import isinf, isnan
from pathlib import Path

from kcompact import readable

MAX_SHOWN_CHARS = 4096


def safe(text: str | bytes, *, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Return text from outside so that a terminal can safely show it, cut if it is very long.

    Bytes are read as UTF-8. Unprintable characters become `\\xNN`, `\\uNNNN` or `\\UNNNNNNNN`; a backslash stays.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    cut = len(text) - max_chars
    if cut > 0:
        text = text[:max_chars]
    return readable.shown(text) + (f"... ({cut:,} more)" if cut > 0 else "")


def safe_lines(text: str) -> str:
    """Return text of several lines with each line made safe."""
    return "\n".join(safe(line) for line in text.split("\n"))


def path(directory: Path) -> str:
    """Return a path, relative to the working directory if it is below it."""
    try:
        return safe(str(directory.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return safe(str(directory))


def relative_to_here(text: str) -> str:
    """Return a message with paths below the working directory made relative, not the ends of other paths and URLs."""
    try:
        here = readable.shown(f"{Path.cwd()}{os.sep}")
    except OSError:
        return text
    return re.sub(rf"(?<![\w./-]){re.escape(here)}", "", text) if here != "//" else text


def within(directory: Path, text: str) -> str:
    """Return a message about a directory with the path of the directory left out, for where its name is shown."""
    name = readable.shown(directory)
    return text.removeprefix(f"{name}: ").replace(f"{name}{os.sep}", "")


def java_number(value: float, digits: int = 1) -> str:
    """Return a number as Java's `%,.1f` prints it: grouped, half rounded up, `NaN` and `Infinity` by name."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def ratio(part: float, whole: float) -> float:
    """Return a quotient as Java computes it: NaN for 0/0, infinity for any other number over 0."""
    if whole == 0:
        return float("nan") if part == 0 else float("inf")
    return part / whole
