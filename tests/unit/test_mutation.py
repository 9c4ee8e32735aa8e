"""The lists of mutants apply to the code as it is, and the operators change what they say."""

from __future__ import annotations

import pytest

from tests.mutation.listed import ROOMS, ROOT, read
from tests.mutation.operators import mutants_of


@pytest.mark.parametrize("room", ROOMS)
def test_a_list_is_of_the_code_as_it_is(room: str) -> None:
    listed, lost = read(room)
    assert not lost, "draw others: python -m tests.mutation --draw"
    assert len(listed) == ROOMS[room].count
    for each in listed:
        source = (ROOT / each.mutant.path).read_text(encoding="utf-8")
        compile(each.mutant.applied(source), each.mutant.path, "exec")


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("a < b", ["a <= b"]),
        ("a not in b", ["a in b"]),
        ("a is None", ["a is not None"]),
        ("a < b <= c", ["a < b < c", "a <= b <= c"]),
        ("a and b or c", ["a and b and c", "a or b or c"]),
        ("not a", ["a"]),
        ("-a", ["a"]),
        ("a + 1", ["a + 2", "a - 1"]),
        ("x[(a) // b]", ["x[(a) * b]"]),
        ("min(a, b)", ["max(a, b)"]),
        ("[a for a in b if c]", ["[a for a in b if True]"]),
        ("a if b else c", ["a if not b else c"]),
        ("f(is_a=True)", ["f(is_a=False)"]),
        ("'text'", []),
        ("f'{a + 1}'", []),
        ("a.b", []),
    ],
)
def test_an_expression_is_changed_in_each_place(line: str, changed: list[str]) -> None:
    found = mutants_of(f"x = {line}\n", path="")
    assert sorted(each.after for each in found) == [f"x = {each}" for each in sorted(changed)]
    for each in found:
        compile(each.applied(f"x = {line}\n"), "", "exec")


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a.b", ["return None"]),
        ("return None", []),
        ("continue", ["break"]),
        ("a += b", ["a -= b"]),
        ("f()", ["pass"]),
        ("raise E", ["pass"]),
        ("a: int = b", []),
    ],
)
def test_a_statement_is_changed(line: str, changed: list[str]) -> None:
    found = mutants_of(f"def g():\n    for a in b:\n        {line}\n", path="")
    assert sorted(each.after for each in found if each.line == 3) == changed
    assert {each.function for each in found} <= {"g"}


def test_what_is_run_as_a_program_and_functions_with_a_text_are_left_out() -> None:
    source = "def f():\n    return a.run(b)\ndef g():\n    return b\nif __name__ == '__main__':\n    f()\n"
    assert [each.function for each in mutants_of(source, path="")] == ["f", "g"]
    assert [each.function for each in mutants_of(source, path="", without="a.run")] == ["g"]


def test_lines_that_cannot_be_told_apart_are_left_out() -> None:
    source = "def f():\n    if a < b:\n        pass\n    if a < b:\n        pass\n    if a < c:\n        pass\n"
    assert [each.after for each in mutants_of(source, path="")] == ["if a <= c:"]
