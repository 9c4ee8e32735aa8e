"""A statement of search: which keys were searched for, where, when and how, what was found, and what it cannot know.

It proves what the files held that were read, at the time of their reading, and nothing else. So it names them, each
with its checksum, and says what may hold the keys all the same.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kcompact.bucket.mirror import MIRROR
from kcompact.errors import RefusedError
from kcompact.exit_codes import ExitCode
from kcompact.log.lock import LOCK_NAME, lock_problem
from kcompact.plan.discovery import canonical
from kcompact.plan.selection import EVERY_PARTITION, Selection
from kcompact.questions.search.files import FoundFile, files_below, has_files, selected_files
from kcompact.questions.search.finder import Finder
from kcompact.questions.search.findings import Findings, Hit, KeyFindings, Place
from kcompact.questions.search.keys import SearchedKey
from kcompact.questions.search.scan import SearchedFile, search_file
from kcompact.questions.search.scope import SearchedLogDir, SearchedPartition, log_dirs_of, partitions_of
from kcompact.values import dataclass

EVERY_FILE = "Every regular file below the paths"
OF_SELECTION = "in the directories of selected partitions"
METHOD = (
    "was read whole, and its bytes were searched as they are stored. Every batch of records that can be read was "
    "inflated too, and all that it inflates to was searched, whatever a reader would see of it."
)
EXACT = "A key counts where it is the whole key of a record, and in files that are not read as records."
UNKNOWN = (
    "free blocks of the disks, and file system snapshots",
    "backups, and copies on other machines",
    "segments in tiered storage",
    "other encodings of the key: encrypted, encoded, compressed by the producer, or spread over fields",
    "the stores of consumers, of Kafka Connect and of Kafka Streams",
    "what was written after a file was read",
    "replicas on brokers whose directories were not given, which may bring the key back",
)
"""What a search of files cannot know."""
NOT_SELECTED = "partitions that were not selected, and files that are in no partition"


class SearchOutcome(StrEnum):
    """What the search for a key has shown, the gravest first."""

    PRESENT = "present"
    NOT_PROVEN = "not-proven"
    TOMBSTONE_ONLY = "tombstone-only"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOutcome:
    """The outcome for a key: its names, and its digest, HMAC-SHA-256 with the salt of the statement."""

    names: tuple[str, ...]
    digest: str
    outcome: SearchOutcome
    findings: KeyFindings

    @property
    def hits(self) -> dict[Place, int]:
        """How often the key was found, by place."""
        return self.findings.hits

    @property
    def places(self) -> Sequence[Hit]:
        """The first places of the key."""
        return self.findings.places


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What was searched and what was found. Times are Unix milliseconds.

    `salt` is None if the operator has chosen it: who has the statement alone cannot try keys then. With `is_exact` a
    key counts only as the whole key of a record. Only what `selection` selects was searched.
    """

    paths: tuple[Path, ...]
    selection: Selection = EVERY_PARTITION
    is_exact: bool = False
    started_ms: int
    ended_ms: int
    version: str
    salt: str | None
    keys: tuple[KeyOutcome, ...]
    files: tuple[SearchedFile, ...]
    log_dirs: tuple[SearchedLogDir, ...]
    partitions: tuple[SearchedPartition, ...]

    @property
    def not_proven(self) -> tuple[SearchedFile, ...]:
        """The files in which something may be hidden."""
        return tuple(each for each in self.files if each.problem)

    @property
    def method(self) -> str:
        """What was done."""
        files = EVERY_FILE if self.selection.selects_all else f"{EVERY_FILE} {OF_SELECTION}"
        return " ".join((files, METHOD, *((EXACT,) if self.is_exact else ())))

    @property
    def cannot_know(self) -> tuple[str, ...]:
        """What may have the keys all the same."""
        return UNKNOWN if self.selection.selects_all else (NOT_SELECTED, *UNKNOWN)

    @property
    def exit_code(self) -> int:
        """0 if every key is absent, else 10."""
        return 0 if all(each.outcome is SearchOutcome.ABSENT for each in self.keys) else ExitCode.UNDECIDED


class SearchScope(NamedTuple):
    """What is to be searched: the paths as they are asked, the selected files below them, and all log directories."""

    paths: tuple[Path, ...]
    selection: Selection
    files: list[FoundFile]
    log_dirs: list[SearchedLogDir]


