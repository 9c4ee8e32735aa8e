"""The keys to search for, with the names under which a statement answers for them, and the file they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kcompact.errors import ConfigError
from kcompact.readable import counted, some_of
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_BYTES_PREFIX = b"hex:"
_BLANKS, _QUOTES, _RETURN = b" \t\v\f\xa0", b"\"'`", b"\r"
_MOST_LINES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedKey:
    """A key, and the names that it was given: labels, numbers of lines or of options."""

    key: bytes
    names: tuple[str, ...]


def named_keys(keys: Sequence[tuple[str, bytes]]) -> list[SearchedKey]:
    """Return the keys with their names, a repeated one once with all of its names."""
    names: dict[bytes, list[str]] = {}
    for name, key in keys:
        names.setdefault(key, []).append(name)
    return [SearchedKey(key=key, names=tuple(own)) for key, own in names.items()]


def keys_in(content: bytes, *, file: str, labels: bool) -> tuple[list[tuple[str, bytes]], list[Note]]:
    """Return the names and the keys in the content of a file, one in each line that is not empty, and what is odd.

    With `labels` a line is LABEL, a tab, KEY; else its number is the name. A key is text, or `hex:` and digits. What is
    not meant as a key can look like one: blanks, quotes and carriage returns are a part of it, and are said.
    Raises ConfigError for a file in UTF-16, and for a line that has no key.
    """
    if content.startswith(_UTF16_MARKS):
        raise ConfigError(path=file, problem="is in UTF-16, as PowerShell writes it; save it as UTF-8")
    odd: dict[str, list[int]] = {}
    names_and_keys = []
    for number, line in enumerate(content.removeprefix(_UTF8_MARK).split(b"\n"), start=1):
        text = line.removesuffix(_RETURN)
        if not text:
            continue
        if b"\0" in text:
            raise ConfigError(path=file, problem=f"line {number} has a NUL byte: text in UTF-16? Bytes are hex:0A1B")
        label, tab, key = text.partition(b"\t") if labels else (b"", b"", text)
        if labels and not (label and tab and key):
            raise ConfigError(path=file, problem=f"line {number} is not LABEL, a tab, KEY")
        for what in _oddities(key):
            odd.setdefault(what, []).append(number)
        name = label.decode("utf-8", "surrogateescape") if labels else f"line {number}"
        names_and_keys.append((name, _bytes_of(key, file, number)))
    return names_and_keys, [_note(what, lines, file) for what, lines in odd.items()]


def _bytes_of(key: bytes, file: str, number: int) -> bytes:
    if not key.startswith(_BYTES_PREFIX):
        return key
    digits = key.removeprefix(_BYTES_PREFIX).decode("utf-8", "replace")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        problem = f"line {number}: 'hex:{digits}' is not hex: and pairs of hexadecimal digits"
        raise ConfigError(path=file, problem=problem) from None


def _oddities(key: bytes) -> Iterator[str]:
    if key[:1] in _BLANKS or key[-1:] in _BLANKS:
        yield "a blank at an end"
    if key[:1] in _QUOTES or key[-1:] in _QUOTES:
        yield "a quote at an end"
    if _RETURN in key:
        yield "a carriage return"


def _note(what: str, lines: Sequence[int], file: str) -> Note:
    return Note.of(
        RemarkCode.ODD_KEYS,
        keys=counted(len(lines), "key"),
        has="has" if len(lines) == 1 else "have",
        what=what,
        file=file,
        line="line" if len(lines) == 1 else "lines",
        lines=some_of(list(map(str, lines)), at_most=_MOST_LINES),
    )
