"""The steps of a swap as values: renames, removals and syncs, in the order that the package docstring explains.

The functions are pure: names in, steps out. `open_directory` is the only module that applies a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.format.names import Suffix, Temporary, base_offset_of, parse_file_names
from kcompact.values import dataclass

CLEANED = Temporary.CLEANED.value
"""Suffix of a new file before the commit point: a guard."""

SWAP = Temporary.SWAP.value
"""Suffix of a new file that is committed and does not have its final name yet."""

DELETED = Temporary.DELETED.value
"""Suffix of an old file that is set aside."""


# --- Kinds of steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file another name in the same file system. A file that already has that name is an error."""

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


# --- The swap of one group ------------------------------------------------------------------------------


def replacement_steps(cleaned: CleanedSegment, staging: str) -> tuple[Step, ...]:
    """Return the steps that replace the old files of one group with its staged files.

    A cleaning replaces several segments with one, a restore one with several.

    Of the old `.snapshot` files only those in `cleaned.replaces` are deleted. Rule: LocalLog.replaceSegments; kcompact
    adds the syncs and the guard.
    """
    new = log_last(file.name for file in cleaned.files)
    old = replaced_names(cleaned)
    staged_as = {file.name: f"{staging}/{file.staged_as}" for file in cleaned.files}
    guards = [name for name in new if base_offset_of(name) == cleaned.base_offset]
    others = [name for name in new if name not in guards]
    return (
        *(Rename(staged_as[name], name + CLEANED) for name in new),
        SyncDir(),
        SyncDir(staging),
        *_guarded_steps(others),
        *(Rename(name + CLEANED, name + SWAP) for name in guards),
        SyncDir(),  # The commit point.
        *steps_after_commit(old, new, old),
    )


def _guarded_steps(others: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that make the new segments above the lowest one `.swap`, while that one is their guard.

    Without the sync, a power cut can leave the lowest segment in `.swap` and others in `.cleaned`: the loader installs
    the one and deletes the others.
    """
    return (*(Rename(name + CLEANED, name + SWAP) for name in others), SyncDir()) if others else ()


def commit_position(steps: Sequence[Step]) -> int:
    """Return the position of the commit point in the steps of a swap: the sync after the last rename to `.swap`."""
    renames = [number for number, step in enumerate(steps) if isinstance(step, Rename) and step.target.endswith(SWAP)]
    return steps.index(SyncDir(), renames[-1])


def steps_after_commit(in_place: Sequence[str], swapped: Sequence[str], aside: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps after the commit point; recovery passes only the files for which a step is left.

    `in_place` are old files under their own names, `swapped` new files under `.swap`, `aside` old files that are
    already set aside or are set aside by these steps. All names are without these suffixes.
    """
    old_logs, old_others = logs_and_others(in_place)
    new_logs, new_others = logs_and_others(swapped)
    return (
        *(Rename(name, name + DELETED) for name in old_logs),
        SyncDir(),  # Without this sync a crash can leave an old segment that is loaded without its `.txnindex`.
        *(Rename(name, name + DELETED) for name in old_others),
        SyncDir(),  # Without this and the previous sync: an old segment in the range of the new segment.
        *_final_log_steps(new_logs),
        *(Rename(name + SWAP, name) for name in new_others),
        SyncDir(),  # Without this sync: two groups in `.swap`; the loader deletes all files between them.
        *(Remove(name + DELETED) for name in aside),
        SyncDir(),
    )


def _final_log_steps(logs: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that give new logs their names, the lowest first, each with a sync.

    Without the sync: a `.log.swap`, for which the loader deletes the new `.txnindex`, or a higher log that has its name
    already and lies in the range of a `.log.swap`.
    """
    renames = [Rename(name + SWAP, name) for name in sorted(logs)]
    return tuple(step for rename in renames for step in (rename, SyncDir())) or (SyncDir(),)


# --- A swap undone --------------------------------------------------------------------------------------


def undo_steps(swapped: Sequence[str], cleaned: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo a swap before its commit point. The guard is deleted last, as by the loader."""
    return (
        *(Remove(name + SWAP) for name in swapped),
        SyncDir(),
        *(Remove(name + CLEANED) for name in cleaned),
        SyncDir(),
    )


def put_back_steps(aside: Sequence[str], swapped: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo a committed swap whose new files are damaged; `swapped` has the lowest `.log` last.

    The `.log.swap` becomes a guard again before anything is deleted. Otherwise the loader would install the indexes
    that are left.
    """
    logs, others = logs_and_others(aside)
    *indexes, log = swapped
    return (
        *(Rename(name + DELETED, name) for name in others),
        SyncDir(),  # An old log must never exist without its `.txnindex`.
        *(Rename(name + DELETED, name) for name in logs),
        SyncDir(),
        Rename(log + SWAP, log + CLEANED),
        SyncDir(),
        *undo_steps(indexes, [log]),
    )


# --- Retention ------------------------------------------------------------------------------------------


def removal_steps(names: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that delete the files of one segment: all are set aside, the `.log` first, then removed.

    When a broker starts, it deletes the other files of a segment without a `.log`. So a stop after any step leaves a
    valid log. Rule: LocalLog.deleteSegmentFiles; kcompact adds the syncs.
    """
    logs, others = logs_and_others(names)
    return (
        *(Rename(name, name + DELETED) for name in logs),
        SyncDir(),  # Without this sync a power cut can leave the `.log` without its `.txnindex`: aborted data is read.
        *(Rename(name, name + DELETED) for name in others),
        SyncDir(),
        *(Remove(name + DELETED) for name in names),
        SyncDir(),
    )


# --- Names ----------------------------------------------------------------------------------------------


_LOG_LAST = tuple(
    suffix.value for suffix in (Suffix.SNAPSHOT, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX, Suffix.LOG)
)


def log_last(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of new files, the highest segment first, of each segment the `.log` at the end."""
    return tuple(sorted(names, key=lambda name: (-base_offset_of(name), _LOG_LAST.index(Path(name).suffix))))


def logs_and_others(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of `.log` files, and the other names; both keep their order."""
    logs = [name for name in names if name.endswith(Suffix.LOG)]
    return logs, [name for name in names if name not in logs]


def replaced_names(cleaned: CleanedSegment) -> tuple[str, ...]:
    """Return the names of the old files, segment by segment: `.log`, its indexes, its snapshot."""
    order = tuple(Suffix)
    parsed = parse_file_names(identity.name for identity in cleaned.replaces)
    return tuple(map(str, sorted(parsed, key=lambda name: (name.base_offset, order.index(name.suffix)))))


def stale_deleted_names(names: Iterable[str], present: Collection[str]) -> list[str]:
    """Return the old `.deleted` files whose names are needed when `names` are set aside.

    A broker that stops within a minute of cleaning leaves `.deleted` files. It deletes them when it starts.
    """
    return [name + DELETED for name in names if name + DELETED in present]
