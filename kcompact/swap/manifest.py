"""The manifest of a round as JSON: which staged files replace which old files.

Recovery renames and deletes the files that the manifest names, and no others. So the parser is strict: a checksum over
the whole, exactly these fields, only names of segment files, groups in ascending order. A manifest holds no keys or
values. A file of a manifest has at most MAX_BYTES, because parsing takes many times that. If the old files of a group
are too many, they are listed in parts: files of their own, which the manifest names. `docs/swap.md` describes the
fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.format.checksum import crc32c
from kcompact.format.names import Suffix, Temporary, TopicPartition, log_name, parse_file_name
from kcompact.format.properties import encode_uuid
from kcompact.log.files import FileIdentity
from kcompact.swap.identity import IDENTITY, PartitionIdentity
from kcompact.swap.sealed_json import NUMBER, TEXT, TIME, Document, listed, optional, sealed, unsealed

NAME = "manifest.json"
MAX_BYTES = 1 << 20
MAX_PARTS = 16
VERSION = 2
_PART_INPUTS = 4000
"""A part lists at most this many old files: each takes fewer than 200 bytes."""
_PART_BYTES = 200
"""What a part takes besides its old files, at most, with its mention in the manifest."""

_STAGED_AS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The groups of a round, in the order of their swaps, and the process that runs it.

    `end_offset` is the checkpoint after the round: the base offset of the segment that follows the last group. It is
    None if a later manifest of the round has more groups, or an earlier one has had later groups.
    """

    identity: PartitionIdentity
    end_offset: int | None
    pid: int
    groups: tuple[CleanedSegment, ...]


class _Part(NamedTuple):
    """A file with the old files of a group, those that the manifest does not list itself."""

    base_offset: int
    inputs: tuple[FileIdentity, ...]


class _PartMention(NamedTuple):
    """What the manifest says of a part."""

    name: str
    size_bytes: int
    crc32c: int


_OUTPUT = Document(StagedFile, name=TEXT, staged_as=TEXT, size_bytes=NUMBER.called("size"), crc32c=NUMBER)
_INPUT = Document(FileIdentity, name=TEXT, device=NUMBER, inode=NUMBER, size_bytes=NUMBER.called("size"), mtime_ns=TIME)
_GROUP = Document(
    CleanedSegment,
    base_offset=NUMBER,
    files=listed(_OUTPUT).called("outputs"),
    replaces=listed(_INPUT).called("inputs"),
)
_MANIFEST = Document(
    Manifest, version=VERSION, pid=NUMBER, identity=IDENTITY, end_offset=optional(NUMBER), groups=listed(_GROUP)
)
_PART = Document(_Part, base_offset=NUMBER, inputs=listed(_INPUT))
_PARTS = listed(Document(_PartMention, name=TEXT, size_bytes=NUMBER.called("size"), crc32c=NUMBER))


def encode(manifest: Manifest) -> list[tuple[str, bytes]]:
    """Return the names and contents of the manifest's files, in the order in which they must be written.

    Only the last one, NAME, makes the parts before it count.
    """
    document = _MANIFEST.write(manifest)
    content = sealed(document)
    if len(content) <= MAX_BYTES:
        return [(NAME, content)]
    parts: list[tuple[str, bytes]] = []
    for group, fields in zip(manifest.groups, document["groups"], strict=True):
        fields["inputs"] = []
        for start in range(0, len(group.replaces), _PART_INPUTS):
            part = _Part(group.base_offset, group.replaces[start : start + _PART_INPUTS])
            parts.append((_part_name(len(parts)), sealed(_PART.write(part))))
    document["parts"] = _PARTS.write([_PartMention(name, len(content), crc32c(content)) for name, content in parts])
    return [*parts, (NAME, sealed(document))]


def most_bytes(topic_partition: TopicPartition) -> int:
    """Return the most bytes that a manifest has besides its groups. Parts take more: see `most_bytes_of_group`."""
    any_id = encode_uuid(bytes(16))
    identity = PartitionIdentity(topic_partition=topic_partition, topic_id=any_id, directory_id=any_id)
    return len(sealed(_MANIFEST.write(Manifest(identity=identity, end_offset=2**63, pid=2**32, groups=()))))


