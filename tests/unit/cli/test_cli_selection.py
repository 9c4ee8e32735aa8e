"""`--topic` and `--partition`: every command that takes paths answers for the partitions that match, and no other."""

from __future__ import annotations

import fnmatch
import itertools
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from kcompact.cli import options
from kcompact.cli.app import main
from kcompact.plan.options import PlanOptions
from kcompact.plan.walk import named_partitions
from tests.support import metadata_log
from tests.support.command_line import COMPACT, NOW, Ran, digest, kcompact, partition, running_broker, settings
from tests.support.metadata_records import PartitionRecord
from tests.support.sick_log_dirs import TOPICS, healthy

LOG = "00000000000000000000.log"
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


NOT_READ = "Other partitions were not read."
PARTS: dict[str, tuple[bool, list[str]]] = {
    "all": (True, ["."]),
    "a topic that is all": (True, ["--topic=orders", "."]),
    "each one named": (True, ["orders-0", "orders-1"]),
    "the log directory and one of it": (True, ["orders-0", "."]),
    "a number": (False, ["--partition=0", "."]),
    "one named": (False, ["orders-0"]),
    "one named, and selected": (False, ["--partition=0", "orders-0", "orders-1"]),
}


@pytest.mark.parametrize("is_assumed", [False, True], ids=["settings are known", "settings are assumed"])
@pytest.mark.parametrize("is_beside_broker", [False, True], ids=["no broker", "a broker runs"])
def test_doctor_does_not_call_a_part_the_whole(is_assumed: bool, is_beside_broker: bool, tmp_path: Path) -> None:
    sound = tmp_path / "logs"
    for number in (0, 1):
        healthy(sound, f"log name=orders-{number} hw=2 checkpoint=1\n0: a=1\n1: b=2\n")
    known = () if is_assumed else ("--broker-config", tmp_path / "server.properties")
    known = (*known, "--topic-configs", tmp_path / TOPICS, "--now", NOW)
    with running_broker(sound) if is_beside_broker else nullcontext():
        for name, (has_all, words) in PARTS.items():
            paths = [each if each.startswith("--") else sound / each for each in words]
            ran = kcompact("doctor", "-q", *known, *paths)
            assert (NOT_READ not in ran.out) == has_all, (name, ran.out)
            assert ("Nothing stops" in ran.out) <= has_all, name
            assert kcompact("doctor", "--json", *known, *paths).json["has_all"] == has_all, name


def test_doctor_with_several_disks(tmp_path: Path) -> None:
    for number in (0, 1):
        healthy(tmp_path / f"disk-{number}", f"log name=orders-{number} hw=1\n0: a=1\n")
    both = [tmp_path / "disk-0", tmp_path / "disk-1"]
    assert kcompact("doctor", "--json", *both).json["has_all"]
    assert not kcompact("doctor", "--json", "--partition", "0", *both).json["has_all"]
    assert not kcompact("doctor", "--json", both[0], both[1] / "orders-1", both[1], "--partition", "1").json["has_all"]


def test_doctor_names_what_the_paths_have(tmp_path: Path) -> None:
    for name in ("orders-1", "users-0"):
        healthy(tmp_path, f"log name={name} hw=1\n0: a=1\n")
    refused = kcompact("doctor", "--partition", "1", tmp_path / "users-0")
    assert (refused.code, refused.err.splitlines()[1]) == (4, "The paths have users-0.")


def before_start(*words: str | Path) -> tuple[bool, bool]:
    """Whether everything was compared as the JSON says, and as the text does."""
    is_all = kcompact("compare", "--json", "--before-start", *words).json["is_all_compared"]
    text = kcompact("compare", "--before-start", *words).out
    assert ("not everything was compared" in text) == (
        ": nothing in the replicas speaks against a start" not in text
    ), text
    return is_all, "not everything was compared" not in text


def test_compare_does_not_call_a_part_the_whole(log_dir: Path) -> None:
    other = log_dir.with_name("others")
    names: dict[str, tuple[bool, list[str | Path]]] = {
        "all": (True, [log_dir, other]),
        "every topic": (True, ["--topic=*", log_dir, other]),
        "a number": (False, ["--partition=0", log_dir, other]),
        "of the other one partition": (False, [log_dir, other / "orders-0"]),
        "of the first one partition": (False, [log_dir / "orders-0", other]),
        "one of each": (False, [log_dir / "orders-0", other / "orders-0"]),
    }
    for name, (is_all, words) in names.items():
        assert before_start(*words) == (is_all, is_all), name


