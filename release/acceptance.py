"""What a released kcompact has to do on a bare host: the same as the checkout, with logs that Kafka wrote.

All codecs are among them. The files that are left must be equal byte for byte, and so must all output, but for
durations, and for notes that there is no /proc and that root runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fixtures import checkout
from release.bare_host import BareHost, Finished, give_away

FIXTURES = ("broker", "gzip", "lz4", "mixed", "snappy", "transactions", "zstd")
STARTS = 9
"""How often the shortest command is run to measure a start."""
_DURATION = re.compile(r'"elapsed_s": [\d.]+')
_INSTRUCTIONS = re.compile(r"machine code for [^\n\"]+")
_NOTES = re.compile(
    r'\{"code": "unseen-processes", "text": "[^"]*, because /proc is not mounted"\}, '
    r"|^note: (a broker that uses another path .*, because /proc is not mounted|running as root; .*)\n",
    re.MULTILINE,
)
"""What a bare host adds, and what the checkout adds, which root runs."""
_ALSO_OPENED = ("zstandard/_cffi", "lz4/block/_block", "deflate/_deflate", "zlib", "kernels/machine_code/x86_64.so")
"""What the kernels open by its path. Without a codec's library its readable definition would do the same, slowly."""


class NotAcceptedError(Exception):
    """Something differs."""


def check(host: BareHost, program: str, directory: str, scratch: Path) -> None:
    """Run every command on the host and in the checkout. `directory` of the host can be written to.

    Raises NotAcceptedError where something differs.
    """
    inside = host.root / directory.lstrip("/")

    def released(arguments: Sequence[str]) -> Finished:
        return host.run([program, *arguments], cwd=directory)

    def of_checkout(arguments: Sequence[str]) -> Finished:
        command = [sys.executable, "-m", "kcompact", *arguments]
        done = subprocess.run(command, cwd=scratch, env={}, capture_output=True, text=True, check=False)
        here, there = str(scratch), directory
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.replace(here, there), done.stderr.replace(here, there)
        )

    for arguments in (["--version"], ["--help"], ["completion", "zsh"]):
        _same(" ".join(arguments), released(arguments), of_checkout(arguments))
    for name in FIXTURES:
        settings = checkout.read_manifest(name)["rounds"][0]
        for place in (inside, scratch):
            give_away(checkout.copy_directory(name, settings["from"], place / name))
        for arguments in _commands(name, settings):
            _same(" ".join(arguments), released(arguments), of_checkout(arguments))
        before = checkout.LOGS / name / settings["from"]
        found = [files_of(place / name) for place in (inside, scratch)]
        _differ(f"the files of {name}", found[0], found[1])
        if found[0] == files_of(before):
            raise NotAcceptedError(f"{name}: nothing was cleaned")


def check_libraries(host: BareHost, program: str, directory: str) -> None:
    """Raise NotAcceptedError unless the kernels open the libraries of all codecs, `check` having gone before."""
    inside = host.root / directory.lstrip("/")
    opened = ""
    for name in ("gzip", "lz4", "zstd"):
        settings = checkout.read_manifest(name)["rounds"][0]
        again = f"{name}-again"
        give_away(checkout.copy_directory(name, settings["from"], inside / again))
        *_, clean = _commands(again, settings)
        opened += host.run([program, *clean], cwd=directory, env={"LD_DEBUG": "files"}).stderr
    libraries = re.findall(r"opening file=(\S+) ", opened)
    if missing := [each for each in _ALSO_OPENED if not any(each in path for path in libraries)]:
        raise NotAcceptedError(f"not opened: {', '.join(missing)}")


def start_cpu_s(host: BareHost, program: str) -> float:
    """Return the median of the processor time that `--version` takes, which other processes do not change much."""
    return median(host.run_measured([program, "--version"], cwd="/").cpu_s for _ in range(STARTS))


def _commands(name: str, settings: dict[str, Any]) -> list[list[str]]:
    """Return command lines for the copy of a fixture, the last of which cleans it."""
    now = ["--now", str(settings["now_ms"])]
    config = [f"--config={key}={value}" for key, value in settings["config"].items()]
    for topic, values in settings["topics"].items():
        config += [f"--config={topic}:{key}={value}" for key, value in values.items()]
    return [
        ["inspect", name],
        ["verify", name],
        ["doctor", name],
        ["plan", *config, *now, name],
        ["clean", "--json", "--yes", "--journal", f"{name}.journal", *config, *now, name],
    ]


def _same(what: str, released: Finished, expected: Finished) -> None:
    """Raise NotAcceptedError, with all that both have written, if two processes have ended or written differently."""
    _differ(f"kcompact {what}", *map(_ended, (released, expected)))


def _ended(process: Finished) -> tuple[int, str, str]:
    return process.returncode, _comparable(process.stderr), _comparable(process.stdout)


def _comparable(output: str) -> str:
    return _DURATION.sub('"elapsed_s": _', _INSTRUCTIONS.sub("machine code", _NOTES.sub("", output)))


def _differ(what: str, released: object, expected: object) -> None:
    if released != expected:
        raise NotAcceptedError(f"{what}\n  released: {released!r:.2000}\n  checkout: {expected!r:.2000}")


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of all files of a directory, by their paths in it."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
