"""`inspect` and `verify`: what no case file of `tests/cases/commands` can say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fixtures import checkout
from tests.support.command_line import (
    EVERY_COMMAND,
    command,
    environment,
    kcompact,
    partition,
)

LOG0, LOG3 = "00000000000000000000.log", "00000000000000000003.log"


@pytest.mark.parametrize("name", checkout.names())
def test_real_directories_are_sound(name: str, tmp_path: Path) -> None:
    manifest = checkout.read_manifest(name)
    for directory in manifest["directories"]:
        target = checkout.copy_directory(name, directory, tmp_path / directory)
        ran = kcompact("verify", "--json", "--now", "0", target)
        findings = [each for entry in ran.json["partitions"] for each in entry["findings"] or []]
        assert ran.code == 0, [entry["error"] for entry in ran.json["partitions"]]
        assert [each for each in findings if each["severity"] == "damage"] == []
        assert [entry["foreign"] for entry in ran.json["partitions"] if entry["foreign"]] == []


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: " + " ".join(f"k{n}=v" for n in range(5000)) + "\n5000: x=1")
    shell = subprocess.Popen(
        command("records", directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert shell.stdout is not None
    assert shell.stderr is not None
    shell.stdout.readline()
    shell.stdout.close()
    assert shell.stderr.read() == b""
    shell.stderr.close()
    assert shell.wait() == 141


@pytest.mark.parametrize("arguments", [[], *([name] for name in EVERY_COMMAND)])
def test_help(arguments: list[str]) -> None:
    ran = kcompact(*arguments, "--help")
    assert ran.code == 0
    assert arguments == [] or "Example" in ran.out
