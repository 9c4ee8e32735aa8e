"""Recovery after a crash: finishes or undoes an interrupted round.

`decide` is pure: it returns the steps, from names, digests and identities. `recover` applies them. A second `recover`
changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from kcompact.bucket.scratch import as_path
from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import RecoveryNeededError
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kcompact.format.names import base_offset_of, log_bases
from kcompact.log.directory import STAGING_NAME, partition_of
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LogDirLock, require_local
from kcompact.readable import shell_word
from kcompact.swap.identity import PartitionIdentity, identity_of
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.recovery.broker_swap import ForeignRecovery, decide_foreign
from kcompact.swap.recovery.end import (
    Recovery,
    RecoveryReport,
    end_offset,
    ended,
    is_in_place,
    stopped,
)
from kcompact.swap.recovery.leftovers import (
    is_same_file,
    not_followed,
    read_manifests,
    require_in_a_manifest,
    unfinished_groups,
    unfinished_names,
)
from kcompact.swap.round_end import check
from kcompact.swap.steps import (
    CLEANED,
    DELETED,
    SWAP,
    Observer,
    Remove,
    Step,
    SyncDir,
    log_last,
    put_back_steps,
    replaced_names,
    steps_after_commit,
    undo_steps,
)
from kcompact.values import dataclass

_UNFINISHED_EPOCHS = f"{LEADER_EPOCH_CHECKPOINT}.tmp"
"""Left by retention or by a broker that was killed while writing. Nothing reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """What recovery does with one group.

    "forward" finishes the swap and "back" undoes it, both with `steps`. "stop" changes nothing; `problem` is the
    reason. "none" means that no swap is unfinished.
    """

    direction: Literal["none", "forward", "back", "stop"]
    steps: tuple[Step, ...] = ()
    problem: str = ""


# --- The decision ---------------------------------------------------------------------------------------


def decide(
    group: CleanedSegment,
    present: Collection[str],
    *,
    is_new: Callable[[str, StagedFile], bool],
    is_old: Callable[[str, FileIdentity], bool],
) -> RecoveryAction:
    """Return how to end the unfinished swap of a group, from the names that are present in the partition directory.

    `is_new` returns whether a file has the digest of a staged file, `is_old` whether it has the identity of a replaced
    file. All removals of a pass are synced before the next renames. After a stop at any of the steps, `decide`
    returns the same direction again.

    Rule: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load. Two differences: the content of a `.swap` file
    is checked here, and in states in which Kafka would lose the old files the action is "stop".
    """
    new, old = log_last(file.name for file in group.files), replaced_names(group)
    identities = {file.name: file for file in group.replaces}
    cleaned = [name for name in new if name + CLEANED in present]
    swapped = [name for name in new if name + SWAP in present]

    if cleaned:
        if all(name in present and is_old(name, identities[name]) for name in old):
            return RecoveryAction(direction="back", steps=undo_steps(swapped, cleaned))
        return RecoveryAction(
            direction="stop", problem="the new files are not committed, but old files are missing or changed"
        )

    if all(is_new(file.name + (SWAP if file.name in swapped else ""), file) for file in group.files):
        # A file under its final name is an old file if the new file is still in `.swap`, or if there is no new file.
        in_place = [name for name in old if name in present and (name in swapped or name not in new)]
        if any(name + DELETED in present or not is_old(name, identities[name]) for name in in_place):
            return RecoveryAction(direction="stop", problem="an old file was changed after the swap began")
        aside = [name for name in old if name in in_place or name + DELETED in present]
        return RecoveryAction(direction="forward", steps=steps_after_commit(in_place, swapped, aside))

    aside = [name for name in old if name + DELETED in present]
    if len(swapped) == len(new) and all(
        (name in aside) != (name in present) and is_old(name + (DELETED if name in aside else ""), identities[name])
        for name in old
    ):
        return RecoveryAction(direction="back", steps=put_back_steps(aside, swapped))
    return RecoveryAction(
        direction="stop", problem="new files are damaged or missing, and the old files are incomplete"
    )


# --- The recovery of a partition directory --------------------------------------------------------------


