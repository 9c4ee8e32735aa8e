"""The pages name modules, functions and classes of the package that exist, and the table of kernels is complete."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from kcompact.kernels.signatures import KERNELS

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "kcompact"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
NAME = re.compile(rf"`(?:kcompact\.)?((?:{'|'.join(FOLDERS)})(?:\.[A-Za-z]\w*)+)(?:\(\))?`")
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w/]+\.py)`")
NOT_OF_THE_PACKAGE = re.compile(
    r"config\.providers|compare\.(?:today|changed)$|log\.(?:dirs?|dir\.\w+|cleaner|cleanup|retention|segment|roll)\b|.*\.(?:html|json|md|py|txt|yaml)$"
)
"""Settings of a broker, fields of the JSON and names of files, which look like names of modules."""


@cache
def defined_in(path: Path) -> dict[str, ast.AST]:
    """Return what a module or a class defines at its top: functions, classes, constants, imported names."""
    return _names(ast.parse(path.read_text(encoding="utf-8")).body)


def _names(body: list[ast.stmt]) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                found[name] = node
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case ast.Assign(targets=targets):
                found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
            case ast.ImportFrom(names=names):
                found |= {one.asname or one.name: node for one in names}
            case ast.If(body=inner):
                found |= _names(inner)
    return found


def exists(name: str) -> bool:
    """Whether a dotted name below `kcompact` is a module, or something that is defined in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = PACKAGE / Path(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.exists():
            return _is_defined(defined_in(file), parts[length:])
    return False


def _is_defined(names: dict[str, ast.AST], rest: list[str]) -> bool:
    if not rest:
        return True
    node = names.get(rest[0])
    if isinstance(node, ast.ClassDef):
        return _is_defined(_names(node.body), rest[1:])
    return node is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    named = {name for name in NAME.findall(page.read_text(encoding="utf-8")) if not NOT_OF_THE_PACKAGE.match(name)}
    assert [name for name in sorted(named) if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_package_that_a_page_names_exist(page: Path) -> None:
    named = set(FILE.findall(page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []


def test_names_that_do_not_exist_are_found() -> None:
    assert exists("format.batch.read_records")
    assert exists("clean.transactions.TransactionTracker.decide")
    assert not exists("format.batch.read_nothing")
    assert not exists("format.nothing")


def test_the_design_page_tells_what_each_folder_does() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    told = re.findall(r"│  (\w+) ", page) + re.findall(r"`(\w+)`", page.partition("## Which folder does what")[2])
    modules = {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    assert {*FOLDERS, *modules} - set(told) == set()


def test_the_table_of_contents_has_each_page() -> None:
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\((\w[\w.-]*\.md)\)", contents))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_the_table_of_kernels_has_each_kernel() -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    table = page.partition("| definition | kernels |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert listed == set(KERNELS)