def most_bytes_of_group(group: CleanedSegment) -> int:
    """Return the most bytes that a group adds to the files of a manifest; the values of its staged files may be any."""
    files = tuple(replace(file, staged_as="x" * 40, size_bytes=2**63, crc32c=2**32) for file in group.files)
    parts = -(-len(group.replaces) // _PART_INPUTS) * _PART_BYTES
    return len(sealed(_GROUP.write(replace(group, files=files)))) + parts


def is_file_name(name: str) -> bool:
    """Return whether a file of this name in a staging directory is the manifest or a part of one."""
    return name == NAME or name in map(_part_name, range(MAX_PARTS))


def _part_name(number: int) -> str:
    return f"manifest-part-{number}.json"


def decode(content: bytes, read_part: Callable[[str], bytes]) -> Manifest:
    """Return the manifest from the content of NAME. `read_part` returns the content of a part.

    Raises ValueError for any document that `encode` does not write.
    """
    document = unsealed(content)
    parts = document.pop("parts") if isinstance(document, dict) and "parts" in document else []
    manifest = _MANIFEST.read(document)
    more_inputs = _inputs_of_parts(_PARTS.read(parts), read_part)
    groups = (
        replace(group, replaces=(*group.replaces, *more_inputs.pop(group.base_offset, ()))) for group in manifest.groups
    )
    manifest = replace(manifest, groups=tuple(groups))
    if more_inputs:
        raise ValueError("a part of no group")
    problem = inconsistency(manifest)
    if problem is not None:
        raise ValueError(problem)
    return manifest


def _inputs_of_parts(
    parts: tuple[_PartMention, ...], read_part: Callable[[str], bytes]
) -> dict[int, list[FileIdentity]]:
    """Return the old files that the parts list, by the base offset of their group."""
    if len(parts) > MAX_PARTS:
        raise ValueError(f"{len(parts)} parts")
    found: dict[int, list[FileIdentity]] = {}
    for number, mention in enumerate(parts):
        if mention.name != _part_name(number):
            raise ValueError(f"a part with the name {mention.name!r}")
        content = read_part(mention.name)
        if (len(content), crc32c(content)) != (mention.size_bytes, mention.crc32c):
            raise ValueError(f"{mention.name} has another content")
        part = _PART.read(unsealed(content))
        found.setdefault(part.base_offset, []).extend(part.inputs)
    return found


def inconsistency(manifest: Manifest) -> str | None:
    """Return why the manifest is inconsistent, so that no round can have written it; None if it is consistent."""
    previous_last = -1
    for group in manifest.groups:
        problem = _names_problem(group) or _segments_problem(group, previous_last)
        if problem is not None:
            return f"group {group.base_offset}: {problem}"
        previous_last = max(_base_offsets(group.replaces)[-1], _base_offsets(group.files)[-1])
    return None


def _names_problem(group: CleanedSegment) -> str | None:
    for names in ([file.name for file in group.files], [file.name for file in group.replaces]):
        if len(set(names)) != len(names):
            return "a name occurs twice"
        if any(name is None or name.temporary is not Temporary.NO for name in map(parse_file_name, names)):
            return "a name that is not the name of a segment file"
    staged_as = {file.staged_as for file in group.files}
    if len(staged_as) != len(group.files) or not all(map(_STAGED_AS.fullmatch, staged_as)):
        return "a staged file without a name of its own"
    return None


def _segments_problem(group: CleanedSegment, previous_last: int) -> str | None:
    bases = _base_offsets(group.replaces)
    if not bases or bases[0] != group.base_offset or bases[0] <= previous_last:
        return "not in ascending order"
    new = {file.name for file in group.files}
    new_logs = {base for base in _base_offsets(group.files) if log_name(base) in new}
    files = [name for name in map(parse_file_name, sorted(new)) if name is not None]
    if group.base_offset not in new_logs or min(name.base_offset for name in files) < group.base_offset:
        return "the outputs do not begin with the segment of the group"
    if any(name.suffix is not Suffix.SNAPSHOT and name.base_offset not in new_logs for name in files):
        return "an output of a segment without a log"
    old = [name for name in (parse_file_name(file.name) for file in group.replaces) if name is not None]
    old_logs = {name.base_offset for name in old if name.suffix is Suffix.LOG}
    if group.base_offset not in old_logs:
        return "the first log is not replaced"
    if any(name.suffix is not Suffix.SNAPSHOT and name.base_offset not in old_logs for name in old):
        return "an index is replaced, and its log is not"
    return None


def _base_offsets(files: Iterable[FileIdentity | StagedFile]) -> list[int]:
    names = (parse_file_name(file.name) for file in files)
    return sorted(name.base_offset for name in names if name is not None)
