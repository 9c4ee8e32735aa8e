"""The steps of a swap as values: renames, removals and syncs, in the order that the package docstring explains.

Functions here are pure: names in, steps out. `open_directory` is the only module that applies a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kcompact.clean.staged_files import StagedFile
from kcompact.format.names import Suffix, Temporary, parse_file_name
from kcompact.log.files import FileIdentity

CLEANED, SWAP, DELETED = Temporary.CLEANED.value, Temporary.SWAP.value, Temporary.DELETED.value


# --- A swap as a list of steps --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file another name, in the same file system. A file that already has that name is an error."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"rename {self.source} {self.target}"


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a file."""

    name: str

    def __str__(self) -> str:
        return f"remove {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """Delete an empty directory."""

    name: str

    def __str__(self) -> str:
        return f"rmdir {self.name}"


@dataclass(frozen=True, slots=True)
class SyncDir:
    """Wait until the directory's entries are on the disk. The empty name is the partition directory."""

    name: str = ""

    def __str__(self) -> str:
        return f"sync {self.name}".rstrip()


Step = Rename | Remove | RemoveDir | SyncDir
"""One operation on the disk, as a value. Names are relative to the partition directory."""


Observer = Callable[[Step], None]
"""Called after each step."""


class Replacement(Protocol):
    """Staged files and the files they replace: a `CleanedSegment`, or a `Group` read from a manifest."""

    @property
    def base_offset(self) -> int: ...
    @property
    def files(self) -> tuple[StagedFile, ...]: ...
    @property
    def replaces(self) -> tuple[FileIdentity, ...]: ...


def replacement_steps(cleaned: Replacement, staging: str) -> tuple[Step, ...]:
    """Return the steps that put the staged files of one group in the place of the old ones.

    In the order of the essay above. Of the old `.snapshot` files only those in `replaces` go.
    Rule: LocalLog.replaceSegments; the syncs and the guard of `.cleaned` are ours.
    """
    new = log_last(file.name for file in cleaned.files)
    old = replaced_names(cleaned)
    staged_as = {file.name: f"{staging}/{file.staged_as}" for file in cleaned.files}
    return (
        *(Rename(staged_as[name], name + CLEANED) for name in new),
        SyncDir(),
        SyncDir(staging),
        *(Rename(name + CLEANED, name + SWAP) for name in new),
        SyncDir(),  # The commit point.
        *steps_after_commit(old, new, old),
    )


def steps_after_commit(live: Sequence[str], swapped: Sequence[str], old: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps after the commit point; recovery goes on with those that are left."""
    old_logs, old_others = logs_and_others(live)
    new_logs, new_others = logs_and_others(swapped)
    return (
        *(Rename(name, name + DELETED) for name in old_logs),
        SyncDir(),  # Without it: an old segment that is loaded without its `.txnindex`.
        *(Rename(name, name + DELETED) for name in old_others),
        SyncDir(),  # Without it and the one before: an old segment inside the new one's range.
        *(Rename(name + SWAP, name) for name in new_logs),
        SyncDir(),  # Without it: while there is a `.log.swap`, the loader deletes the new `.txnindex`.
        *(Rename(name + SWAP, name) for name in new_others),
        SyncDir(),  # Without it: two groups in `.swap`, and the loader deletes what is between.
        *(Remove(name + DELETED) for name in old),
        SyncDir(),
    )


def log_last(names: Iterable[str]) -> tuple[str, ...]:
    order = (Suffix.INDEX.value, Suffix.TIME_INDEX.value, Suffix.TXN_INDEX.value, Suffix.LOG.value)
    return tuple(sorted(names, key=lambda name: order.index(Path(name).suffix)))


def logs_and_others(names: Sequence[str]) -> tuple[list[str], list[str]]:
    logs = [name for name in names if name.endswith(Suffix.LOG)]
    return logs, [name for name in names if name not in logs]


def replaced_names(cleaned: Replacement) -> tuple[str, ...]:
    """Return the replaced names, segment by segment: `.log`, its indexes, its snapshot."""
    order = tuple(Suffix)
    parsed = (parse_file_name(identity.name) for identity in cleaned.replaces)
    known = sorted((name.base_offset, order.index(name.suffix), str(name)) for name in parsed if name is not None)
    return tuple(name for _, _, name in known)


# --- Retention ------------------------------------------------------------------------------------------


def removal_steps(names: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that delete the files of one segment: set aside, the `.log` first, and then removed.

    A segment without its `.log` is none, and what is left of it goes when a broker starts, so stopping anywhere leaves
    a whole log. Rule: LocalLog.deleteSegmentFiles.
    """
    return (
        *(Rename(name, name + DELETED) for name in sorted(names, key=lambda name: not name.endswith(Suffix.LOG))),
        SyncDir(),
        *(Remove(name + DELETED) for name in names),
        SyncDir(),
    )


def undo_steps(swapped: Sequence[str], cleaned: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo an uncommitted swap. The guard goes last, as the loader does it."""
    return (
        *(Remove(name + SWAP) for name in swapped),
        SyncDir(),
        *(Remove(name + CLEANED) for name in cleaned),
        SyncDir(),
    )


def put_back_steps(aside: Sequence[str], swapped: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo a committed swap whose new files are damaged.

    The `.log.swap` becomes a guard again before anything is deleted: without it the loader would install what is
    left of the indexes.
    """
    logs, others = logs_and_others(aside)
    *indexes, log = swapped
    return (
        *(Rename(name + DELETED, name) for name in others),
        SyncDir(),  # An old log is never there without its .txnindex.
        *(Rename(name + DELETED, name) for name in logs),
        SyncDir(),
        Rename(log + SWAP, log + CLEANED),
        SyncDir(),
        *undo_steps(indexes, [log]),
    )
