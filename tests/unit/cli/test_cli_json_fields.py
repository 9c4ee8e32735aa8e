"""Shapes: what they make of a value, and the JSON Schema that they have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    KNOWN_OR_NULL,
    NUMBER,
    STRING,
    TEXT,
    VERSION,
    Document,
    Field,
    Shape,
    ValueKind,
    choice,
    list_of,
    map_of,
    nullable,
    one_of,
    schema_of,
    tally,
)
from kcompact.questions.keys.counts import Tally


class Color(StrEnum):
    RED = "red"


TALLY = Tally(2, 30)


@dataclass(frozen=True)
class Part:
    number: int = 1
    path: Path = Path("a")


@dataclass(frozen=True)
class Whole:
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    named: tuple[tuple[Color, Part], ...] = ()
    offset: int = -1
    color: Color = Color.RED
    records: Tally = TALLY


PART = Shape("part", Field("number", INTEGER, "of the part"), Field("where", TEXT, "the path", "path"))
WHOLE = Shape(
    "whole",
    Field("part", nullable(PART), "the part"),
    Field("parts", list_of(PART), "all"),
    Field("named", map_of(PART), "by color", lambda whole: dict(whole.named)),
    Field("offset", KNOWN_OR_NULL, "null for none"),
    Field("color", choice(Color), "its color"),
    *tally("records", "how many"),
    Field("rare", BOOLEAN, "true", lambda _: True, given="with `--rare`"),
)
PRINTED = Document("paint", Field("whole", WHOLE, "the whole"))


def schema() -> dict[str, Any]:
    return schema_of(PRINTED, "kcompact paint")


def test_a_shape_reads_its_fields() -> None:
    part = {"number": 1, "where": "a"}
    whole = Whole(part=Part(), parts=(Part(), Part()), named=((Color.RED, Part()),), offset=0)
    assert WHOLE.of(whole) == {
        "part": part,
        "parts": [part, part],
        "named": {"red": part},
        "offset": 0,
        "color": "red",
        "records": 2,
        "records_bytes": 30,
    }


def test_unknown_is_null() -> None:
    found = WHOLE.of(Whole())
    assert (found["part"], found["offset"]) == (None, None)


def test_a_field_is_there_only_if_it_is_given() -> None:
    assert "rare" not in WHOLE.of(Whole())
    assert WHOLE.of(Whole(), {"with `--rare`"})["rare"] is True
    assert "rare" not in schema()["$defs"]["whole"]["required"]


@pytest.mark.parametrize("part", [None, Part(number=2)])
def test_the_fields_of_a_part_that_is_missing_are_null(part: Part | None) -> None:
    shape = Shape("flat", PART.within("part", or_null=True), Field("color", choice(Color), "its color"))
    expected = {"number": 2, "where": "a"} if part else {"number": None, "where": None}
    assert shape.of(Whole(part=part)) == expected | {"color": "red"}
    assert shape.within(itemgetter(0)).of([Whole(part=part)]) == expected | {"color": "red"}
    assert [field.kind.schema["type"] for field in shape.fields[:2]] == [["integer", "null"], ["string", "null"]]


def test_the_document_has_its_schema() -> None:
    text = PRINTED.of({"whole": Whole(part=Part(), parts=(Part(),))}, {"with `--rare`"})
    assert (text["version"], text["command"]) == (VERSION, "paint")
    validator = Draft202012Validator(schema())
    assert list(validator.iter_errors(text)) == []
    for wrong in ({"more": 1}, {"color": "green"}, {"part": {"number": 1}}, {"parts": None}, {"records": "2"}):
        assert list(validator.iter_errors(text | {"whole": text["whole"] | wrong})), wrong


def test_a_description_says_when_a_field_is_there() -> None:
    assert schema()["$defs"]["whole"]["properties"]["rare"]["description"] == "with `--rare`: true"


def test_one_of_some_shapes() -> None:
    kinds = {
        name: Shape(name, Field("kind", ValueKind({"const": name}), "its name", "color")) for name in ("red", "blue")
    }
    shape = Shape("colored", Field("value", one_of(kinds, by="color"), "one", lambda whole: whole))
    assert shape.of(Whole()) == {"value": {"kind": "red"}}
    assert [each.name for _, each in shape.places()] == ["colored", "red", "blue"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (NUMBER, {"type": ["number", "null"]}),
        (KNOWN_OR_NULL, {"type": ["integer", "null"]}),
        (choice(Color), {"enum": ["red", None]}),
        (list_of(STRING), {"type": ["array", "null"], "items": {"type": "string"}}),
        (PART, {"anyOf": [{"$ref": "#/$defs/part"}, {"type": "null"}]}),
        (ValueKind({}), {}),
    ],
)
def test_nullable(kind: ValueKind, schema: dict[str, Any]) -> None:
    assert nullable(kind).schema == nullable(nullable(kind)).schema == schema


def test_no_number_that_json_lacks() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Document("odd", Field("number", NUMBER, "any")).text(number=float("nan"))
