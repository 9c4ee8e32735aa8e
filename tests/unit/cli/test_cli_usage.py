"""Wrong usage: each message says what is wrong and what to type instead, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.command_line import COMPACT, EVERY_COMMAND, digest, kcompact, partition

# Commands and options


def test_without_arguments_the_help_is_shown_once() -> None:
    ran = kcompact()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == kcompact("--help").out
    assert ran.err.count("Usage:") == 1


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["plan", "--version"], "No such option '--version'.", "Type kcompact --version"),
        (["--json", "plan", "."], "No such option '--json'.", "Put it after the command, as in kcompact plan --json"),
        (["--yes", "clean", "."], "No such option '--yes'.", "Put it after the command, as in kcompact clean --yes"),
        (["plan", "--force", "."], "No such option '--force'.", "It is an option of kcompact clean"),
        (["clean", "--dryrun", "."], "No such option '--dryrun'. Did you mean '--dry-run'?", None),
        (["plan", "--nonsense", "."], "No such option '--nonsense'.", None),
        (["compact", "."], "No such command 'compact'.", "Did you mean kcompact clean?"),
        (["check", "."], "No such command 'check'.", "Did you mean kcompact verify?"),
        (["plan", "--verify", "."], "No such option '--verify'.", "It is an option of kcompact doctor"),
        (["inspect", "--verify", "."], "No such option '--verify'.", "It is a command of its own: kcompact verify"),
        (["inspct", "."], "No such command 'inspct'. Did you mean 'inspect'?", None),
        (["/no/dir"], "No such command '/no/dir'.", "Put a command before the path, as in kcompact plan /no/dir"),
        (["orders-0"], "No such command 'orders-0'.", "Put a command before the path, as in kcompact plan orders-0"),
        (["xyzzy"], "No such command 'xyzzy'.", None),
    ],
)
def test_near_misses(
    arguments: list[str], problem: str, hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = kcompact(*arguments)
    assert (ran.code, ran.out) == (2, "")
    _, _, message = ran.err.partition("\n\n")
    assert message.splitlines() == [f"error: {problem}", *([hint] if hint else [])]


# Empty paths


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["inspect", ""], "PATH..."),
        (["plan", *COMPACT, ""], "PATH..."),
        (["clean", *COMPACT, "--engine", "in-process", ""], "PATH..."),
        (["clean", *COMPACT, "--engine", "in-process", "orders-0", ""], "PATH..."),
        (["clean", *COMPACT, "--engine", "in-process", "--output", "", "orders-0"], "--output"),
        (["recover", ""], "PATH..."),
    ],
)
def test_an_empty_path_is_not_the_current_directory(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = digest(tmp_path)
    ran = kcompact(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert f"Invalid value for '{name}': the path is empty; for the current directory use .\n" in ran.err
    assert digest(tmp_path) == before


# Paths of other stores


def path_parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Yield each parameter of each command that is a path, by its type or by its name in the help."""
    for name, command in EVERY_COMMAND.items():
        for parameter in command.params:
            is_path = isinstance(parameter.type, click.Path | click.File)
            if is_path or parameter.metavar in ("PATH...", "LOG_DIR...", "DIR", "FILE"):
                yield name, parameter


