"""How the JSON of a command is declared: a `Shape` is a table of fields, a `Document` is the shape that is printed.

    SEGMENT = Shape(
        "segment",
        Field("base_offset", INTEGER, "the first offset, as in the name of its files"),
        Field("largest_timestamp_ms", nullable(INTEGER), "the last entry of the time index; null without one"),
        Field("size_bytes", INTEGER, "of its `.log`", "log.size_bytes"),
    )
    SEGMENT.of(segment)            the object: each field is read from the attribute of its name, or from the one given
    SEGMENT.definition()           its JSON Schema

A meaning is a few words, and is written nowhere else: `docs/schema` is made from it.
A field that is None is null, and so are all fields of a part that is missing (`Shape.within`): objects of one shape
have the same fields. Only a field that is `given` with an option is absent without this option.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Set
from enum import StrEnum
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

VERSION = 2
"""Rises when a field of any command is removed or gets another meaning."""

Given = Set[str]
"""The conditions that hold of those under which fields are `given`."""
Write = Callable[[Any, Given], Any]
"""Returns a value that is not None as JSON has it."""


class ValueKind:
    """What the value of a field is: its JSON Schema, and how it is written; None: as it is.

    `inside` are the shapes of the objects in the value, each with the path that leads to it.
    """

    __slots__ = ("inside", "schema", "write")

    def __init__(
        self, schema: dict[str, Any], write: Write | None = None, inside: tuple[tuple[str, Shape], ...] = ()
    ) -> None:
        self.schema = schema
        self.write = write
        self.inside = inside


def _as_text(value: Any, _: Given) -> str:
    return str(value)


INTEGER = ValueKind({"type": "integer"})
NUMBER = ValueKind({"type": "number"})
BOOLEAN = ValueKind({"type": "boolean"})
STRING = ValueKind({"type": "string"})
TEXT = ValueKind({"type": "string"}, _as_text)
"""What has a text: a path, an error, a note."""
ANY = ValueKind({})

UNKNOWN = -1
"""Kafka's number for no timestamp, offset, epoch or sequence."""
KNOWN_OR_NULL = ValueKind({"type": ["integer", "null"]}, lambda number, _: None if number == UNKNOWN else number)
"""An integer that is never negative: -1 is null."""


def choice(words: type[StrEnum] | tuple[str, ...]) -> ValueKind:
    """Return the kind of a value that is one of some words."""
    return ValueKind({"enum": [str(word) for word in words]}, _as_text)


def nullable(kind: ValueKind) -> ValueKind:
    """Return the kind of a value that may be None."""
    schema = kind.schema
    if "$ref" in schema:
        schema = {"anyOf": [schema, {"type": "null"}]}
    elif "null" not in (types := _types(schema)):
        schema = schema | {"type": [*types, "null"]}
    elif "enum" in schema and None not in schema["enum"]:
        schema = schema | {"enum": [*schema["enum"], None]}
    return ValueKind(schema, kind.write, kind.inside)


def _types(schema: dict[str, Any]) -> list[str]:
    types = schema.get("type", "null")  # Without a type the value may be anything.
    return [types] if isinstance(types, str) else types


def list_of(kind: ValueKind) -> ValueKind:
    """Return the kind of a list."""
    write = kind.write
    return ValueKind(
        {"type": "array", "items": kind.schema},
        lambda values, given: list(values) if write is None else [write(each, given) for each in values],
        tuple((f"[]{path}", shape) for path, shape in kind.inside),
    )


def map_of(kind: ValueKind) -> ValueKind:
    """Return the kind of an object whose names are not those of fields."""
    write = kind.write
    return ValueKind(
        {"type": "object", "additionalProperties": kind.schema},
        lambda values, given: {
            str(name): each if write is None else write(each, given) for name, each in values.items()
        },
        tuple((f".*{path}", shape) for path, shape in kind.inside),
    )


class Field:
    """A field of an object: its name, the kind of its value, what that means, and where it is read.

    `source` is the path of an attribute, such as `plan.log.directory`, or a function of the whole value; without one it
    is the attribute of the field's name. `given` says in words when the field is there, if that is not always.
    """

    __slots__ = ("given", "kind", "meaning", "name", "source")

    def __init__(
        self, name: str, kind: ValueKind, meaning: str, source: str | Callable[[Any], Any] = "", *, given: str = ""
    ) -> None:
        self.name = name
        self.kind = kind
        self.meaning = meaning
        self.source = source
        self.given = given

    def read(self, reads: Callable[[str], Callable[[Any], Any]]) -> Callable[[Any], Any]:
        """Return the function that reads the value of the field; `reads` makes one of a name."""
        return self.source if callable(self.source) else reads(self.source or self.name)


def tally(name: str, meaning: str) -> tuple[Field, Field]:
    """Return the fields of a `Tally`: how many there are, and their bytes."""
    return (
        Field(name, INTEGER, meaning, f"{name}.number"),
        Field(f"{name}_bytes", INTEGER, meaning, f"{name}.size_bytes"),
    )