def listed(paths: Sequence[Path], selection: Selection = EVERY_PARTITION) -> SearchScope:
    """Return what is to be searched, by absolute paths, of a selection only the files of its partitions.

    A path that is a link is followed, unless its name is that of a partition. Raises RefusedError for a path without
    any file, and if nothing is selected.
    """
    for path in paths:
        MIRROR.require(path)
        if not path.exists() and not path.is_symlink():
            raise RefusedError(path=path, problem="no such file or directory")
        if not has_files(canonical(path)):
            hint = "Nothing can be searched here. Is the disk mounted? Pass the directories that hold the files."
            raise RefusedError(path=path, problem="there is no file in it", hint=hint)
    scope = _listed(paths, selection)
    if not selection.selects_all and all(file.path.name == LOCK_NAME for file in scope.files):
        raise selection.no_match(paths[0], dict.fromkeys(file.path.parent for file in _listed(paths).files))
    return scope


def _listed(paths: Sequence[Path], selection: Selection = EVERY_PARTITION) -> SearchScope:
    absolute = list(map(canonical, paths))
    files = files_below(absolute)
    log_dirs = log_dirs_of(absolute, _names(files), selection)
    selected = selected_files(files, absolute, selection)
    locks = [each.path / LOCK_NAME for each in log_dirs]
    doubtful = {lock: problem for lock in locks if (problem := lock_problem(lock.parent))}
    selected += [
        FoundFile(path=lock, problem=f"whether a broker runs is not known: {problem}")
        for lock, problem in doubtful.items()
        if lock not in _names(selected)
    ]
    return SearchScope(tuple(paths), selection, selected, log_dirs)


def _names(files: Iterable[FoundFile | SearchedFile]) -> list[Path]:
    """Return all names of some files."""
    return [name for file in files for name in (file.path, *file.also)]


def search(
    scope: SearchScope,
    keys: Sequence[SearchedKey],
    *,
    is_exact: bool = False,
    salt: bytes,
    shows_salt: bool,
    version: str,
    clock_ms: Callable[[], int],
    memory_bytes: int,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> Statement:
    """Search files for keys, none empty. Reads only.

    A file that has changed when all are read, or that is new, may have had a key for a moment that nobody has looked
    at: it is not proven. `advance` receives the bytes of each step.
    """
    started_ms = clock_ms()
    finder, findings = Finder([each.key for each in keys]), Findings(len(keys))
    searched = [
        search_file(file, finder, findings, is_exact=is_exact, memory_bytes=memory_bytes, advance=advance)
        for file in scope.files
    ]
    paths, selection = scope.paths, scope.selection
    now = _listed(paths, selection)
    searched += _changed_since(now.files, scope.files, searched)
    ran = {each.path for each in (*scope.log_dirs, *now.log_dirs) if each.was_running}
    unread = [file.path for file in searched if file.problem and not file.sha256]
    log_dirs = [
        replace(each, was_running=each.path in ran, is_whole=each.is_whole and not _has_any(each.path, unread))
        for each in now.log_dirs
    ]
    is_open = any(file.problem for file in searched) or bool(ran)
    return Statement(
        paths=paths,
        selection=selection,
        is_exact=is_exact,
        started_ms=started_ms,
        ended_ms=clock_ms(),
        version=version,
        salt=salt.decode("utf-8", "backslashreplace") if shows_salt else None,
        keys=tuple(
            _outcome(key, key_findings, salt, is_open=is_open, is_exact=is_exact)
            for key, key_findings in zip(keys, findings.keys, strict=True)
        ),
        files=tuple(searched),
        log_dirs=tuple(log_dirs),
        partitions=tuple(partitions_of(list(map(canonical, paths)), log_dirs, _names(searched), selection)),
    )


def _has_any(directory: Path, files: Iterable[Path]) -> bool:
    return any(directory in file.parents for file in files)


def _changed_since(
    files_now: Iterable[FoundFile], files: Sequence[FoundFile], searched: Sequence[SearchedFile]
) -> list[SearchedFile]:
    """Mark the files that have changed since they were listed. Return those that are new."""
    now = {file.path: file for file in files_now}
    for file, result in zip(files, searched, strict=True):
        current = now.pop(file.path, None)
        if current is None:
            result.problem = result.problem or "removed or renamed during the search"
        elif current.identity != file.identity:
            result.problem = result.problem or "changed during the search"
    return [
        SearchedFile(path=file.path, also=file.also, problem=file.problem or "new since the search began")
        for file in now.values()
    ]


def _outcome(key: SearchedKey, key_findings: KeyFindings, salt: bytes, *, is_open: bool, is_exact: bool) -> KeyOutcome:
    places = key_findings.hits.keys() & {Place.KEY, Place.TOMBSTONE} if is_exact else key_findings.hits.keys()
    if places - {Place.TOMBSTONE}:
        outcome = SearchOutcome.PRESENT
    elif is_open:
        outcome = SearchOutcome.NOT_PROVEN
    else:
        outcome = SearchOutcome.TOMBSTONE_ONLY if places else SearchOutcome.ABSENT
    digest = hmac.new(salt, key.key, hashlib.sha256).hexdigest()
    return KeyOutcome(names=key.names, digest=digest, outcome=outcome, findings=key_findings)
