"""What an interrupted round left behind, finished or undone.

`decide` is pure: it looks at names, digests and identities and returns the steps. `recover` applies them. Repeating it
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcompact.clean.staged_files import StagedFile
from kcompact.errors import CorruptCheckpointError, RecoveryNeededError, UnsupportedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.log.files import FileIdentity
from kcompact.swap.checkpoint import read_checkpoint, write_checkpoint
from kcompact.swap.manifest import Group, Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.rounds import groups_under_way, is_same_file, require_explained, staged_rounds, unfinished_names
from kcompact.swap.staging import discard_steps
from kcompact.swap.steps import (
    CLEANED,
    DELETED,
    SWAP,
    Observer,
    Replacement,
    Step,
    SyncDir,
    log_last,
    put_back_steps,
    replaced_names,
    steps_after_commit,
    undo_steps,
)

# --- Recovery -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """What recovery does with one group: `steps` to go "forward" or "back", or why it must "stop"."""

    direction: str
    steps: tuple[Step, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery did: the base offset of the group that it finished or undid, and the rest.

    `left_behind` are `.deleted` files that are not ours; the broker deletes them when it starts.
    """

    finished: int | None = None
    undone: int | None = None
    checkpoint: int | None = None
    removed_staging: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.removed_staging)


def decide(
    group: Replacement,
    present: Collection[str],
    *,
    is_new: Callable[[str, StagedFile], bool],
    is_old: Callable[[str, FileIdentity], bool],
) -> RecoveryAction:
    """Return how to end the swap of a group that is under way, from the names in the partition directory.

    `is_new` tells whether a file is the staged one, by its digest; `is_old` whether it is the replaced one,
    by its identity. Every delete pass is synced before the next rename pass, and stopping after any step
    leaves a state that is settled in the same direction. Rule: LogLoader.removeTempFilesAndCollectSwapFiles
    and load, but for two things: the content of a `.swap` counts here, and where Kafka would lose the old
    files we stop.
    """
    new, old = log_last(file.name for file in group.files), replaced_names(group)
    identities = {file.name: file for file in group.replaces}
    cleaned = [name for name in new if name + CLEANED in present]
    swapped = [name for name in new if name + SWAP in present]

    if cleaned:
        if all(name in present and is_old(name, identities[name]) for name in old):
            return RecoveryAction(direction="back", steps=undo_steps(swapped, cleaned))
        return RecoveryAction(direction="stop", problem="the new files are not committed and old ones are missing")

    if all(is_new(file.name + (SWAP if file.name in swapped else ""), file) for file in group.files):
        # A live file is an old one as long as its successor is still in `.swap`, or if it has none.
        live = [name for name in old if name in present and (name in swapped or name not in new)]
        if any(name + DELETED in present or not is_old(name, identities[name]) for name in live):
            return RecoveryAction(direction="stop", problem="an old file was changed after the swap began")
        aside = [name for name in old if name in live or name + DELETED in present]
        return RecoveryAction(direction="forward", steps=steps_after_commit(live, swapped, aside))

    aside = [name for name in old if name + DELETED in present]
    if len(swapped) == len(new) and all(
        (name in aside) != (name in present) and is_old(name + (DELETED if name in aside else ""), identities[name])
        for name in old
    ):
        return RecoveryAction(direction="back", steps=put_back_steps(aside, swapped))
    return RecoveryAction(direction="stop", problem="the new files are damaged or missing, and so are old ones")


