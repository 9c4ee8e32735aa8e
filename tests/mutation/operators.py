"""The operators: what is changed in a line of Python, one place at a time. Texts, annotations and names are left alone.

for mutant in mutants_of(source, path="kcompact/questions/compare/judge.py"):
    changed = mutant.applied(source)
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "union": "intersection", "intersection": "union"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one line. Both lines are without the blanks around them, and `function` is "" outside of any."""

    path: str
    function: str
    before: str
    after: str
    line: int
    """The number of the line, from 1."""

    def applied(self, source: str) -> str:
        """Return the source with the changed line."""
        lines = source.splitlines(keepends=True)
        lines[self.line - 1] = lines[self.line - 1].replace(self.before, self.after)
        return "".join(lines)


def mutants_of(source: str, *, path: str, without: str | None = None) -> list[Mutant]:
    """Return the changes of a module that its function and both lines name, in the order of the lines.

    Functions that have the text `without` are left out, and so is what a module does when it is run as a program.
    """
    lines = source.splitlines()
    found = []
    for function, node in _nodes(ast.parse(source), "", without):
        for line, start, end, text in _changes(node, lines):
            before = lines[line - 1]
            changed = before.encode()
            after = (changed[:start] + text.encode() + changed[end:]).decode()
            found.append(Mutant(path, function, before.strip(), after.strip(), line))
    named = Counter((each.function, each.before, each.after) for each in found)
    unique = [each for each in found if named[each.function, each.before, each.after] == 1]
    return sorted(unique, key=lambda each: (each.line, each.after))


def _nodes(node: ast.AST, function: str, without: str | None) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of a tree, each with the function or class that it is in."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "__name__" in ast.unparse(child.test):
                continue
            if without and isinstance(child, ast.FunctionDef) and without in ast.unparse(child):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}".lstrip(".")
            yield inside, child
            yield from _nodes(child, inside, without)


Change = tuple[int, int, int, str]
"""The line, the bytes in it that are replaced, and by what."""


def _changes(node: ast.AST, lines: list[str]) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            operands = [left, *comparators]
            for number, operator in enumerate(ops):
                yield from _between(operands[number], operands[number + 1], COMPARISONS[type(operator)], lines)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield from _between(left, right, ARITHMETIC[type(op)], lines)
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in ARITHMETIC:
            yield from _between(target, value, ARITHMETIC[type(op)], lines)
        case ast.BoolOp(op=ast.And(), values=[first, second, *_]):
            yield from _between(first, second, ("and", "or"), lines)
        case ast.BoolOp(op=ast.Or(), values=[first, second, *_]):
            yield from _between(first, second, ("or", "and"), lines)
        case ast.UnaryOp(op=ast.Not()):
            yield node.lineno, node.col_offset, node.col_offset + len("not "), ""
        case ast.UnaryOp(op=ast.USub()):
            yield node.lineno, node.col_offset, node.col_offset + len("-"), ""
        case ast.Constant(value=bool() as value):
            yield from _replaced(node, str(not value))
        case ast.Constant(value=int() as value):
            yield from _replaced(node, str(value + 1))
        case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
            yield from _replaced(called, CALLS[name])
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield from _replaced(node, "pass")
        case ast.Continue():
            yield from _replaced(node, "break")
        case ast.Break():
            yield from _replaced(node, "continue")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield from _replaced(value, "None")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield from _negated(test)
        case ast.comprehension(ifs=[test, *_]):
            yield from _replaced(test, "True")
        case _:
            pass


def _negated(test: ast.expr) -> Iterator[Change]:
    if isinstance(test, ast.Call | ast.Name | ast.Attribute) and ast.unparse(test) != "TYPE_CHECKING":
        yield test.lineno, test.col_offset, test.col_offset, "not "


def _replaced(node: ast.expr | ast.stmt, text: str) -> Iterator[Change]:
    if node.lineno == node.end_lineno:
        assert node.end_col_offset is not None
        yield node.lineno, node.col_offset, node.end_col_offset, text


def _between(left: ast.expr, right: ast.expr, operators: tuple[str, str], lines: list[str]) -> Iterator[Change]:
    """Yield the exchange of the operator between two operands, if it stands in the line of one of them."""
    old, new = operators
    pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, old.split())) + r"(?!\w)" if old[0].isalpha() else re.escape(old)
    assert left.end_lineno is not None
    assert left.end_col_offset is not None
    for number in range(left.end_lineno, right.lineno + 1):
        text = lines[number - 1].encode()
        start = left.end_col_offset if number == left.end_lineno else 0
        end = right.col_offset if number == right.lineno else len(text)
        if found := re.search(pattern.encode(), text[start:end]):
            yield number, start + found.start(), start + found.end(), new
            return
