"""JSON that decides what is renamed and deleted: whole numbers only, exactly the expected fields, none of them twice.

All functions raise ValueError for anything else.
"""

from __future__ import annotations

import json
from typing import Any


def parsed(content: bytes) -> object:
    """Return a document. A field that occurs twice and a number that is not whole are errors."""
    return json.loads(content, object_pairs_hook=_object, parse_float=_no_number, parse_constant=_no_number)


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """Return an object that has exactly these fields."""
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError(f"expected an object of {', '.join(names)}")
    return value


def list_of(value: object) -> list[object]:
    """Return a list."""
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def text_of(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def integer_of(value: object, *, least: int = 0) -> int:
    """Return a whole number from `least` to 2**64 - 1."""
    if type(value) is not int or not least <= value < 2**64:
        raise ValueError("expected a whole number")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is not a whole number")
