"""`wording`: options on the command line, parameters in Python; and that each hint has words for both."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import kcompact
from kcompact.remarks import RemarkCode
from kcompact.wording import PARAMETERS, of_the_command_line, worded
from tests.support.command_line import EVERY_COMMAND

PACKAGE = Path(kcompact.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OF_KAFKA = re.compile(r"kafka-[a-z-]+\.sh .*")
OTHER_PROGRAMS = {
    *("bucket/answers.py", "bucket/client.py", "bucket/mirror.py"),
    *("config/server_properties.py", "engine/spark/jvm.py", "engine/spark/worker_pool.py", "kernels/build.py"),
}
"""Their options are those of the AWS tools, of a broker, of Java, of Python and of a linker."""
ONLY_COMMANDS = (
    "cli/",
    "questions/compare/advice.py",
    "doctor/",
    "report/",
    "views/",
    "questions/record_filter.py",
    "__main__.py",
    "wording.py",
    "plan/run_notes.py",
)
"""What they say is shown by the command line only: notes and findings name the command to type."""
OF_A_LIST = "there may be more records: "
"""How the note of a list of records begins, which only the command line shows."""
COMMANDS = {code.next_command for code in RemarkCode}
"""What a finding says to type next."""
STATEMENTS = ("plan/verdict.py", "plan/conditions.py", "config/settings.py")
"""Their texts are statements of a plan, which are the same everywhere, and not messages."""


@pytest.mark.parametrize(
    ("text", "in_python"),
    [
        ("Pass another --output directory.", "Pass another `output` directory."),
        ("write a copy with --output DIR instead", "write a copy with `output` instead"),
        ("pass --config orders:cleanup.policy=compact", "pass the setting orders:cleanup.policy=compact"),
        ("pass --config TOPIC:cleanup.policy=compact", "pass the setting TOPIC:cleanup.policy=compact"),
        ("pass --high-watermark leo to count", "pass `use_log_end=True` to count"),
        ("pass --memory 64m or more", "pass `memory_bytes` of 64m or more"),
        ("pass a greater --memory", "pass a greater `memory_bytes`"),
        ("give the time: --now TIME", "give the time: `now_ms`"),
        ("Pass --unclean: what", "Pass `unclean=True`: what"),
        ("run kafka-acls.sh --bootstrap-server host:1 --add", "run kafka-acls.sh --bootstrap-server host:1 --add"),
        ("then run `kcompact recover --foreign /logs/a-0`.", "then run `recover(..., foreign=True)`."),
        ("no option: a--output, ---output", "no option: a--output, ---output"),
        ("--unheard-of DIR stays", "--unheard-of DIR stays"),
    ],
)
def test_words(text: str, in_python: str) -> None:
    assert worded(text) == in_python
    with of_the_command_line():
        assert worded(text) == text
        with of_the_command_line():
            pass
        assert worded(text) == text
    assert worded(text) == in_python


def test_each_option_and_each_parameter_is_there() -> None:
    options = {option for command in EVERY_COMMAND.values() for each in command.params for option in each.opts}
    kinds = (kcompact.PlanOptions, kcompact.CleanOptions, kcompact.EngineOptions, kcompact.BrokerConfig)
    parameters = {field.name for kind in kinds for field in fields(kind)}
    parameters |= set(inspect.signature(kcompact.plan_partition).parameters)
    for option, words in PARAMETERS.items():
        assert option in options
        for name in re.findall(r"`(?:EngineOptions\.)?(\w+)", words):
            assert name in parameters, words


def test_every_option_in_a_message_has_words_for_python() -> None:
    """A string of the package that names an option is a hint, unless it is in a docstring or in a listed module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith((*ONLY_COMMANDS, *STATEMENTS)) or module in OTHER_PROGRAMS:
            continue
        source = path.read_text()
        if not re.search("--[a-z]", source):
            continue  # To parse them all takes a second.
        hints = [text for text in strings(ast.parse(source)) if not text.startswith(OF_A_LIST) and text not in COMMANDS]
        left = [text for text in hints if OPTION.search(OF_KAFKA.sub("", worded(text)))]
        if left:
            found[module] = left
    assert found == {}


def strings(tree: ast.Module) -> list[str]:
    """Return the strings of a module, without docstrings. The values in an f-string are a single `?`."""
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            found.append(node.value)
    return found
