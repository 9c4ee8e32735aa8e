"""The value of `sasl.jaas.config`: a login module of Java with its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice's secret";

Errors name options, never their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>[\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ | /[^\r\n]*)
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9._$\u00a0-\U0010ffff-]*)
      | "(?P<double>(?:\\.|[^"\\\r\n])*)"? | '(?P<single>(?:\\.|[^'\\\r\n])*)'?
      | (?P<number>-?[0-9.]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """The class name of a login module, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Return the only login module of a `sasl.jaas.config`.

    Raises ValueError with what is wrong, without any value of the text. Rule: JaasConfig, and java.io.StreamTokenizer
    with which Kafka reads the text: a value that is no word, such as one with `!` or one that begins with a digit,
    needs quotation marks.
    """
    tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    words = iter([_word(match) for match in tokens])
    signs = [match["sign"] for match in tokens]
    if not tokens or signs[0]:
        raise ValueError("has no login module")
    name = next(words) or ""
    flag = next(words, None)
    if flag is None or flag.lower() not in _FLAGS:
        raise ValueError(f"needs one of {', '.join(_FLAGS)} after the login module")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and signs[at] != ";":
        key = _word(tokens[at])
        value = _word(tokens[at + 2]) if at + 2 < len(tokens) and signs[at + 1] == "=" else None
        if key is None or value is None:
            of = f"the option '{key}'" if key else "one of its options"
            raise ValueError(f"{of} has no value, or one that needs quotation marks")
        options[key] = value
        at += 3
    if at == len(tokens):
        raise ValueError("does not end with a semicolon")
    if at + 1 < len(tokens):
        raise ValueError("has more than one login module")
    return LoginModule(name=name, options=options)


def _word(match: re.Match[str]) -> str | None:
    """Return the text of a word or of a quoted string, None for a number or a sign."""
    quoted = match["double"] if match["single"] is None else match["single"]
    return match["word"] if quoted is None else _ESCAPE.sub(_unescaped, quoted)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape.isdigit() and escape[0] < "8" else _ESCAPES.get(escape, escape)
