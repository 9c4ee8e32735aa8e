"""Values as people read them: sizes, times, shares, and names and paths that a terminal can show on one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
"""The units of sizes, each 1024 times the one before."""
NAMED_AT_MOST = 3
MAX_SHOWN_CHARS = 4096
"""A message or a cell that is longer is cut."""


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


def minute(timestamp_ms: int | None) -> str:
    """Return a timestamp as short text: `2024-01-01 10:00`, UTC."""
    text = time(timestamp_ms)
    return f"{text[:10]} {text[11:16]}" if text.endswith("Z") else text


_DURATION_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(duration_ms: int) -> str:
    """Return milliseconds with their two largest units: `7 d`, `2 h 5 min`, `12 ms`.

    A duration between two timestamps of producers can be negative.
    """
    if duration_ms <= -1000:
        return f"-{duration(-duration_ms)}"
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    rest, parts = duration_ms // 1000, list[str]()
    for unit_s, name in _DURATION_UNITS:
        count, rest = divmod(rest, unit_s)
        if count or parts:
            parts.append(f"{count:,} {name}" if count else "")
    return " ".join(filter(None, parts[:2]))


def percent(part: float, whole: float) -> str:
    """Return a share: `12.5 %`, a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def span(least: int, most: int) -> str:
    """Return a range that includes both ends: `2 to 3`, or the one number."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def some_of(names: Sequence[str], *, at_most: int | None = NAMED_AT_MOST, separator: str = ", ") -> str:
    """Return names with commas; of more than `at_most` only some, and how many more there are. None: all names."""
    if at_most is None or len(names) <= at_most:
        return separator.join(names)
    return f"{separator.join(names[:at_most])} and {len(names) - at_most:,} more"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 segment`, `2 segments`, and with a plural of its own `2 batches`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


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


def safe(text: str | bytes, *, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Return text from outside as `shown` does, cut if it is very long. Bytes are read as UTF-8."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    cut = len(text) - max_chars
    return shown(text[:max_chars]) + f"... ({cut:,} more)" if cut > 0 else shown(text)


def safe_lines(text: str) -> str:
    """Return text of several lines with each line made safe."""
    return "\n".join(safe(line) for line in text.split("\n"))


def path_from_here(directory: Path) -> str:
    """Return a path, relative to the working directory if it is below it."""
    try:
        return safe(str(directory.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return safe(str(directory))


def relative_to_here(text: str) -> str:
    """Return a message with paths below the working directory made relative, not the ends of other paths and URLs."""
    try:
        here = shown(f"{Path.cwd()}{os.sep}")
    except OSError:
        return text
    return re.sub(rf"(?<![\w./-]){re.escape(here)}", "", text) if here != "//" else text


def within(directory: Path, text: str) -> str:
    """Return a message about a directory with the path of the directory left out, for where its name is shown."""
    name = shown(directory)
    return text.removeprefix(f"{name}: ").replace(f"{name}{os.sep}", "")


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