def test_what_must_be_moved_away_is_not_all_of_a_part(tmp_path: Path) -> None:
    for broker, deleted in (("a", ""), ("b", "2: k=~\n")):
        for name in ("orders-0", "orders-1"):
            partition(tmp_path / broker, f"log name={name} hw=4 checkpoint=3\n0: k=1\n{deleted}3: x=1\n")
    paths = (tmp_path / "a", tmp_path / "b")
    whole, part = (kcompact("compare", "--before-start", *chosen, *paths) for chosen in ((), ("--partition", "0")))
    assert whole.code == part.code != 0
    assert "before the start" in part.out
    assert ["not everything was compared" in each.out for each in (whole, part)] == [False, True]


def test_compare_without_a_match(log_dir: Path) -> None:
    refused = kcompact("compare", "--partition", "9", log_dir, log_dir.with_name("others"))
    assert (refused.code, refused.err.splitlines()[0]) == (
        4,
        f"error: {log_dir}: no partition with the number 9",
    )


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


# What a path is


def test_above_a_link_is_where_it_leads(tmp_path: Path) -> None:
    """`link/..` is the directory above the one that the link leads to, and not the one that has the link."""
    for name in ("real/logs", "logs"):
        partition(tmp_path / name, settings("hw=7"))
    (tmp_path / "real" / "x").mkdir()
    (tmp_path / "link").symlink_to("real/x")
    before = digest(tmp_path / "logs")
    path = tmp_path / "link" / ".." / "logs"
    done = kcompact("clean", "--json", "--yes", "--engine", "in-process", *COMPACT, path)
    assert [each["directory"] for each in done.json["partitions"]] == [str(tmp_path / "real" / "logs" / "orders-0")]
    assert digest(tmp_path / "logs") == before
    searched = kcompact("search-key", "--json", "--key", "k", path).json["statement"]["files"]
    assert {Path(each["path"]).parts[len(tmp_path.parts)] for each in searched} == {"real"}