def recover(
    partition_dir: Path,
    *,
    log_dir: Path | None = None,
    foreign: bool = False,
    after_step: Observer | None = None,
) -> RecoveryReport:
    """Finish or undo what an interrupted round left; repeating it changes nothing. Needs the lock.

    At most one group can be under way: it is finished if its new files are committed and intact, undone if
    the old ones are complete. Groups that had not begun are dropped with the staging directory. With
    `log_dir`, the checkpoint is written if every group of the round turns out to be in place; otherwise it
    stays behind, which is harmless.

    RecoveryNeededError, with nothing touched: files of an interrupted swap that no manifest explains (a
    broker's; it settles them when it starts), or a state in which going either way could lose records. Lone
    `.deleted` files are reported, not an error. `foreign` will settle a broker's leftovers. Rule:
    LogLoader.load, passes 1 to 3.
    """
    if foreign:
        raise UnsupportedError(path=partition_dir, problem="settling what a broker left is not supported yet")
    with OpenDirectory(partition_dir) as directory:
        present = directory.names()
        rounds = staged_rounds(directory, present)
        require_explained(directory, present, rounds)
        under_way = [
            group
            for staging, manifest in rounds.items()
            if manifest is not None
            for group in groups_under_way(directory, staging, manifest, present)
        ]
        action = _recovery_action(directory, present, under_way)
        try:
            if rounds:
                # A killed process leaves renames that are done but not on the disk: act on nothing that can
                # still vanish.
                apply_steps(directory, (SyncDir(), *action.steps), after_step)
            checkpoint = None if log_dir is None else _finish_checkpoint(directory, log_dir, rounds)
            for staging in rounds:
                apply_steps(directory, discard_steps(directory, staging), after_step)
        except OSError as error:
            raise RecoveryNeededError(
                path=partition_dir,
                problem=f"recovery was interrupted ({error.strerror})",
                files=unfinished_names(directory.names()),
                hint="Nothing is lost. See to the cause, then run `kcompact recover` again.",
            ) from error
        base_offset = under_way[0].base_offset if under_way else None
        return RecoveryReport(
            finished=base_offset if action.direction == "forward" else None,
            undone=base_offset if action.direction == "back" else None,
            checkpoint=checkpoint,
            removed_staging=tuple(rounds),
            left_behind=tuple(sorted(name for name in directory.names() if name.endswith(DELETED))),
        )


def _recovery_action(directory: OpenDirectory, present: Collection[str], under_way: Sequence[Group]) -> RecoveryAction:
    if not under_way:
        return RecoveryAction(direction="none")
    if len(under_way) > 1:
        action = RecoveryAction(direction="stop", problem="more than one swap is unfinished")
    else:
        action = decide(
            under_way[0],
            present,
            is_new=directory.holds,
            is_old=lambda name, old: is_same_file(directory, name, old),
        )
    if action.direction == "stop":
        raise RecoveryNeededError(
            path=directory.path,
            problem=action.problem,
            files=sorted(name for name in present if name.endswith((CLEANED, SWAP, DELETED))),
            hint="Nothing was touched. Copy this directory before anything else, and start no broker on it: "
            "it would delete some of these files.",
        )
    return action


def _finish_checkpoint(directory: OpenDirectory, log_dir: Path, rounds: dict[str, Manifest | None]) -> int | None:
    """Write and return the round's checkpoint if all of its groups are in place, else None."""
    if len(rounds) != 1:
        return None
    ((staging, manifest),) = rounds.items()
    if manifest is None or manifest.end_offset is None or not manifest.groups:
        return None
    staged = directory.names(staging)
    if any(file.staged_as in staged for group in manifest.groups for file in group.files):
        return None
    try:
        with OpenDirectory(log_dir, follow=True) as checkpoints:
            present = read_checkpoint(checkpoints, CLEANER_OFFSET_CHECKPOINT).get(manifest.topic_partition, 0)
        if present >= manifest.end_offset or not all(_is_in_place(directory, one) for one in manifest.groups):
            return None
        write_checkpoint(log_dir, manifest.topic_partition, manifest.end_offset)
    except CorruptCheckpointError:
        return None  # Whoever plans next reports it. The partition is settled all the same.
    return manifest.end_offset


def _is_in_place(directory: OpenDirectory, group: Group) -> bool:
    new = {file.name for file in group.files}
    gone = [file.name for file in group.replaces if file.name not in new]
    return all(directory.status(name) is None for name in gone) and all(
        directory.holds(file.name, file) for file in group.files
    )
