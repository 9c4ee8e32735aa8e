"""The pages of the docs as examples: the fenced blocks of a page, the commands of a block, and how one is run."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import kcompact, process

DIRECTIVE = re.compile(r"<!-- (fixture|example|before|clock|bucket|spark)(?:: (.*?))? -->")
FENCE = re.compile(r"```(\w*)")
LEFT_OUT = "..."
"""A line of a page that stands for lines of a command which are not shown."""
TIMINGS = [
    (re.compile(r"[\d,.]+ seconds"), "_ seconds"),
    (re.compile(r"\((?:[\d,.]+|NaN|Infinity) M([Bb])/sec"), r"(_ M\1/sec"),
    (re.compile(r"\([\d.]+ [KMGTPE]?i?B/s\)"), "(_/s)"),
    (re.compile(r"(?:[\d.]+|NaN)% of total time"), "_% of total time"),
    (re.compile(r'"elapsed_s": [\d.]+'), '"elapsed_s": _'),
]
"""How long something took, and how fast it was: another number in each run."""
HELPERS = {"cp", "mkdir", "ls", "cat", "rm", "touch", "find", "printf", "truncate", "sed", "grep"}
"""Commands that a block may use besides kcompact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: what it is, the number of its first line inside, and its lines."""

    language: str
    start: int
    lines: tuple[str, ...]
    directives: tuple[tuple[str, str], ...] = ()


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, with the directives that stand before each."""
    found: list[Block] = []
    directives: list[tuple[str, str]] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence, directive = FENCE.match(lines[at]), DIRECTIVE.fullmatch(lines[at])
        if directive:
            directives.append((directive[1], directive[2] or ""))
        elif fence:
            end = lines.index("```", at + 1)
            found.append(
                Block(language=fence[1], start=at + 1, lines=tuple(lines[at + 1 : end]), directives=tuple(directives))
            )
            directives = []
            at = end
        at += 1
    assert not directives, "directives without a block"
    return found


def commands(block: Block) -> Iterator[tuple[list[str], str, list[str]]]:
    """Yield each command of a console block: its lines, the command on one line, and the lines it should print."""
    lines = list(block.lines)
    assert lines, "a console block without a command"
    assert lines[0].startswith("$ "), "a console block starts with a command"
    while lines:
        shown = [lines.pop(0)]
        while shown[-1].endswith("\\"):
            shown.append(lines.pop(0))
        command = " ".join(line.removesuffix("\\").strip() for line in shown).removeprefix("$ ")
        printed = []
        while lines and not lines[0].startswith("$ "):
            printed.append(lines.pop(0))
        yield shown, command, printed


def abridged(printed: list[str], shown: list[str]) -> list[str]:
    """Return what a command prints as a page shows it: with as many lines before and after `...` as the page has.

    Lines between two `...` must be printed in this order. The lines are returned whole if they are not, and if `...`
    stands for none of them.
    """
    if LEFT_OUT not in shown:
        return printed
    first, *between, last = _split(shown)
    if len(printed) <= len(first) + len(last):
        return printed
    end = len(printed) - len(last)
    result = printed[: len(first)]
    position = len(first)
    for lines in between:
        found = next((at for at in range(position, end) if printed[at : at + len(lines)] == lines), None)
        if found is None:
            return printed
        result += [LEFT_OUT, *lines]
        position = found + len(lines)
    return [*result, LEFT_OUT, *printed[end:]]


def _split(shown: list[str]) -> list[list[str]]:
    """Return the lines that stand before, between and after the lines `...`."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def run(command: str, scratch: Path, *, in_process: bool) -> list[str]:
    """Return what a command prints: standard output, and after a failure also standard error and the exit code."""
    first, _, rest = command.partition(" | ")
    words = shlex.split(first)
    if words[0] == "kcompact":
        if in_process:
            ran = kcompact(*words[1:])
            code, out, error = ran.code, ran.out, ran.err
        else:
            done = process(*words[1:], cwd=scratch)
            code, out, error = done.returncode, done.stdout, done.stderr
    else:
        assert words[0] in HELPERS, f"{words[0]} is not for the docs"
        finished = subprocess.run(first, shell=True, cwd=scratch, capture_output=True, text=True, check=False)
        code, out, error = finished.returncode, finished.stdout, finished.stderr
    if rest:
        out = subprocess.run(
            rest, shell=True, cwd=scratch, input=out, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    assert "a bug of kcompact" not in out + error, out + error
    printed = out.splitlines()
    if code:
        printed += [*error.splitlines(), f"[exit code {code}]"]
    return [line.replace(f"{scratch}/", "").rstrip() for line in printed]


def without_timings(lines: list[str]) -> list[str]:
    """Return lines without the numbers that are others in each run."""
    for pattern, replacement in TIMINGS:
        lines = [pattern.sub(replacement, line) for line in lines]
    return lines
