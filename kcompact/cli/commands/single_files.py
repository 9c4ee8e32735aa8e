"""`inspect` and `verify` of single files: a log, an index, a snapshot, a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kcompact.cli.entries import FileEntry
from kcompact.cli.output.file_entries import base_offset_of, entries_of, has_second_suffix, is_log, kind_of
from kcompact.errors import CorruptDataError, KcompactError, RefusedError, storage_errors
from kcompact.plan.walk import Entry


def is_file(path: Path) -> bool:
    """Return whether a path is a file. False for an unreadable path, which is then reported like a directory."""
    try:
        return path.is_file()
    except OSError:
        return False


def refused_file(path: Path, command: str, entry: type[Entry]) -> Entry:
    """Return the entry of a file for a command that needs all segments of a partition."""
    problem = f"{command} needs a partition directory or a log directory: all segments decide"
    return entry.failed(path.absolute(), RefusedError(path=path.absolute(), problem=problem))


def file_entry(path: Path, *, verify: bool, memory_bytes: int) -> FileEntry:
    """Return the readable contents of a single file, and the error that ended the reading."""
    entry = FileEntry(path=path)
    try:
        with storage_errors(path):
            entry = replace(entry, size_bytes=path.stat().st_size)
        entry = replace(entry, kind=kind_of(path))
        if path.name[:1].isdigit():
            entry = replace(entry, base_offset=base_offset_of(path))
        if is_log(path):
            return _with_contents(entry, verify=verify, memory_bytes=memory_bytes)
        entry = replace(entry, entries=entries_of(path, memory_bytes=memory_bytes))
        if verify:
            entry = replace(entry, findings=())
            return _with_findings_of_index(entry, memory_bytes)
    except KcompactError as problem:
        return replace(entry, error=str(problem), exit_code=problem.exit_code)
    return entry


def _with_contents(entry: FileEntry, *, verify: bool, memory_bytes: int) -> FileEntry:
    """Return the entry of a log with its counts and, with `verify`, its findings."""
    from kcompact.inspect.contents import file_contents
    from kcompact.inspect.verify import verify_file

    base_offset = base_offset_of(entry.path)
    if verify:
        verified = verify_file(entry.path, base_offset, memory_bytes=memory_bytes)
        contents = verified.segments[0]
        entry = replace(entry, contents=contents, findings=tuple(verified.findings))
        if verified.is_damaged:
            entry = _damaged(entry)
    else:
        contents = file_contents(entry.path, base_offset)
        entry = replace(entry, contents=contents)
    if contents.damage is not None:
        entry = replace(entry, error=str(contents.damage), exit_code=contents.damage.exit_code)
    return entry


def _with_findings_of_index(entry: FileEntry, memory_bytes: int) -> FileEntry:
    """Return the entry of an index with its findings against the log beside it; return any other entry unchanged."""
    log = entry.path.with_suffix(".log")
    if entry.kind not in ("index", "timeindex", "txnindex") or has_second_suffix(entry.path) or not log.exists():
        return entry
    from kcompact.inspect.findings import Severity
    from kcompact.inspect.verify import verify_file

    verified = verify_file(log, base_offset_of(entry.path), memory_bytes=memory_bytes)
    findings = tuple(finding for finding in verified.findings if finding.file == entry.path.name)
    entry = replace(entry, findings=findings)
    is_damaged = any(finding.severity is Severity.DAMAGE for finding in findings)
    return _damaged(entry) if is_damaged else entry


def _damaged(entry: FileEntry) -> FileEntry:
    return replace(entry, error="damaged", exit_code=CorruptDataError.exit_code)
