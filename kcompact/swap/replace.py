"""One staged group in the place of the segments it replaces.

Everything that can be checked is checked before the first step. After it, a failure says on which side of the commit
point it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from kcompact.errors import CorruptDataError, LogChangedError, RecoveryNeededError
from kcompact.format.names import Suffix, Temporary, parse_file_name
from kcompact.log.directory import STAGING_NAME
from kcompact.log.files import FileIdentity
from kcompact.swap import manifest as manifest_format
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.rounds import require_nothing_unfinished
from kcompact.swap.steps import (
    DELETED,
    SWAP,
    Observer,
    Remove,
    Rename,
    Replacement,
    Step,
    SyncDir,
    replaced_names,
    replacement_steps,
)

# --- The swap -------------------------------------------------------------------------------------------


def replace_segments(
    partition_dir: Path,
    staging: str,
    cleaned: Replacement,
    lock_check: Callable[[], None],
    *,
    after_step: Observer | None = None,
) -> None:
    """Put one staged group in the place of the segments it replaces, durably, or change nothing.

    Groups come in ascending base offset, each in the manifest. `lock_check` is `LogDirLock.check`. Before
    the first step: RecoveryNeededError if any `.cleaned` or `.swap` is in sight, LogChangedError if an old
    file is not as it was planned, a file appeared among them, or the lock is lost; nothing is changed then.
    A step that fails raises RecoveryNeededError, which says whether the commit point was passed: *before*,
    *after* or *unknown*; if it is the very first one, StorageError.
    """
    with OpenDirectory(partition_dir) as directory:
        present = directory.names()
        require_nothing_unfinished(directory, present)
        _require_unchanged(directory, present, cleaned)
        _require_staged(directory, staging, cleaned)
        lock_check()
        # A broker that stopped within a minute of cleaning leaves `.deleted` files; it deletes them when it
        # starts.
        stale = [name + DELETED for name in replaced_names(cleaned) if name + DELETED in present]
        sweep: tuple[Step, ...] = (*(Remove(name) for name in stale), SyncDir()) if stale else ()
        todo = sweep + replacement_steps(cleaned, staging)
        done: list[Step] = []

        def observe(step: Step) -> None:
            done.append(step)
            if after_step is not None:
                after_step(step)

        try:
            apply_steps(directory, todo, observe)
        except OSError as error:
            if not done:
                raise  # Nothing was changed, nothing is to be recovered: a StorageError like any other.
            raise _stopped(directory, cleaned.base_offset, todo, len(done), error) from error


def require_unchanged(partition_dir: Path, files: Iterable[FileIdentity]) -> None:
    """Raise LogChangedError if one of the files is not as it was when the round was planned."""
    with OpenDirectory(partition_dir) as directory:
        require_as_planned(directory, files)


def require_as_planned(directory: OpenDirectory, files: Iterable[FileIdentity]) -> None:
    for identity in files:
        status = directory.status(identity.name)
        if status is None or FileIdentity.of(identity.name, status) != identity:
            problem = "was changed or replaced" if status is not None else "is gone"
            raise LogChangedError(path=directory.path / identity.name, problem=f"{problem} since the round was planned")


def _require_unchanged(directory: OpenDirectory, present: Collection[str], cleaned: Replacement) -> None:
    require_as_planned(directory, cleaned.replaces)
    # What lies between the group's first and last segment and is not replaced would be read beside the new
    # segment, and an index of the first one would be taken for the new log's.
    known = {identity.name for identity in cleaned.replaces}
    last = max(name.base_offset for name in map(parse_file_name, known) if name is not None)
    for name in present:
        parsed = parse_file_name(name)
        if parsed is None or parsed.temporary is not Temporary.NO or parsed.suffix is Suffix.SNAPSHOT:
            continue
        if cleaned.base_offset <= parsed.base_offset <= last and name not in known:
            raise LogChangedError(path=directory.path / name, problem="appeared since the round was planned")


def _require_staged(directory: OpenDirectory, staging: str, cleaned: Replacement) -> None:
    assert STAGING_NAME.fullmatch(staging), staging
    if directory.size(f"{staging}/{manifest_format.NAME}") is None:
        raise LogChangedError(path=directory.path / staging / manifest_format.NAME, problem="is gone")
    for file in cleaned.files:
        size = directory.size(f"{staging}/{file.staged_as}")
        if size != file.size_bytes:
            raise CorruptDataError(
                file=directory.path / staging / file.staged_as,
                problem=f"staged with {file.size_bytes} bytes, now has {size}",
            )


def _stopped(
    directory: OpenDirectory, base_offset: int, todo: Sequence[Step], done: int, error: OSError
) -> RecoveryNeededError:
    swapped = next(place for place, step in enumerate(todo) if isinstance(step, Rename) and step.target.endswith(SWAP))
    commit = todo.index(SyncDir(), swapped)
    if done < commit:
        where = "before its commit point: the log is as it was"
    elif done > commit:
        where = "after its commit point: the new segment counts, the old files are not all gone"
    else:
        where = "at its commit point: unknown whether the old or the new segment counts; both are there"
    return RecoveryNeededError(
        path=directory.path,
        problem=f"the swap of segment {base_offset} stopped {where} ({todo[done]}: {error.strerror})",
        hint="Run `kcompact recover` before anything else uses this directory.",
    )