def recover(
    partition_dir: str | os.PathLike[str],
    *,
    log_dir: str | os.PathLike[str] | None = None,
    foreign: bool = False,
    lock: LogDirLock | None = None,
    before: Callable[[], None] = lambda: None,
    after_step: Observer | None = None,
) -> RecoveryReport:
    """Finish or undo an interrupted round, and return what was done.

    `lock` is the held lock of the log directory. It is checked before the first step and before the checkpoint is
    written, and the checkpoint is written to the directory that is locked, whatever the path leads to by now. `before`
    is called if there is anything to recover; it may raise.

    At most one swap can be unfinished. It is finished if its new files are committed and intact, and undone if the
    old files are complete. Groups whose swap has not begun are removed with the staging directory. With `log_dir` the
    checkpoint is written if every group of the round is in place; otherwise the old checkpoint stays, without harm.
    `.deleted` files alone are reported and are not an error.

    With `foreign`, the same is done with what a broker's own cleaning has left, if no swap of kcompact is unfinished.

    Raises RecoveryNeededError, with nothing changed, for a manifest that is damaged, that belongs to another partition
    or contradicts the log, for `.cleaned` and `.swap` files that no manifest names, unless with `foreign`, and where
    records could be lost; with some steps done, if a step fails. StorageError or
    NotEnoughSpaceError if only the checkpoint cannot be written. RefusedError for a directory that is not a partition
    by its name, for example a `-stray` one, or in a bucket. ConfigError for a path of another store. Rule:
    LogLoader.load.
    """
    directory, above = as_path(partition_dir), None if log_dir is None else as_path(log_dir)
    require_local(each for each in (directory, above) if each is not None)
    begun = begin_recovery(
        directory,
        log_dir=above,
        foreign=foreign,
        lock=lock,
        before=before,
        after_step=after_step,
    )
    return ended(begun) if isinstance(begun, Recovery) else begun


def begin_recovery(
    partition_dir: Path,
    *,
    log_dir: Path | None,
    foreign: bool = False,
    lock: LogDirLock | None = None,
    before: Callable[[], None] = lambda: None,
    after_step: Observer | None = None,
) -> Recovery | RecoveryReport:
    """Recover up to the checkpoint, for `end_recoveries`. Without a checkpoint to write recover, and return the report.

    Raises as `recover` does.
    """
    partition_of(partition_dir)
    with ExitStack() as stack:
        directory = stack.enter_context(OpenDirectory(partition_dir))
        if lock is not None:
            lock.require_parent_of(directory.path, directory.fd())
        present = directory.names()
        if not foreign and not _has_leftovers(present):
            return RecoveryReport(left_behind=_left_behind(present))
        before()
        manifests = read_manifests(directory, present, _identity(directory, log_dir, lock))
        unfinished = _unfinished(directory, present, manifests, foreign=foreign)
        action = _action(directory, present, unfinished)
        of_broker = decide_foreign(directory, present) if foreign and not unfinished else ForeignRecovery()
        steps = (*action.steps, *of_broker.steps)
        if manifests or steps:
            check(lock)
            # The renames of a killed process may not be on the disk yet. Recovery must not depend on names that a power
            # cut can still undo.
            try:
                apply_steps(directory, (SyncDir(), *steps), after_step)
            except OSError as error:
                raise stopped(directory, error) from error
        if is_epochs_left := _UNFINISHED_EPOCHS in present and directory.size(_UNFINISHED_EPOCHS) is not None:
            check(lock)
            apply_steps(directory, (Remove(_UNFINISHED_EPOCHS), SyncDir()))
        base_offset = unfinished[0].base_offset if unfinished else None
        report = RecoveryReport(
            finished=base_offset if action.direction == "forward" else min(of_broker.installed, default=None),
            undone=base_offset if action.direction == "back" else min(of_broker.dropped, default=None),
            broker_files=of_broker.names,
            only_copies=of_broker.only_copies,
            removed_staging=(*manifests, _UNFINISHED_EPOCHS) if is_epochs_left else tuple(manifests),
            left_behind=_left_behind(directory.names()),
        )
        checkpoint = None if log_dir is None else end_offset(directory, manifests)
        recovery = Recovery(
            directory=directory,
            manifests=manifests,
            report=report,
            end_offset=checkpoint,
            log_dir=None if checkpoint is None else log_dir,
            lock=lock,
            after_step=after_step,
        )
        stack.pop_all()  # `end_recoveries` closes the directory.
    return ended(recovery) if recovery.end_offset is None else recovery


