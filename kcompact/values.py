"""`dataclass`, as that of the standard library, and much faster to declare for values.

A value is frozen, has slots and takes keywords only. The standard library writes and compiles seven functions for each
class: a fifth of the start of a short command. Here all values share theirs, which ask the class for its fields.
Imports: nothing of kcompact.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen=False, slots=False, kw_only=False, **others):
        """Return what `dataclasses.dataclass` returns, for a value a decorator that behaves the same."""
        if frozen and slots and kw_only and not others:
            return _value
        return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, **others)


def _value(cls: type) -> type:
    """Return a class as that of a value. What it defines itself stays."""
    own = {name for name in _METHODS if vars(cls).get(name) is not None}  # A class with `__eq__` has no `__hash__`.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    for name in _METHODS.keys() - own:
        setattr(made, name, _METHODS[name])
    fields = dataclasses.fields(made)
    made._names = frozenset(each.name for each in fields if each.init)
    made._defaults = {each.name: each.default for each in fields if each.default is not MISSING}
    made._factories = {each.name: each.default_factory for each in fields if each.default_factory is not MISSING}
    made._compared = tuple(each.name for each in fields if each.compare)
    return made  # type: ignore[no-any-return]


# The methods of every value


def _init(self: Any, **given: Any) -> None:
    if not given.keys() <= self._names:
        unknown = ", ".join(sorted(given.keys() - self._names))
        raise TypeError(f"{type(self).__name__} has no field {unknown}")
    values = self._defaults | given
    for name, factory in self._factories.items():
        if name not in values:
            values[name] = factory()
    if not self._names <= values.keys():
        lacking = ", ".join(sorted(self._names - values.keys()))
        raise TypeError(f"{type(self).__name__} needs {lacking}")
    for name, value in values.items():
        object.__setattr__(self, name, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    fields = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _eq(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return self is other or _compared(self) == _compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _compared(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self._compared)


def _setattr(self: Any, name: str, value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
