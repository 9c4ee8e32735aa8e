"""What `docs/json.md` and `docs/schema` say about the JSON, made from the fields that `kcompact.cli.json` declares."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kcompact.cli.json
from kcompact.cli.json.fields import Document, Field, JsonLine, Shape, schema_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE, SCHEMAS = DOCS / "json.md", DOCS / "schema"
BEGIN, END = "<!-- fields: what follows is written by `make rewrite` -->", "<!-- end of the fields -->"
ORDER = (
    *("inspect", "verify", "keys", "gaps", "transactions", "groups", "inspect --batches", "records"),
    *("compare", "search-key", "plan", "clean", "recover", "restore", "doctor", "report"),
)
MANY = 3
"""What more commands have in common is in one section of the page."""


def printed() -> dict[str, Document | JsonLine]:
    """Return what the commands print as JSON, by command, in the order of the page."""
    found: dict[str, Document | JsonLine] = {}
    for module in pkgutil.iter_modules(kcompact.cli.json.__path__):
        declared = vars(importlib.import_module(f"kcompact.cli.json.{module.name}")).values()
        found |= {each.command: each for each in declared if isinstance(each, Document | JsonLine)}
    assert sorted(found) == sorted(ORDER)
    return {command: found[command] for command in ORDER}


PRINTED = printed()


def file_of(command: str) -> Path:
    """Return the file with the JSON Schema of a command."""
    return SCHEMAS / f"{command.removeprefix('inspect --')}.json"


def schemas() -> dict[Path, dict[str, Any]]:
    """Return the JSON Schemas by file."""
    return {file_of(command): schema_of(shape, f"kcompact {command} --json") for command, shape in PRINTED.items()}


def schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# The page


class Place(NamedTuple):
    """Where an object is: the command that prints it, and the path in its document."""

    command: str
    path: str


def page_text(text: str) -> str:
    """Return the page with the tables of today."""
    before, rest = text.split(f"{BEGIN}\n")
    _, after = rest.split(f"{END}\n")
    return f"{before}{BEGIN}\n\n{tables()}{END}\n{after}"


def tables() -> str:
    """Return the tables of all objects: first those that many commands print, then command by command."""
    sections: dict[tuple[str, ...], list[str]] = {}
    for places, shapes in _tables():
        commands = tuple(dict.fromkeys(each.command for each in places))
        heading = () if len(commands) > MANY else commands
        sections.setdefault(heading, []).append(_table(places, shapes, with_commands=not heading))
    text = ""
    for commands in sorted(sections, key=lambda commands: [ORDER.index(each) for each in commands]):
        title = ", ".join(map(_code, commands)) if commands else "Several commands"
        text += f"## {title}\n\n" + "".join(f"{table}\n" for table in sections[commands])
    return text


def _tables() -> list[tuple[list[Place], list[Shape]]]:
    """Return the objects that have fields of their own, with their places; together those that can be at one."""
    places: dict[int, list[Place]] = {}
    shapes: dict[int, Shape] = {}
    for command, printed in PRINTED.items():
        for path, shape in printed.places():
            for part in _parts(shape):
                key = id(part.declared)
                if key not in shapes or not part.may_be_missing:
                    shapes[key] = part
                found = places.setdefault(key, [])
                if (place := Place(command, path)) not in found:
                    found.append(place)
    tables: dict[tuple[object, ...], tuple[list[Place], list[Shape]]] = {}
    for key, found in places.items():
        # A sentence on the fields of a shape is true of these alone.
        table = key if shapes[key].meaning and not shapes[key].variant else shapes[key].variant != ""
        tables.setdefault((*found, table), (found, []))[1].append(shapes[key])
    return list(tables.values())


def _parts(shape: Shape) -> Iterator[Shape]:
    """Yield the shapes that declare the fields of an object."""
    if shape.declared.own:
        yield shape
    for member in shape.declared.members:
        if isinstance(member, Shape):
            yield from _parts(member)


def _table(places: list[Place], shapes: list[Shape], *, with_commands: bool) -> str:
    root = "A line" if shapes[0].variant else "The document"
    paths = ", ".join(_code(path) if path else root for path in dict.fromkeys(each.path for each in places))
    commands = ", ".join(_code(command) for command in dict.fromkeys(each.command for each in places))
    text = f"### {paths}" + (f" of {commands}" if with_commands else "") + "\n\n"
    text += "".join(f"{meaning}\n\n" for meaning in dict.fromkeys(shape.meaning for shape in shapes) if meaning)
    if not shapes[0].variant:
        rows = _merged(_rows(shapes))
        return text + _lines(("field", "value", "meaning"), ((row.names, row.value, row.meaning) for row in rows))
    of: dict[_Row, list[str]] = {}
    for shape in shapes:
        for each in shape.own:
            value = "string" if "const" in each.kind.schema else _value(each.kind.schema)
            of.setdefault(_Row(each.name, value, _meaning(each)), []).append(shape.variant)
    return text + _lines(
        ("field", "of", "value", "meaning"),
        (
            (_code(row.names), ", ".join(map(_code, names)) if len(names) < len(shapes) else "all", *row[1:])
            for row, names in of.items()
        ),
    )


def _rows(shapes: Iterable[Shape]) -> Iterator[_Row]:
    for shape in shapes:
        kinds = {each.name: each.kind.schema for each in shape.fields}
        for each in shape.declared.own:
            if each.name not in ("version", "command"):  # The beginning of the page explains them.
                yield _Row(each.name, _value(kinds[each.name]), _meaning(each))


class _Row(NamedTuple):
    names: str
    value: str
    meaning: str


def _merged(rows: Iterable[_Row]) -> list[_Row]:
    """Return the rows, neighbours with the same meaning as one."""
    found: list[_Row] = []
    for row in rows:
        if found and found[-1][1:] == row[1:]:
            found[-1] = found[-1]._replace(names=f"{found[-1].names}, {_code(row.names)}")
        else:
            found.append(row._replace(names=_code(row.names)))
    return found


def _lines(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, ("---",) * len(heading), *rows))


def _meaning(field: Field) -> str:
    return f"{field.given}: {field.meaning}" if field.given else field.meaning


def _value(schema: dict[str, Any]) -> str:
    """Return what a value is, in words."""
    match schema:
        case {"const": value}:
            return _code(json.dumps(value).strip('"'))
        case {"enum": words}:
            return ", ".join("null" if word is None else _code(word) for word in words)
        case {"anyOf": [one, {"type": "null"}]}:
            return f"{_value(one)} or null"
        case {"$ref": _} | {"oneOf": _}:
            return "object"
        case {"type": ["array", "null"], "items": items}:
            return f"list of {_plural(_value(items))}, or null"
        case {"type": "array", "items": items}:
            return f"list of {_plural(_value(items))}"
        case {"type": "object", "additionalProperties": values}:
            return f"{_value(values)} by name"
        case {"type": list(types)}:
            return " or ".join(types)
        case {"type": str(kind)}:
            return kind
    return "any"


def _plural(value: str) -> str:
    return f"{value}s" if value.isalpha() else value.replace("list of", "lists of", 1)


def _code(text: str) -> str:
    return f"`{text}`"