@pytest.mark.parametrize("stray", ["2024-gc.log", "00000000000000000000.log"])
def test_a_file_that_looks_like_a_segment_makes_no_partition_of_a_log_directory(stray: str, tmp_path: Path) -> None:
    for number in (1, 2):
        partition(tmp_path / f"broker-{number}", settings(f"hw=7 name=orders-{number}"))
        (tmp_path / f"broker-{number}" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (tmp_path / "broker-1" / stray).touch()
    paths = (tmp_path / "broker-1", tmp_path / "broker-2")
    for words in (("verify",), ("plan", *COMPACT), ("plan", "--topic", "orders", *COMPACT)):
        assert of_partitions(kcompact(words[0], "--json", *words[1:], *paths)) == {"orders-1", "orders-2"}


def test_a_single_file_is_of_the_partition_that_has_it(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(log_dir / "orders-0")
    staged = partition(tmp_path / "logs", settings("name=orders-0")) / ".kcompact-0123456789abcdef"
    staged.mkdir()
    shutil.copy(log_dir / "orders-0" / LOG, staged / LOG)
    for file in (tmp_path / "current" / LOG, staged / LOG):
        assert kcompact("inspect", "--json", "--topic", "orders", file).json["files"]
        assert kcompact("inspect", "--topic", "users", file).code == 4


# Before a start


def two_brokers(path: Path, *, alone: str = "") -> list[Path]:
    """Write the log directories of two brokers that both have t-0; the first one has u-0 too.

    By its metadata log, u-0 is on the brokers `alone`.
    """
    log_dirs = [path / "b1", path / "b2"]
    for number, log_dir in enumerate(log_dirs, start=1):
        partition(log_dir, "log name=t-0 hw=2\n0: a=1\n1: b=1\n")
        records = [*metadata_log.topic("u", U), PartitionRecord(0, U, tuple(map(int, alone)))] if alone else []
        metadata_log.write(log_dir, {metadata_log.log(): metadata_log.batches(records)}, node_id=number)
        text = f"version=1\ncluster.id={metadata_log.CLUSTER_ID}\nnode.id={number}\n"
        (log_dir / "meta.properties").write_text(text)
    partition(log_dirs[0], "log name=u-0 hw=2\n0: a=1\n1: b=1\n")
    return log_dirs


U = bytes(range(1, 17))


@pytest.mark.parametrize(
    ("alone", "is_known", "code"),
    [("12", True, 10), ("12", False, 10), ("13", True, 0), ("1", True, 0), ("", True, 10)],
    ids=["the other has lost it", "the other is unknown", "a third one has it", "it has no other", "nobody knows"],
)
def test_a_partition_of_one_disk_was_not_compared(alone: str, is_known: bool, code: int, tmp_path: Path) -> None:
    log_dirs = two_brokers(tmp_path, alone=alone)
    if not is_known:
        (log_dirs[1] / "meta.properties").unlink()
    assert kcompact("compare", *log_dirs).code == code
    assert before_start(*log_dirs) == (False, False)


def torn(log_dir: Path) -> None:
    with (log_dir / "t-0" / LOG).open("ab") as log:
        log.truncate(log.tell() - 3)


@pytest.mark.parametrize(
    "damage",
    [
        lambda first, _: torn(first),
        lambda _, other: torn(other),
        lambda first, _: (first / "meta.properties").write_text("version=x\n"),
        lambda first, _: (first / "v-0").symlink_to("not-mounted"),
    ],
    ids=["the first is torn", "the other is torn", "a damaged meta.properties", "a link to nothing"],
)
def test_nothing_is_not_said_of_what_was_not_read(damage: Callable[[Path, Path], object], tmp_path: Path) -> None:
    log_dirs = two_brokers(tmp_path)
    shutil.rmtree(log_dirs[0] / "u-0")
    assert before_start(*log_dirs) == (True, True)
    damage(*log_dirs)
    assert before_start(*log_dirs) == (False, False)


def test_a_partition_that_fails_is_decided_on_whatever_its_path_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dirs = two_brokers(tmp_path)
    (log_dirs[0] / "t-0" / "partition.metadata").write_text("?")
    monkeypatch.chdir(log_dirs[0] / "t-0")
    for path in (".", "../t-0", log_dirs[0] / "t-0"):
        actions = kcompact("compare", "--json", "--before-start", path, log_dirs[1] / "t-0").json["before_start"]
        assert [(each["partition"], each["action"]) for each in actions] == [(0, "decide")]


def test_doctor_reads_a_partition_that_has_lost_its_segments(tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        healthy(tmp_path, f"log name={name} hw=1\n0: a=1\n")
    for file in (tmp_path / "t-1").iterdir():
        file.unlink()
    found = kcompact("doctor", "--json", tmp_path / "t-1").json
    assert not found["has_all"]
    assert "contains no .log file" in " ".join(each["problem"] for each in found["findings"])
    assert "meta.properties" not in " ".join(each["problem"] for each in found["findings"])


@pytest.mark.parametrize("stray", ["x -> x", "x-1 -> x-1", "replication-offset-checkpoint and old-1/"])
def test_a_partition_with_odd_things_in_it_is_one(stray: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("hw=7"))
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    if " -> " in stray:
        (directory / stray.split()[0]).symlink_to(stray.split()[0])
    else:
        (directory / "replication-offset-checkpoint").write_text("0\n0\n")
        shutil.copytree(directory, directory / "old-1")
    for words in (("inspect",), ("plan", *COMPACT), ("clean", "--dry-run", "--engine", "in-process", *COMPACT)):
        ran = kcompact(words[0], "--json", *words[1:], directory)
        assert (ran.code, of_partitions(ran)) == (0, {"orders-0"}), ran
    assert kcompact("doctor", "--json", directory).json["findings"][0]["finding"] != "no-meta-properties"


def test_doctor_takes_a_directory_of_partitions_for_one(tmp_path: Path) -> None:
    healthy(tmp_path, "log name=t-0 hw=1\n0: a=1\n")
    (healthy(tmp_path / "backup-1", "log name=t-1 hw=1\n0: a=1\n") / "abc.log").touch()
    found = kcompact("doctor", "--json", tmp_path / "backup-1").json["findings"]
    assert [Path(each["file"]).name for each in found if each["finding"] == "unknown-file"] == ["abc.log"]


def test_of_a_path_of_which_nothing_can_be_read_there_is_a_statement(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "link"):
        ran = kcompact("search-key", "--json", "--key", "a", path)
        assert (ran.code, ran.json["statement"]["keys"][0]["outcome"]) == (10, "not-proven")
