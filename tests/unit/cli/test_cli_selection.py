"""`--topic` and `--partition`: every command that takes paths answers for the partitions that match, and no other."""

from __future__ import annotations

import fnmatch
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kcompact.cli import options
from kcompact.cli.app import main
from kcompact.plan.options import PlanOptions
from kcompact.plan.walk import named_partitions
from tests.support.command_line import COMPACT, NOW, Ran, kcompact, partition, settings
from tests.support.sick_log_dirs import TOPICS, healthy

NAMES = ("orders-0", "orders-1", "orders-11", "orders-eu-1", "users-0", "users-11")
PATTERNS: list[tuple[str, ...]] = [(), ("orders",), ("*-eu", "users")]
NUMBERS: list[tuple[int, ...]] = [(), (0,), (11, 1)]


def of_partitions(found: Ran) -> set[str]:
    """The names of the partitions in the JSON of an answer."""
    return {f"{each['topic']}-{each['partition']}" for each in found.json["partitions"]}


def of_lines(found: Ran) -> set[str]:
    """The names of the partitions that the lines of `records` name."""
    return {Path(json.loads(line)["file"]).parts[-2] for line in found.out.splitlines()}


def of_findings(found: Ran) -> set[str]:
    """The names of the partitions with findings of `doctor`."""
    return {Path(each["directory"]).name for each in found.json["findings"]} & set(NAMES)


def of_files(found: Ran) -> set[str]:
    """The names of the partitions whose files were searched."""
    return {Path(each["path"]).parent.name for each in found.json["statement"]["files"]} & set(NAMES)


COMMANDS: dict[str, tuple[tuple[str, ...], Callable[[Ran], set[str]]]] = {
    "inspect": ((), of_partitions),
    "plan": (COMPACT, of_partitions),
    "clean": (("--dry-run", "--engine", "in-process", *COMPACT), of_partitions),
    "verify": ((), of_partitions),
    "keys": ((), of_partitions),
    "gaps": ((), of_partitions),
    "transactions": ((), of_partitions),
    "compare": ((), of_partitions),
    "recover": ((), of_partitions),
    "report": ((), of_partitions),
    "records": ((), of_lines),
    "search-key": (("--key", "k"), of_files),
    "doctor": ((), of_findings),
}
"""Options of each command, and where its answer names the partitions."""
OF_ONE_TOPIC = {"groups"}


def matches(name: str, topics: tuple[str, ...], numbers: tuple[int, ...]) -> bool:
    topic, _, number = name.rpartition("-")
    is_right_topic = not topics or any(fnmatch.fnmatchcase(topic, each) for each in topics)
    return is_right_topic and (not numbers or int(number) in numbers)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory whose partitions have a finding of `doctor` each. A second one beside it is equal."""
    log_dir = tmp_path_factory.mktemp("selection") / "logs"
    for name in NAMES:
        directory = partition(log_dir, settings(f"hw=7 name={name}"))
        (directory / "x.log").write_bytes(b"")
    shutil.copytree(log_dir, log_dir.with_name("others"))
    return log_dir


def test_every_command_that_takes_paths_can_select() -> None:
    context = click.Context(main)
    found = options.commands_of(context)
    taking = {name for name, each in found.items() if any(one.name == "paths" for one in each.params)}
    assert taking == {*COMMANDS, *OF_ONE_TOPIC}
    for name in taking:
        assert set(options.SELECTION) <= set(found[name].params), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_for_the_selection(name: str, log_dir: Path, tmp_path: Path) -> None:
    own, names_in = COMMANDS[name]
    paths = [log_dir, log_dir.with_name("others")] if name == "compare" else [log_dir]
    output = ("-o", tmp_path / "report.html") if name == "report" else ()
    choices = list(itertools.product(PATTERNS, NUMBERS))
    for topics, numbers in choices[-1:] if name == "report" else choices:  # It draws for seconds.
        expected = {each for each in NAMES if matches(each, topics, numbers)}
        selected = [*(f"--topic={each}" for each in topics), *(f"--partition={each}" for each in numbers)]
        found = kcompact(name, "--json", *own, *output, *selected, *paths)
        if expected:
            assert names_in(found) == expected, (selected, found.err)
        else:
            assert (found.code, found.out) == (4, ""), selected


def test_single_files_are_selected_by_their_directories(log_dir: Path) -> None:
    files = [log_dir / name / "00000000000000000000.log" for name in ("orders-0", "orders-1")]
    found = kcompact("records", "--json", "--partition", "1", *files)
    assert found.out == kcompact("records", "--json", files[1]).out
    refused = kcompact("inspect", "--partition", "7", *files)
    assert (refused.code, refused.err) == (
        4,
        f"error: {files[0]}: no partition with the number 7\nThe paths have orders-0, orders-1.\n",
    )


def test_one_number_of_several_that_no_partition_has(log_dir: Path) -> None:
    found = kcompact("plan", "--partition", "7", "--partition", "11", log_dir)
    assert found.err.splitlines()[0] == (
        "note: --partition 7 has no effect: no partition of this number is among the paths"
    )


def test_a_part_is_not_called_the_whole(log_dir: Path, tmp_path: Path) -> None:
    sound = tmp_path / "logs"
    for number in (0, 1):
        healthy(sound, f"log name=orders-{number} hw=2 checkpoint=1\n0: a=1\n1: b=2\n")
    known = ("--broker-config", tmp_path / "server.properties", "--topic-configs", tmp_path / TOPICS, "--now", NOW)
    whole, part = (kcompact("doctor", "-q", *known, *chosen, sound) for chosen in ((), ("--partition", "0")))
    named = kcompact("doctor", "-q", *known, sound / "orders-0")
    assert [each.code for each in (whole, part, named)] == [0, 0, 0]
    assert "other partitions were not read" not in whole.out
    assert "other partitions were not read" in part.out
    assert "other partitions were not read" in named.out
    every = kcompact("doctor", "-q", *known, "--topic", "orders", sound)
    assert every.out == whole.out
    both = [log_dir, log_dir.with_name("others")]
    answers = [kcompact("compare", "--before-start", *chosen, *both).out for chosen in ((), ("--partition", "0"))]
    assert "nothing speaks against a start" in answers[0]
    assert "not everything was compared" in answers[1]


def test_a_copy_of_a_part_is_none_of_the_log_directory(log_dir: Path, tmp_path: Path) -> None:
    for number, is_whole in ((None, True), (11, False)):
        output = tmp_path / f"copy-{number}"
        chosen = () if number is None else ("--partition", str(number))
        done = kcompact("clean", "--engine", "in-process", *COMPACT, *chosen, "--output", output, log_dir)
        assert done.code == 0, done.err
        copied = {each.name for each in output.iterdir() if each.is_dir()}
        assert copied == {each for each in NAMES if number is None or each.endswith(f"-{number}")}
        assert (output / "meta.properties").exists() == is_whole


def test_the_python_function_selects_as_the_command_does(log_dir: Path) -> None:
    for topics, numbers in itertools.product(PATTERNS, NUMBERS):
        expected = {each for each in NAMES if matches(each, topics, numbers)}
        if expected:
            selection = PlanOptions(topics=topics, partitions=numbers).selection
            assert {each.name for each in named_partitions([log_dir], selection)[0]} == expected
