"""The manifest of a round as JSON: which staged files replace which old files.

Recovery renames and deletes the files that the manifest names, and no others. So the parser is strict: exactly these
fields, no field twice, only names of segment files, groups in ascending order. A manifest holds no keys or values.
`docs/swap.md` describes the fields.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.format.names import Suffix, Temporary, TopicPartition, log_name, parse_file_name
from kcompact.log.files import FileIdentity

NAME = "manifest.json"
MAX_BYTES = 64 << 20
VERSION = 1

_STAGED_AS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The groups of a round, in the order of their swaps, and the process that runs it.

    `end_offset` is the checkpoint after the round, None if a later manifest of the round has more groups.
    """

    topic_partition: TopicPartition
    end_offset: int | None
    pid: int
    groups: tuple[CleanedSegment, ...]


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as JSON."""
    document = {
        "version": VERSION,
        "pid": manifest.pid,
        "topic": manifest.topic_partition.topic,
        "partition": manifest.topic_partition.partition,
        "end_offset": manifest.end_offset,
        "groups": [
            {
                "base_offset": group.base_offset,
                "outputs": [
                    {"name": file.name, "staged_as": file.staged_as, "size": file.size_bytes, "crc32c": file.crc32c}
                    for file in group.files
                ],
                "inputs": [
                    {
                        "name": file.name,
                        "device": file.device,
                        "inode": file.inode,
                        "size": file.size_bytes,
                        "mtime_ns": file.mtime_ns,
                    }
                    for file in group.replaces
                ],
            }
            for group in manifest.groups
        ],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def decode(content: bytes) -> Manifest:
    """Return the manifest. Raises ValueError for any document that `encode` does not write."""
    document = json.loads(content, object_pairs_hook=_object, parse_float=_no_number, parse_constant=_no_number)
    root = _fields(document, "version", "pid", "topic", "partition", "end_offset", "groups")
    if _integer(root["version"]) != VERSION:
        raise ValueError(f"version {root['version']}")
    name = f"{_text(root['topic'])}-{_integer(root['partition'])}"
    topic_partition = TopicPartition.parse(name)
    if topic_partition is None:
        raise ValueError(f"{name!r} is not a partition")
    end_offset = root["end_offset"]
    manifest = Manifest(
        topic_partition=topic_partition,
        end_offset=None if end_offset is None else _integer(end_offset),
        pid=_integer(root["pid"]),
        groups=tuple(_group(value) for value in _list(root["groups"])),
    )
    problem = inconsistency(manifest)
    if problem is not None:
        raise ValueError(problem)
    return manifest


def _group(value: object) -> CleanedSegment:
    fields = _fields(value, "base_offset", "outputs", "inputs")
    return CleanedSegment(
        base_offset=_integer(fields["base_offset"]),
        files=tuple(_output(file) for file in _list(fields["outputs"])),
        replaces=tuple(_input(file) for file in _list(fields["inputs"])),
    )


def _output(value: object) -> StagedFile:
    fields = _fields(value, "name", "staged_as", "size", "crc32c")
    return StagedFile(
        name=_text(fields["name"]),
        staged_as=_text(fields["staged_as"]),
        size_bytes=_integer(fields["size"]),
        crc32c=_integer(fields["crc32c"]),
    )


def _input(value: object) -> FileIdentity:
    fields = _fields(value, "name", "device", "inode", "size", "mtime_ns")
    return FileIdentity(
        name=_text(fields["name"]),
        device=_integer(fields["device"]),
        inode=_integer(fields["inode"]),
        size_bytes=_integer(fields["size"]),
        mtime_ns=_integer(fields["mtime_ns"], least=-(2**63)),
    )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is not a whole number")


def _fields(value: object, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError(f"expected an object of {', '.join(names)}")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _integer(value: object, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value < 2**64:
        raise ValueError("expected a whole number")
    return value


def inconsistency(manifest: Manifest) -> str | None:
    """Return why the manifest is inconsistent, so that no round can have written it; None if it is consistent."""
    previous_last = -1
    for group in manifest.groups:
        problem = _names_problem(group) or _segments_problem(group, previous_last)
        if problem is not None:
            return f"group {group.base_offset}: {problem}"
        previous_last = _base_offsets(group)[-1]
    return None


def _names_problem(group: CleanedSegment) -> str | None:
    for names in ([file.name for file in group.files], [file.name for file in group.replaces]):
        if len(set(names)) != len(names):
            return "a name occurs twice"
        parsed = map(parse_file_name, names)
        if any(name is None or name.temporary is not Temporary.NO for name in parsed):
            return "a name that is not the name of a segment file"
    staged_as = {file.staged_as for file in group.files}
    if len(staged_as) != len(group.files) or not all(map(_STAGED_AS.fullmatch, staged_as)):
        return "a staged file without a name of its own"
    return None


def _segments_problem(group: CleanedSegment, previous_last: int) -> str | None:
    bases = _base_offsets(group)
    if not bases or bases[0] != group.base_offset or bases[0] <= previous_last:
        return "not in ascending order"
    outputs = [parse_file_name(file.name) for file in group.files]
    suffixes = {name.suffix for name in outputs if name is not None and name.base_offset == group.base_offset}
    if len(suffixes) != len(outputs) or Suffix.SNAPSHOT in suffixes or Suffix.LOG not in suffixes:
        return "the outputs are not one segment"
    if log_name(group.base_offset) not in {file.name for file in group.replaces}:
        return "the first log is not replaced"
    return None


def _base_offsets(group: CleanedSegment) -> list[int]:
    parsed = (parse_file_name(file.name) for file in group.replaces)
    return sorted(name.base_offset for name in parsed if name is not None)