def _has_leftovers(present: Collection[str]) -> bool:
    """Return whether there is anything that recovery looks at."""
    has_staging = any(map(STAGING_NAME.fullmatch, present))
    return has_staging or _UNFINISHED_EPOCHS in present or bool(unfinished_names(present))


def _left_behind(present: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in present if name.endswith(DELETED)))


def _unfinished(
    directory: OpenDirectory, present: Collection[str], manifests: Mapping[str, Manifest | None], *, foreign: bool
) -> list[CleanedSegment]:
    """Return the groups whose swap is unfinished.

    Raises RecoveryNeededError for files that no manifest names, and for a manifest that contradicts the log.
    """
    if not foreign or None in manifests.values():  # What a lost manifest named may be kcompact's own.
        require_in_a_manifest(directory, present, manifests)
    unfinished = [
        group
        for staging, manifest in manifests.items()
        if manifest is not None
        for group in unfinished_groups(directory, staging, manifest.groups, present)
    ]
    if unfinished:
        require_in_a_manifest(directory, present, manifests)
    for staging, manifest in manifests.items():
        if manifest is not None:
            _require_end_offset(directory, staging, manifest, present, is_unfinished=bool(unfinished))
    return unfinished


def _identity(directory: OpenDirectory, log_dir: Path | None, lock: LogDirLock | None) -> PartitionIdentity:
    """Return what the manifests must be bound to."""
    if log_dir is None:
        return identity_of(directory, None)
    with OpenDirectory.of_log_dir(log_dir, lock) as opened_log_dir:
        return identity_of(directory, opened_log_dir)


def _require_end_offset(
    directory: OpenDirectory, staging: str, manifest: Manifest, present: Collection[str], *, is_unfinished: bool
) -> None:
    """Raise RecoveryNeededError if the checkpoint of a round is not where the segment after its last group begins.

    If none of its swaps is unfinished and its new files are no longer there, a broker has been at work since: then the
    checkpoint does not count anyway.
    """
    if manifest.end_offset is None or not manifest.groups:
        return
    last_base = max(map(base_offset_of, replaced_names(manifest.groups[-1])))
    following = next((base for base in log_bases(present) if base > last_base), None)
    if following != manifest.end_offset and (
        is_unfinished or all(is_in_place(directory, group) for group in manifest.groups)
    ):
        what_follows = (
            "no segment follows" if following is None else f"the segment after the cleaned ones begins at {following}"
        )
        raise not_followed(
            directory, staging, f"the manifest has the checkpoint {manifest.end_offset}, but {what_follows}"
        )


def _action(directory: OpenDirectory, present: Collection[str], unfinished: Sequence[CleanedSegment]) -> RecoveryAction:
    """Return the action for the groups whose swap is unfinished. Raises RecoveryNeededError for "stop"."""
    if not unfinished:
        return RecoveryAction(direction="none")
    if len(unfinished) > 1:
        action = RecoveryAction(direction="stop", problem="more than one swap is unfinished")
    else:
        action = decide(
            unfinished[0],
            present,
            is_new=directory.has_content_of,
            is_old=lambda name, old: is_same_file(directory, name, old),
        )
    if action.direction == "stop":
        raise RecoveryNeededError(
            path=directory.path,
            problem=action.problem,
            files=sorted(name for name in present if name.endswith((CLEANED, SWAP, DELETED))),
            hint=f"kcompact changed nothing. Copy the directory first: cp -a {shell_word(directory.path)} BACKUP\n"
            "Start no broker on it: a broker would delete some of these files. "
            "docs/swap.md describes this state under “What to do”.",
        )
    return action