@pytest.mark.parametrize("value", ["s3a://backups/o", "S3:/backups/o", "gs:/backups/o"])
@pytest.mark.parametrize(
    ("name", "parameter"), [pytest.param(*each, id=f"{each[0]} {each[1].name}") for each in path_parameters()]
)
def test_no_command_takes_another_store_for_a_local_directory(
    name: str, parameter: click.Parameter, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    is_option = isinstance(parameter, click.Option)
    beside = [each for each in EVERY_COMMAND[name].params if each.required and each is not parameter]
    ran = kcompact(name, *([parameter.opts[0]] if is_option else []), value, *("orders-0" for _ in beside))
    assert (ran.code, ran.out) == (2, "")
    shown_as = parameter.opts[0] if is_option else parameter.metavar
    assert f"'{shown_as}'" in ran.err or f"/ '{parameter.opts[-1]}'" in ran.err
    assert f": '{value}' is no local path" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["clean", "--output", "s3n://backups/o", "logs"],
            "'s3n://backups/o' is no local path: the address of a bucket is s3://BUCKET/PREFIX. "
            "Pass s3://backups/o. A local one of that name: ./s3n:/backups/o\n",
        ),
        (
            ["plan", "hdfs://nn:8020/o"],
            "'hdfs://nn:8020/o' is no local path: other stores than s3://BUCKET/PREFIX are neither read nor written. "
            "The tools of that store copy from and to a local path. A local one of that name: ./hdfs:/nn:8020/o\n",
        ),
        (
            ["records", "--output", "s3a://backups/x.csv", "logs"],
            "'s3a://backups/x.csv' is no local path; here only a local path is possible. "
            "The tools of that store copy from and to a local path. A local one of that name: ./s3a:/backups/x.csv\n",
        ),
        (["records", "--output", "s3://backups/x.csv", "logs"], "'s3://backups/x.csv' is in a bucket; here only a"),
        (["search-key", "--keys-file", "s3://backups/keys", "logs"], "'s3://backups/keys' is in a bucket; here only a"),
    ],
)
def test_what_to_pass_instead_of_another_store(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local directories and files that have the names are not used."""
    monkeypatch.chdir(tmp_path)
    for each in arguments[1:]:
        if ":/" in each:
            partition(tmp_path / each)
    before = digest(tmp_path)
    ran = kcompact(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert digest(tmp_path) == before


def test_a_local_directory_may_have_the_name_of_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    partition(tmp_path / "gs:" / "logs")
    (tmp_path / "gs:" / "keys").write_text("no such key\n")
    clean = ("clean", *COMPACT, "--engine", "in-process")
    for arguments in (
        ("plan", *COMPACT, "./gs:/logs"),
        ("plan", *COMPACT, ".//gs://logs/orders-0"),
        ("records", "--output", "./gs:/records.csv", "./gs:/logs"),
        ("search-key", "--keys-file", "./gs:/keys", "./gs:/logs"),
        (*clean, "--output", "./gs:/copy", "./gs:/logs"),
        (*clean, "--journal", "./gs:/journal", "--keep-replaced", "./gs:/kept", "./gs:/logs"),
        ("restore", "./gs:/kept"),
        (*clean, "--output", "a:b/copy", "gs:"),
    ):
        ran = kcompact(*arguments)
        assert ran.code == (4 if arguments[-1] == "gs:" else 0), ran.err
    names = {each.name for each in (tmp_path / "gs:").iterdir()}
    assert names >= {"logs", "records.csv", "copy", "journal", "kept"}
    assert [each.name for each in tmp_path.iterdir()] == ["gs:"]


# The time


@pytest.mark.parametrize(
    ("value", "as_seconds"),
    [
        ("1700086400", "2023-11-15T22:13:20Z"),
        ("100000000", "1973-03-03T09:46:40Z"),
        ("99999999999", "5138-11-16T09:46:39Z"),
    ],
)
def test_seconds_are_not_taken_for_milliseconds(value: str, as_seconds: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    for command in (("plan",), ("inspect",), ("clean", "--engine", "in-process")):
        ran = kcompact(*command, "--now", value, directory)
        assert (ran.code, ran.out) == (2, "")
        assert f"{value} looks like seconds: in milliseconds {as_seconds} is {value}000\n" in ran.err
    assert digest(tmp_path) == before
    assert kcompact("plan", "--json", "--now", f"{value}000", directory).json["now_ms"] == int(value) * 1000


@pytest.mark.parametrize("value", ["0", "1000", "99999999", "100000000000", "1700086400000"])
def test_other_numbers_are_milliseconds(value: str, tmp_path: Path) -> None:
    assert kcompact("plan", "--json", "--now", value, partition(tmp_path)).json["now_ms"] == int(value)


# server.properties


@pytest.mark.parametrize("text", ["", "# nothing\n", "not a properties file at all\n", "cleanup.policy=compact\n"])
def test_a_file_without_a_broker_setting(text: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    file = tmp_path / "other.txt"
    file.write_text(text)
    ran = kcompact("plan", "--broker-config", file, directory)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error: {file}: not one line sets a broker setting of Kafka\nPass the file with which the broker is started, "
        "such as /etc/kafka/server.properties, or single settings with --config.\n"
    )


@pytest.mark.parametrize("name", ["node.id", "log.dirs", "broker.id", "num.io.threads", "log.cleaner.backoff.ms"])
def test_a_few_settings_are_no_file_of_a_broker(name: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=1\nvendor.setting=2\n")
    ran = kcompact("plan", "--broker-config", file, directory)
    assert (ran.code, "neither process.roles nor zookeeper.connect is set" in ran.err) == (2, True)
