"""Values as Java reads them from text, for settings and small text files.

Java and Python differ: `0.9d` and `0x1p-1` are numbers of Java alone; `1_0`, `inf` and a number beside a no-break space
are numbers of Python alone. Both read the integers `+5` and `٥`. Rules: `Integer.parseInt`, `Double.parseDouble`,
`String.trim`, and `ConfigDef.parseType`, which trims a text before it reads a value.
"""

from __future__ import annotations

import math
import re
from unicodedata import decimal

_TRIMMED = "".join(map(chr, range(0x21)))
_LAST_OF_ONE_CHAR = "\uffff"
"""Java looks at single `char`s, so a digit that takes two of them is none."""
_NO_INTEGER = 1 << 64
"""Above what any of Java's types can contain."""
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?",
)
_WORD = re.compile(r"([+-]?)(NaN|Infinity)")
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


def trimmed(text: str) -> str:
    """Return a text without the control characters and spaces around it. Rule: `String.trim`."""
    return text.strip(_TRIMMED)


def read_integer(text: str) -> int | None:
    """Return the integer of a text, None for any other text. One that no type of Java contains is 2^64 or -2^64."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    value = 0
    for character in digits:
        digit = decimal(character, None) if character <= _LAST_OF_ONE_CHAR else None
        if digit is None:
            return None
        value = min(10 * value + digit, _NO_INTEGER)
    if not digits:
        return None
    return -value if text.startswith("-") else value


def read_double(text: str) -> float | None:
    """Return the number of a text, which can be infinite or NaN, None for any other text."""
    text = trimmed(text)
    if (match := _DECIMAL.fullmatch(text)) is not None:
        return float(match[1])
    if (match := _HEXADECIMAL.fullmatch(text)) is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return float(text) if _WORD.fullmatch(text) is not None else None


def read_boolean(text: str) -> bool | None:
    """Return whether a text is `true` in any case, None if it is neither that nor `false`.

    `ſ` is an `s` too. Rule: `String.equalsIgnoreCase`.
    """
    return {"true": True, "false": False}.get(trimmed(text).casefold())


def read_list(text: str) -> list[str]:
    """Return the words between commas. Rule: `ConfigDef.parseType`, where only an empty text is an empty list."""
    text = trimmed(text)
    return _COMMA.split(text) if text else []
