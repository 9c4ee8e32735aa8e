"""Values behave as frozen dataclasses of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A value with each kind of field."""

    path: str
    size_bytes: int = 7
    names: list[str] = field(default_factory=list)
    secret: str = field(default="", repr=False, compare=False)
    upper: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "upper", self.path.upper())


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Ours):
    """One with a field more."""

    count: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The same of the standard library."""

    path: str
    size_bytes: int = 7
    names: list[str] = field(default_factory=list)
    secret: str = field(default="", repr=False, compare=False)
    upper: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "upper", self.path.upper())


def _shown(value: Any) -> str:
    return repr(value).replace("Theirs", "Ours")


USES: dict[str, Callable[[Any], Any]] = {
    "defaults": lambda kind: _shown(kind(path="a")),
    "given": lambda kind: _shown(kind(path="a", size_bytes=1, names=["b"], secret="c")),
    "each has its own list": lambda kind: kind(path="a").names is kind(path="a").names,
    "equal": lambda kind: kind(path="a", secret="b") == kind(path="a", secret="c"),
    "unequal": lambda kind: kind(path="a") == kind(path="b"),
    "another type": lambda kind: kind(path="a") == ("a", 7, []),
    "replaced": lambda kind: _shown(replace(kind(path="a"), size_bytes=2)),
    "as a dict": lambda kind: dataclasses.asdict(kind(path="a")),
    "pickled": lambda kind: pickle.loads(pickle.dumps(kind(path="a", secret="s"))) == kind(path="a"),
    "copied": lambda kind: _shown(copy.deepcopy(kind(path="a"))),
    "slots": lambda kind: hasattr(kind(path="a"), "__dict__"),
    "fields": lambda kind: [each.name for each in dataclasses.fields(kind)],
}


@pytest.mark.parametrize("use", USES)
def test_a_value_is_as_a_dataclass(use: str) -> None:
    assert USES[use](Ours) == USES[use](Theirs)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "missing": lambda kind: kind(size_bytes=1),
    "unknown": lambda kind: kind(path="a", colour="red"),
    "positional": lambda kind: kind("a"),
    "not at the start": lambda kind: kind(path="a", upper="A"),
    "assigned": lambda kind: setattr(kind(path="a"), "path", "b"),
    "new": lambda kind: setattr(kind(path="a"), "colour", "red"),
    "deleted": lambda kind: delattr(kind(path="a"), "path"),
    "hashed with a list": lambda kind: hash(kind(path="a")),
}


@pytest.mark.parametrize("kind", [Ours, Theirs])
@pytest.mark.parametrize("use", REFUSED)
def test_what_a_value_refuses(use: str, kind: type) -> None:
    with pytest.raises((TypeError, FrozenInstanceError)):
        REFUSED[use](kind)


def test_an_error_names_the_field() -> None:
    with pytest.raises(TypeError, match="Ours needs path"):
        Ours(size_bytes=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Ours has no field colour"):
        Ours(path="a", colour="red")  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'path'"):
        Ours(path="a").path = "b"  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded(Ours):
    """One that compares in its own way."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and other.upper == self.upper


def test_a_value_with_its_own_equality_has_a_hash() -> None:
    assert Folded(path="a", names=()) == Folded(path="A", names=())  # type: ignore[arg-type]
    assert isinstance(hash(Folded(path="a", names=())), int)  # type: ignore[arg-type]


def test_fields_are_inherited() -> None:
    value = Longer(path="a", count=3)
    assert (value.upper, value.count, value != Ours(path="a")) == ("A", 3, True)
    with pytest.raises(TypeError, match="Longer needs count"):
        Longer(path="a")  # type: ignore[call-arg]


def test_equal_values_have_equal_hashes() -> None:
    assert len({Longer(path="a", count=1, names=()), Longer(path="a", count=1, names=(), secret="b")}) == 1  # type: ignore[arg-type]


def test_other_dataclasses_are_those_of_the_standard_library() -> None:
    @dataclass(slots=True)
    class Changing:
        number: int

    changing = Changing(1)
    changing.number = 2
    assert changing == Changing(2)