class Shape(ValueKind):
    """The fields of an object; a member that is a shape gives its fields to this one.

    `reads` makes the function that reads a name: an attribute, or with `itemgetter` an item of a mapping. `meaning` is
    what the fields have in common, in a sentence. `variant` is the name of this one among the shapes of `one_of`.
    """

    __slots__ = ("_parts", "declared", "fields", "may_be_missing", "meaning", "members", "name", "variant")

    def __init__(
        self,
        name: str,
        *members: Field | Shape,
        meaning: str = "",
        reads: Callable[[str], Callable[[Any], Any]] = attrgetter,
        variant: str = "",
    ) -> None:
        super().__init__({"$ref": f"#/$defs/{name}"}, self.of, (("", self),))
        self.name = name
        self.members = members
        self.meaning = meaning
        self.variant = variant
        self.may_be_missing = False
        self.declared: Shape = self
        """This shape, or the one whose fields this one reads from a part of a value."""
        self.fields: tuple[Field, ...] = tuple(_flat(members))
        assert len({field.name for field in self.fields}) == len(self.fields), name
        self._parts: list[tuple[str, Callable[[Any], Any], Write | None, str]] = [
            ("", _itself, each.of, "")
            if isinstance(each, Shape)
            else (each.name, each.read(reads), each.kind.write, each.given)
            for each in members
        ]
        """How each member is read. A shape among them has no name: its object gives its fields to this one."""

    def of(self, value: Any, given: Given = frozenset()) -> dict[str, Any]:
        """Return the object that describes a value."""
        json_object: dict[str, Any] = {}
        for name, read, write, condition in self._parts:
            if condition and condition not in given:
                continue
            each = read(value)
            if each is not None and write is not None:
                each = write(each, given)
            if name:
                json_object[name] = each
            else:
                json_object |= each
        return json_object

    def within(self, part: str | Callable[[Any], Any], *, or_null: bool = False) -> Shape:
        """Return the same fields, read from a part of a value; with `or_null` all are null if the part is None."""
        return _Within(self, part if callable(part) else attrgetter(part), or_null=or_null)

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields."""
        return frozenset(each.name for each in self.fields)

    @property
    def own(self) -> tuple[Field, ...]:
        """The fields that are declared here, not in a shape among the members."""
        return tuple(each for each in self.members if isinstance(each, Field))

    def definition(self) -> dict[str, Any]:
        """Return the JSON Schema of the object."""
        about = {"description": self.meaning} if self.meaning else {}
        return about | {
            "type": "object",
            "properties": {each.name: each.kind.schema | {"description": described(each)} for each in self.fields},
            "required": [each.name for each in self.fields if not each.given],
            "additionalProperties": False,
        }

    def places(self, path: str = "") -> Iterator[tuple[str, Shape]]:
        """Yield the shapes of this object and of all objects in it, each with the path that leads to it."""
        yield path, self
        for field in self.fields:
            for more, shape in field.kind.inside:
                yield from shape.places(f"{path}.{field.name}{more}" if path else f"{field.name}{more}")


class _Within(Shape):
    """The fields of a shape, read from a part of a value."""

    __slots__ = ("_part", "_whole")

    def __init__(self, whole: Shape, part: Callable[[Any], Any], *, or_null: bool) -> None:
        fields = whole.fields
        if or_null:
            fields = tuple(
                Field(each.name, nullable(each.kind), each.meaning, each.source, given=each.given) for each in fields
            )
        super().__init__(whole.name, *fields, meaning=whole.meaning)
        self.declared = whole.declared
        self.may_be_missing = or_null
        self._whole = whole
        self._part = part

    def of(self, value: Any, given: Given = frozenset()) -> dict[str, Any]:
        part = self._part(value)
        if part is None:
            return {each.name: None for each in self.fields if not each.given or each.given in given}
        return self._whole.of(part, given)


def _itself(value: Any) -> Any:
    return value


def _flat(members: tuple[Field | Shape, ...]) -> Iterator[Field]:
    for each in members:
        if isinstance(each, Field):
            yield each
        else:
            yield from each.fields


def one_of(shapes: Mapping[str, Shape], by: str = "") -> ValueKind:
    """Return the kind of an object whose shape is found by one of its attributes.

    Without `by` the value is an object that one of the shapes has made.
    """
    name = attrgetter(by) if by else None
    different = list(dict.fromkeys(shapes.values()))
    return ValueKind(
        {"oneOf": [shape.schema for shape in different]},
        None if name is None else lambda value, given: shapes[name(value)].of(value, given),
        tuple(("", shape) for shape in different),
    )


class Document(Shape):
    """The object that a command prints with `--json`."""

    __slots__ = ("command",)

    def __init__(self, command: str, *members: Field | Shape) -> None:
        constants = (
            Field("version", ValueKind({"const": VERSION}), "the version of this JSON", lambda _: VERSION),
            Field("command", ValueKind({"const": command}), "the command", lambda _: command),
        )
        super().__init__("document", *constants, *members, reads=itemgetter)
        self.command = command

    def text(self, given: Given = frozenset(), **content: object) -> str:
        """Return the document as ASCII; `content` has the values of its fields by name.

        Raises ValueError for a number that JSON does not have.
        """
        return json.dumps(self.of(content, given), ensure_ascii=True, allow_nan=False)


class JsonLine:
    """One object of JSON Lines, which a command prints for each batch or record: it has one of some shapes.

    The lines are written by `output.dump` and by kernels.
    """

    def __init__(self, command: str, *shapes: Shape) -> None:
        self.command = command
        self.shapes = shapes

    def places(self) -> Iterator[tuple[str, Shape]]:
        """Yield the shapes of a line, with the path that leads to them."""
        return chain.from_iterable(shape.places() for shape in self.shapes)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a line."""
        return {"oneOf": [shape.schema for shape in self.shapes]}


def described(field: Field) -> str:
    """Return the meaning of a field, with the condition under which it is there."""
    return f"{field.given}: {field.meaning}" if field.given else field.meaning


def schema_of(printed: Document | JsonLine, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a document or a line, which has a definition for each shape in it."""
    shapes = {each.name: each for _, each in printed.places()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **printed.schema,
        "$defs": {name: each.definition() for name, each in shapes.items()},
    }
