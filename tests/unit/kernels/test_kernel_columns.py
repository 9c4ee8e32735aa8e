"""Tests of the numbers that kernels and their callers share."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from kcompact.kernels import columns


def test_no_name_is_given_twice() -> None:
    tree = ast.parse(Path(columns.__file__).read_text(encoding="utf-8"))
    names = [
        node.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert "EMPTIED" in names
