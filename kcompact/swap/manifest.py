"""The manifest of a round as JSON: which staged files replace which old files.

Recovery renames and deletes the files that the manifest names, and no others. So the parser is strict: exactly these
fields, no field twice, only names of segment files, groups in ascending order. A manifest holds no keys or values.
A file of a manifest has at most MAX_BYTES, because parsing takes many times that. If the old files of a group are too
many, they are listed in parts: files of their own, which the manifest names. `docs/swap.md` describes the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.format.names import Suffix, Temporary, TopicPartition, log_name, parse_file_name
from kcompact.log.files import FileIdentity

NAME = "manifest.json"
MAX_BYTES = 1 << 20
MAX_PARTS = 16
VERSION = 1
_PART_INPUTS = 4000
"""A part lists at most this many old files: each takes fewer than 200 bytes."""

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


def encode(manifest: Manifest) -> list[tuple[str, bytes]]:
    """Return the names and contents of the manifest's files, in the order in which they must be written.

    Only the last one, NAME, makes the parts before it count.
    """
    document = _document(manifest)
    content = _json(document)
    if len(content) <= MAX_BYTES:
        return [(NAME, content)]
    parts: list[tuple[str, bytes]] = []
    for group in document["groups"]:
        inputs, group["inputs"] = group["inputs"], []
        for start in range(0, len(inputs), _PART_INPUTS):
            part = {"base_offset": group["base_offset"], "inputs": inputs[start : start + _PART_INPUTS]}
            parts.append((_part_name(len(parts)), _json(part)))
    document["parts"] = [
        {"name": name, "size": len(content), "crc32c": int(crc32c(content))} for name, content in parts
    ]
    return [*parts, (NAME, _json(document))]


def is_file_name(name: str) -> bool:
    """Return whether a file of this name in a staging directory is the manifest or a part of one."""
    return name == NAME or name in map(_part_name, range(MAX_PARTS))


def _part_name(number: int) -> str:
    return f"manifest-part-{number}.json"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _document(manifest: Manifest) -> dict[str, Any]:
    return {
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


def decode(content: bytes, read_part: Callable[[str], bytes]) -> Manifest:
    """Return the manifest from the content of NAME. `read_part` returns the content of a part.

    Raises ValueError for any document that `encode` does not write.
    """
    document = _parsed(content)
    names = ("version", "pid", "topic", "partition", "end_offset", "groups")
    parts = _list(document["parts"]) if isinstance(document, dict) and "parts" in document else None
    root = _fields(document, *names) if parts is None else _fields(document, *names, "parts")
    if _integer(root["version"]) != VERSION:
        raise ValueError(f"version {root['version']}")
    name = f"{_text(root['topic'])}-{_integer(root['partition'])}"
    topic_partition = TopicPartition.parse(name)
    if topic_partition is None:
        raise ValueError(f"{name!r} is not a partition")
    end_offset = root["end_offset"]
    more_inputs = _inputs_of_parts(parts or [], read_part)
    manifest = Manifest(
        topic_partition=topic_partition,
        end_offset=None if end_offset is None else _integer(end_offset),
        pid=_integer(root["pid"]),
        groups=tuple(_group(value, more_inputs) for value in _list(root["groups"])),
    )
    if more_inputs:
        raise ValueError("a part of no group")
    problem = inconsistency(manifest)
    if problem is not None:
        raise ValueError(problem)
    return manifest


def _parsed(content: bytes) -> object:
    return json.loads(content, object_pairs_hook=_object, parse_float=_no_number, parse_constant=_no_number)


def _inputs_of_parts(parts: list[object], read_part: Callable[[str], bytes]) -> dict[int, list[FileIdentity]]:
    """Return the old files that the parts list, by the base offset of their group."""
    if len(parts) > MAX_PARTS:
        raise ValueError(f"{len(parts)} parts")
    found: dict[int, list[FileIdentity]] = {}
    for number, value in enumerate(parts):
        fields = _fields(value, "name", "size", "crc32c")
        if fields["name"] != _part_name(number):
            raise ValueError(f"a part with the name {fields['name']!r}")
        content = read_part(_part_name(number))
        if (len(content), int(crc32c(content))) != (_integer(fields["size"]), _integer(fields["crc32c"])):
            raise ValueError(f"{_part_name(number)} has another content")
        part = _fields(_parsed(content), "base_offset", "inputs")
        found.setdefault(_integer(part["base_offset"]), []).extend(map(_input, _list(part["inputs"])))
    return found


def _group(value: object, more_inputs: dict[int, list[FileIdentity]]) -> CleanedSegment:
    """Return a group, and take its old files that are in parts out of `more_inputs`."""
    fields = _fields(value, "base_offset", "outputs", "inputs")
    base_offset = _integer(fields["base_offset"])
    return CleanedSegment(
        base_offset=base_offset,
        files=tuple(_output(file) for file in _list(fields["outputs"])),
        replaces=(*map(_input, _list(fields["inputs"])), *more_inputs.pop(base_offset, ())),
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
