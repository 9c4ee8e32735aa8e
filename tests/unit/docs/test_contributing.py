"""CONTRIBUTING.md and the pages of decisions: what they name exists, and all pages of decisions have the same form."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
HEADINGS = ["Context", "Chosen", "Rejected", "Measured"]

IN_BACKTICKS = re.findall(r"`([^`\n]+)`", GUIDE)
FILES = sorted(
    {
        name
        for name in IN_BACKTICKS
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", name) and ("/" in name or Path(name).suffix in {".md", ".toml"})
    }
)
TARGETS = sorted({target for name in IN_BACKTICKS for target in re.findall(r"^make ([a-z-]+)", name)})
NAMED_IN = [
    ("kcompact/clean/rules.py", ["delete_horizon_ms", "needs_delete_horizon", "record_fate"]),
    ("kcompact/clean/splits.py", ["legacy_horizon_ms"]),
    ("kcompact/format/codec/__init__.py", ["Codec", "compress", "decompress"]),
    ("kcompact/plan/clean_plan.py", ["CleanPlan"]),
    ("kcompact/cleaner/outcome.py", ["CleanResult"]),
    ("kcompact/remarks.py", ["RemarkCode"]),
    ("kcompact/exit_codes.py", ["ExitCode"]),
    ("kcompact/plan/selection.py", ["Selection"]),
    ("kcompact/stages/sizing.py", ["Sizing"]),
    ("kcompact/log/markers.py", ["Marker"]),
    ("kcompact/swap/steps.py", ["replacement_steps"]),
    ("kcompact/bucket/remote.py", ["Bucket"]),
    ("kcompact/bucket/client.py", ["Client"]),
    ("kcompact/log/record_fields.py", ["OF_RECORDS", "OF_BATCHES"]),
]
"""The functions, classes and tables that the guide names, by file."""


@pytest.mark.parametrize("name", FILES)
def test_files_that_the_guide_names_exist(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("target", TARGETS)
def test_targets_that_the_guide_names_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("file", "names"), NAMED_IN)
def test_functions_that_the_guide_names_exist(file: str, names: list[str]) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        each.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for each in node.targets
        if isinstance(each, ast.Name)
    }
    for name in names:
        assert f"`{name}`" in GUIDE
        assert name in defined


def test_links_of_the_guide_resolve() -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", GUIDE):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_status_its_date_and_the_headings_of_all(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(rf"# {int(page.name[:4])}\. \S.*\n\nStatus: accepted\nDate: \d{{4}}-\d\d-\d\d\n", text)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS


def test_decisions_are_numbered_through_and_listed() -> None:
    listed = re.findall(
        r"^(\d+)\. \[(.*)\]\((.*)\)$", (DECISIONS[0].parent / "README.md").read_text("utf-8"), re.MULTILINE
    )
    titles = [page.read_text(encoding="utf-8").partition("\n")[0] for page in DECISIONS]
    assert [f"# {number}. {title}" for number, title, _ in listed] == titles
    assert [name for _, _, name in listed] == [page.name for page in DECISIONS]
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert all(after == before + 1 for before, after in pairwise(numbers))
