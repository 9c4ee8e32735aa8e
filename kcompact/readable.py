"""Sizes and times as people read them, and names that a terminal can show on one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
"""The units of sizes, each 1024 times the one before."""


def size(count_bytes: int) -> str:
    """Return a number of bytes with a unit: `305 B`, `1.2 GiB`."""
    if abs(count_bytes) < 1024:
        return f"{count_bytes} B"
    value, unit = count_bytes / 1024, 1
    while abs(value) >= 1023.95 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}"


def time(timestamp_ms: int | None) -> str:
    """Return Unix milliseconds as UTC in ISO 8601, `-` for none, the number itself if there is no such date."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    rest = timestamp_ms % 1000
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{rest:03d}Z" if rest else "Z")


_DURATION_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def duration(duration_ms: int) -> str:
    """Return milliseconds in their largest unit, rounded: `7 d`, `1.5 h`, `12 ms`."""
    for unit_ms, unit in _DURATION_UNITS:
        if abs(duration_ms) >= unit_ms:
            rounded = f"{duration_ms / unit_ms:,.1f}".removesuffix(".0")
            return f"{rounded} {unit}"
    return f"{duration_ms} ms"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 segment`, `2 segments`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def printable_text(data: bytes) -> str | None:
    """Return bytes as text if they are printable UTF-8, maybe of several lines; else None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or all(char.isprintable() or char in "\t\r\n" for char in text) else None


# C0, DEL and C1 controls; line and paragraph separators; everything that reorders or hides text; lone surrogates.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    r"|[\U000e0000-\U000e007f]"
)
_SHELL_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def closest(name: str, names: Iterable[str]) -> str:
    """Return the most similar of some names, or an empty text if none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(name, sorted(names), n=1)), "")


def shown(text: object) -> str:
    """Return a name or another text from outside on one line that a terminal can safely show.

    Unprintable characters, ends of lines too, become `\\xNN`, `\\uNNNN` or `\\UNNNNNNNN`; a backslash stays.
    """
    return _UNSAFE.sub(_escaped, str(text))


def shell_word(text: object) -> str:
    """Return a path or another argument as a word of a command that can be pasted into bash, ksh or zsh."""
    word = str(text)
    if _SHELL_WORD.fullmatch(word):
        return word
    if not _UNSAFE.search(word):
        return "'" + word.replace("'", "'\"'\"'") + "'"
    escaped = _UNSAFE.sub(_escaped_bytes, word.replace("\\", "\\\\").replace("'", "\\'"))
    return f"$'{escaped}'"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # `surrogateescape` adds this to a byte that is not UTF-8.
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_bytes(match: re.Match[str]) -> str:
    # Three octal digits end by themselves, whatever follows.
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(match[0]))
