"""The signatures of the kernels beside the loops that they describe, their callers' arrays, and their page."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kcompact import kernels
from kcompact.kernels import COLUMNS, FULL
from kcompact.kernels.signatures import KERNELS

PACKAGE = Path(kernels.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "kernels.md"


@pytest.mark.parametrize("name", KERNELS)
def test_a_signature_is_that_of_its_loop(name: str) -> None:
    pytest.importorskip("numba", reason="the environment is that of a user, without the compiler")
    from kcompact.kernels import loops

    loop = getattr(loops, name).py_func
    assert list(inspect.signature(loop).parameters) == [one.name for one in KERNELS[name].parameters]


def written_by(function: ast.FunctionDef) -> set[str]:
    """Return the parameters of which a function assigns elements, or hands to a function that writes its arrays."""
    parameters = {argument.arg for argument in function.args.args}
    aliases = {name: name for name in parameters}
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, ast.Name):
                    aliases[target.id] = node.value.value.id  # A row of a table.
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [part for one in node.targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            writes = WRITING_FUNCTIONS.get(node.func.id, ())
            targets = [ast.Subscript(node.args[position], ast.Constant(0)) for position in writes]
        found |= {
            aliases.get(one.value.id, one.value.id)
            for one in targets
            if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name)
        }
    return found & parameters


WRITING_FUNCTIONS = {
    "read_header": (2,),
    "read_from_file": (1,),
    "hold_header": (1,),
    "copy_bytes": (0,),
    "_keep_records": (6,),
    "_parse_loaded": (4,),
    "_encode_records": (0,),
    "_remember": (0,),
    "write_header": (0,),
    **dict.fromkeys(("inflate_lz4", "inflate_zstd", "inflate_gzip"), (0, 4)),
    "inflate_snappy": (3,),
    **dict.fromkeys(("deflate_lz4", "deflate_zstd", "deflate_gzip", "deflate_snappy"), (0, 4)),
    "_deflate": (1, 5),
}
"""Functions of the loops that write an array, and the positions of those arguments."""


@cache
def loop_trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in (PACKAGE / "loops").glob("*.py")]


@pytest.mark.parametrize("name", KERNELS)
def test_a_signature_says_which_arrays_the_loop_writes(name: str) -> None:
    (function,) = (
        node for tree in loop_trees() for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    assert written_by(function) == {one.name for one in KERNELS[name].parameters if one.is_written}


def test_a_prototype() -> None:
    assert KERNELS["scan_headers"].c_prototype("scan_headers") == (
        "void kcompact_scan_headers(int64_t descriptor, int64_t start, int64_t until, int64_t end, uint8_t *scratch, "
        "int64_t scratch_0, int64_t *table, int64_t table_0, int64_t table_1, int64_t *results);"
    )
    assert "const int64_t *record_refs, int64_t record_refs_0" in KERNELS["set_bits"].c_prototype("set_bits")


def page_part() -> str:
    """Return what the page says of each kernel."""
    lines = ["| kernel | reads | writes | returns |", "|---|---|---|---|"]
    for name, signature in KERNELS.items():
        cells = [
            ", ".join(f"`{one.name}` {one.kind}" for one in signature.parameters if one.is_written == is_written)
            for is_written in (False, True)
        ]
        results = ", ".join(f"`{one}`" for one in signature.results)
        lines.append(f"| `{name}` | {cells[0]} | {cells[1] or 'nothing'} | {results or 'nothing'} |")
    return "\n".join(lines)


def test_the_page_lists_the_signatures(rewrite: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- signatures -->\n", "\n<!-- end of signatures -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    expected = before + start + page_part() + end + after
    if rewrite:
        PAGE.write_text(expected, encoding="utf-8")
    assert text == expected


# Arrays that a kernel does not take


def test_hop_without_room() -> None:
    table = np.empty((0, COLUMNS), np.int64)
    assert kernels.scan_headers(0, 0, 100, 100, np.empty(64, np.uint8), table) == (0, 0, FULL)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_a_number_of_more_than_64_bits(number: int) -> None:
    with pytest.raises(OverflowError, match=f"crc32c takes i64 for start, not {number}"):
        kernels.crc32c(np.zeros(100, np.uint8), number, 100)


def test_what_a_kernel_does_not_take() -> None:
    data: npt.NDArray[Any] = np.zeros(100, np.int8)
    with pytest.raises(TypeError, match=r"crc32c takes u8\[\] for buffer, not int8 of 1 dimensions"):
        kernels.crc32c(data, 0, 100)
    with pytest.raises(TypeError, match="of 2 dimensions"):
        kernels.crc32c(np.zeros((10, 10), np.uint8), 0, 100)
    with pytest.raises(TypeError, match="contiguous"):
        kernels.crc32c(np.zeros(200, np.uint8)[::2], 0, 100)


def test_a_kernel_refuses_a_read_only_array_that_it_would_write() -> None:
    bitmap, record_refs = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    bitmap.flags.writeable = record_refs.flags.writeable = False
    with pytest.raises(TypeError, match="set_bits writes bitmap, which is read-only"):
        kernels.set_bits(record_refs, 0, bitmap)
    assert bitmap.tolist() == [0]
    writable = bitmap.copy()
    kernels.set_bits(record_refs, 0, writable)  # What it only reads may be read-only.
    assert writable.tolist() == [1]


# The public interfaces of the compilers

PUBLIC = {
    "numba": {"carray", "cfunc", "njit", "types"},
    "numba.types": {"CPointer", "UniTuple", "int32", "int64", "intp", "uint8", "uint64", "void"},
    "numba.extending": {"intrinsic"},
    "llvmlite": {"binding", "ir"},
}
"""The names that the package imports from the compilers, or takes from `numba` and `numba.types`."""


def compilers_names(path: Path) -> set[tuple[str, str]]:
    """Return (module, name) for each name that a file imports from numba or llvmlite, or uses of their modules."""
    found = set()
    modules: dict[str, str] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("numba", "llvmlite"):
            found |= {(str(node.module), alias.name) for alias in node.names}
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in ("numba", "llvmlite"):
                    found.add((alias.name, ""))
                    modules[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found.add((modules[node.value.id], node.attr))
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_only_public_names_of_the_compilers(path: Path) -> None:
    for module, name in compilers_names(path):
        parts = [*module.split("."), *name.split(".")]
        assert not any(part.startswith("_") for part in parts), (module, name)
        assert "core" not in parts, (module, name)
        assert module.startswith("llvmlite.") or not name or name in PUBLIC.get(module, ()), (module, name)
    # Nor private attributes of the objects that they return.
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            assert ast.unparse(node.value) == "self", ast.unparse(node)


def test_the_test_above_would_notice(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "import numba\nfrom numba.core import cgutils\nnumba._helperlib.x\nfrom llvmlite import ir as a\na._b"
    )
    assert compilers_names(path) == {
        ("numba", ""),
        ("numba.core", "cgutils"),
        ("numba", "_helperlib"),
        ("llvmlite", "ir"),
        ("llvmlite.ir", "_b"),
    }
