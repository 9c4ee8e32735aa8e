"""The manifest of a round as JSON: which staged files replace which old files.

Recovery renames and deletes the files that the manifest names, and no others. So the parser is strict: a checksum over
the whole, exactly these fields, only names of segment files, groups in ascending order. A manifest holds no keys or
values. It has at most MAX_BYTES, because parsing takes many times that. `docs/swap.md` describes the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.format.names import Suffix, Temporary, TopicPartition, log_bases, parse_file_name, parse_file_names
from kcompact.format.properties import encode_uuid
from kcompact.format.sealed_json import NUMBER, TEXT, TIME, SealedDocument, listed, optional, sealed, unsealed
from kcompact.log.files import FileIdentity
from kcompact.swap.identity import IDENTITY, PartitionIdentity
from kcompact.values import dataclass

NAME = "manifest.json"
MAX_BYTES = 16 << 20
"""Enough for 80,000 old files of the longest names and greatest numbers."""
VERSION = 2

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


_OUTPUT = SealedDocument(StagedFile, name=TEXT, staged_as=TEXT, size_bytes=NUMBER.called("size"), crc32c=NUMBER)
_INPUT = SealedDocument(
    FileIdentity, name=TEXT, device=NUMBER, inode=NUMBER, size_bytes=NUMBER.called("size"), mtime_ns=TIME
)
_GROUP = SealedDocument(
    CleanedSegment,
    base_offset=NUMBER,
    files=listed(_OUTPUT).called("outputs"),
    replaces=listed(_INPUT).called("inputs"),
)
_MANIFEST = SealedDocument(
    Manifest, version=VERSION, pid=NUMBER, identity=IDENTITY, end_offset=optional(NUMBER), groups=listed(_GROUP)
)


def encode(manifest: Manifest) -> bytes:
    """Return the content of the file."""
    return sealed(_MANIFEST.write(manifest))


def most_bytes(topic_partition: TopicPartition) -> int:
    """Return the most bytes that a manifest has besides its groups."""
    any_id = encode_uuid(bytes(16))
    identity = PartitionIdentity(topic_partition=topic_partition, topic_id=any_id, directory_id=any_id)
    return len(sealed(_MANIFEST.write(Manifest(identity=identity, end_offset=2**63, pid=2**32, groups=()))))


def most_bytes_of_group(group: CleanedSegment) -> int:
    """Return the most bytes that a group adds to a manifest; the values of its staged files may be any."""
    files = tuple(replace(file, staged_as="x" * 40, size_bytes=2**63, crc32c=2**32) for file in group.files)
    return len(sealed(_GROUP.write(replace(group, files=files))))


def decode(content: bytes) -> Manifest:
    """Return the manifest from the content of its file. Raises ValueError for what `encode` does not write."""
    manifest = _MANIFEST.read(unsealed(content))
    problem = inconsistency(manifest)
    if problem is not None:
        raise ValueError(problem)
    return manifest


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
    new_logs, old_logs = (log_bases(file.name for file in files) for files in (group.files, group.replaces))
    if group.base_offset not in new_logs or _base_offsets(group.files)[0] < group.base_offset:
        return "the outputs do not begin with the segment of the group"
    if not set(_base_offsets(group.files, but=Suffix.SNAPSHOT)).issubset(new_logs):
        return "an output of a segment without a log"
    if group.base_offset not in old_logs:
        return "the first log is not replaced"
    if not set(_base_offsets(group.replaces, but=Suffix.SNAPSHOT)).issubset(old_logs):
        return "an index is replaced, and its log is not"
    return None


def _base_offsets(files: Iterable[FileIdentity | StagedFile], *, but: Suffix | None = None) -> list[int]:
    """Return the base offsets in the names of files, ascending; without those of the files of one kind."""
    parsed = parse_file_names(file.name for file in files)
    return sorted(name.base_offset for name in parsed if name.suffix is not but)
