"""Judges copies in a bucket by the objects themselves, and by the local copies of the same logs.

Nothing here uses kcompact's reading: objects come from the server by boto3, a manifest is JSON, and the checksum is
that of kafka-python.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.support.command_line import Ran
from tests.support.consumer_view import checkpoint
from tests.support.copies import read_files
from tests.support.s3_server import KEY_ID, SECRET, Server

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    from kafka.record.util import calc_crc32c

MANIFEST = ".kcompact-manifest.json"
TRIAL = "trial"
"""What kcompact tries conditional writes with, in the directory of an attempt."""
LOCK = ".lock"
"""Of a local log directory only."""
SHARED = ""
"""The directory of the files that partitions share: the log directory itself."""
CODES = {0: "done", 1: "failed", 3: "corrupt data", 4: "refused", 6: "changed during the run"}
"""The exit codes of `docs/cli.md` that faults of a store can have."""
CHECKPOINTS = (
    *("cleaner-offset-checkpoint", "log-start-offset-checkpoint"),
    *("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
)
FINISHED = ("cleaned", "copied")
"""The statuses of a partition that is complete."""

_ATTEMPT = re.compile(r"\.kcompact-[0-9a-f]{16}")
_ADDRESS = re.compile(r"s3://[^\s,:']+")

Objects = Mapping[str, bytes]
"""The objects of a bucket, by key."""
Files = Mapping[str, bytes]
"""The files of a directory, by name."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A copy of a log directory: the files of each directory, and the entries of each partition in the checkpoints."""

    files: Mapping[str, Files]
    offsets: Mapping[str, Mapping[str, int]]

    @property
    def partitions(self) -> list[str]:
        """The names of the partitions."""
        return sorted(set(self.files) - {SHARED})


def read_expected(copy: Path) -> Expected:
    """Return what a complete local copy of a log directory has."""
    files: dict[str, dict[str, bytes]] = {}
    for path, content in read_files(copy).items():
        directory, _, name = path.rpartition("/")
        if name != LOCK:
            files.setdefault(directory, {})[name] = content
    offsets = {
        partition: {name: at for name in CHECKPOINTS if (at := checkpoint(copy / name, partition)) is not None}
        for partition in files
    }
    return Expected(files, offsets)


def read_objects(server: Server, bucket: str) -> Objects:
    """Return the objects of a bucket."""
    client = server.client()
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in server.keys(bucket)}


def copy_problems(objects: Objects, prefix: str, directory: str, expected: Expected) -> list[str]:
    """Return what is wrong with the copy of a directory below a prefix: nothing, if it is there and whole."""
    place = f"{prefix}/{directory}".rstrip("/")
    content = objects.get(f"{place}/{MANIFEST}")
    if content is None:
        return [f"{place} has no manifest"]
    body, _, checksum = content.rpartition(b',"crc32c":')
    if checksum != b"%d}\n" % _crc(body):
        return [f"{place} has a manifest with another checksum"]
    try:
        manifest = json.loads(content)
        named = {each["name"]: (each["size_bytes"], each["crc32c"]) for each in manifest["files"]}
        attempt, offsets = str(manifest["attempt"]), manifest["offsets"]
    except (ValueError, KeyError, TypeError) as problem:
        return [f"{place} has a manifest that is none ({type(problem).__name__})"]
    files = expected.files[directory]
    problems = [] if _ATTEMPT.fullmatch(attempt) else [f"{place}: no attempt is named {attempt!r}"]
    problems += [f"{place}: the manifest has not {name}" for name in sorted(files.keys() - named.keys())]
    problems += [f"{place}: the manifest also has {name}" for name in sorted(named.keys() - files.keys())]
    for name in sorted(files.keys() & named.keys()):
        stored, right = objects.get(f"{place}/{attempt}/{name}"), files[name]
        if stored is None:
            problems.append(f"{place}/{name} is not there")
        elif stored != right:
            problems.append(f"{place}/{name} has other bytes, {len(stored)} in place of {len(right)}")
        if named[name] != (len(right), _crc(right)):
            problems.append(f"{place}/{name} has another size or checksum in the manifest")
    if directory != SHARED and offsets != expected.offsets[directory]:
        problems.append(f"{place}: the checkpoints are {offsets}")
    return problems


@lru_cache(maxsize=10_000)
def _crc(content: bytes) -> int:
    return int(calc_crc32c(content))


def called_complete(ran: Ran, chosen: Collection[str], *, is_log_dir: bool) -> set[str]:
    """Return the directories of which a command says that their copies are complete."""
    whole = {*chosen, *([SHARED] if is_log_dir else [])}
    try:
        answer = ran.json
    except ValueError:
        return whole if ran.code == 0 else set()
    if ran.code == 0 or answer["copy"]["is_finished"]:
        return whole
    return {
        f"{each['topic']}-{each['partition']}"
        for each in answer["partitions"]
        if each["status"] in FINISHED and each["error"] is None
    }


def report_problems(ran: Ran, *, has_lines: bool = False) -> list[str]:
    """Return what is wrong with the exit code and the words of a command, whatever it has done.

    With `has_lines` each line of its output is a JSON document, else all of it is one.
    """
    problems = []
    if ran.code not in CODES:
        problems.append(f"exit code {ran.code}")
    if ran.code != 0 and not (ran.err or ran.out):
        problems.append("it fails without a word")
    for words in ("Traceback", "unexpected error", "a bug of kcompact", KEY_ID, SECRET):
        if words in ran.err + ran.out:
            problems.append(f"it says {words!r}")
    try:
        for document in ran.out.splitlines() if has_lines else filter(None, [ran.out]):
            json.loads(document)
    except ValueError:
        problems.append("its output is no JSON")
    return problems


def outside_problems(
    objects: Objects, before: Objects, others: Objects, own: Collection[str], *, trials: bool
) -> list[str]:
    """Return what a command has done to objects that are none of the copy's, and what it has left in no directory.

    `own` are the keys of the directories of the copy. With `trials` a trial object may be left, because the request
    that removes it can have failed.
    """
    problems = [f"{key} is changed" for key, content in others.items() if objects.get(key) != content]
    for key in sorted(objects.keys() - before.keys()):
        parent, _, name = key.rpartition("/")
        directory, _, attempt = parent.rpartition("/")
        is_file = directory in own and _ATTEMPT.fullmatch(attempt) is not None
        is_manifest = parent in own and name == MANIFEST
        is_trial = trials and name == TRIAL and _ATTEMPT.fullmatch(attempt) is not None
        if not (is_file or is_manifest or is_trial):
            problems.append(f"{key} is left")
    return problems


def named_directories(ran: Ran, address: str) -> set[str]:
    """Return the directories of the copy at an address that the errors of a command name."""
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    found = {each.rstrip("./") for line in errors for each in _ADDRESS.findall(line)}
    below = [each.removeprefix(address).lstrip("/").split("/")[0] for each in found if each.startswith(f"{address}/")]
    return {SHARED if each.startswith(".kcompact-") else each for each in below}


def is_of(key: str, prefix: str, directory: str) -> bool:
    """Return whether an object is of a directory of the copy below a prefix."""
    return key.startswith(f"{prefix}/{directory}/" if directory else f"{prefix}/.kcompact-")
