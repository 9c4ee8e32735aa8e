"""CRC-32C, by the C function of the package `crc32c`.

When that package is imported it looks up its own version, for which `importlib.metadata` is imported: a third of the
time in which a short command is done. So its extension module is imported without it, where there is one by that name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Crc: TypeAlias = Callable[..., int]


def _load() -> Crc:
    package = find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("_crc32c", locations) if locations is not None else None
    if extension is None or extension.loader is None:
        module = import_module("crc32c")
    else:
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
    function: Crc = module.crc32c
    return function


crc32c: Crc = _load()
"""`crc32c(data, crc=0)`: the CRC-32C of the bytes of a buffer, going on from the CRC of what is before them."""
