"""What a recovery reports, and its end: the checkpoint of the interrupted round, if all of that is in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import CorruptCheckpointError, KcompactError, RecoveryNeededError
from kcompact.failures import as_failure
from kcompact.log.directory import partition_by_name
from kcompact.readable import shell_word
from kcompact.remarks import Note
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.recovery.leftovers import unfinished_names
from kcompact.swap.round_end import Ended, Ending, Present, end
from kcompact.swap.staging import discard_steps
from kcompact.swap.steps import Observer
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery did.

    `finished` or `undone` is the base offset of the group whose swap was unfinished, `checkpoint` the offset that was
    written, `removed_staging` the staging directories that were removed, and an unfinished `leader-epoch-checkpoint`.
    `left_behind` are `.deleted` files that do not belong to a swap of kcompact; the broker deletes them when it starts.
    `broker_files` are the names of a broker's files that were given their final names or removed; then `finished` or
    `undone` is the lowest base offset of the broker's new segments. `only_copies` are the base offsets of `.deleted`
    segments that were left alone with `foreign`, because nothing shows that the log does not need them. `notes` are
    remarks for the user.
    """

    finished: int | None = None
    undone: int | None = None
    checkpoint: int | None = None
    removed_staging: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    broker_files: tuple[str, ...] = ()
    only_copies: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.removed_staging or self.broker_files)

    @property
    def status(self) -> str:
        """What recovery did, in a word: `finished`, `undone`, `tidied` or `nothing-to-do`."""
        if self.finished is not None:
            return "finished"
        if self.undone is not None:
            return "undone"
        return "tidied" if self.changed else "nothing-to-do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(Ending):
    """A recovery that has come to its checkpoint: every swap is finished or undone, and the manifests are still there.

    `end_offset` is the checkpoint of the interrupted round, None if there is none to write. `report` has no
    `checkpoint` yet.
    """

    manifests: Mapping[str, Manifest | None]
    report: RecoveryReport
    end_offset: int | None
    after_step: Observer | None

    def offset_due(self, present: Present) -> int | None:
        """Return the checkpoint if every group of the round is in place and the file has a lower one."""
        with _as_stopped(self.directory), suppress(CorruptCheckpointError):  # The next plan reports it.
            groups = (group for manifest in self.manifests.values() if manifest for group in manifest.groups)
            is_below = present().get(partition_by_name(self.directory.path), 0) < (self.end_offset or 0)
            if is_below and all(is_in_place(self.directory, group) for group in groups):
                return self.end_offset
        return None

    def discard(self) -> None:
        """Remove the staging directories."""
        with _as_stopped(self.directory):
            for staging in self.manifests:
                apply_steps(self.directory, discard_steps(self.directory, staging), self.after_step)


def ended(recovery: Recovery) -> RecoveryReport:
    """End one recovery. Raises StorageError, NotEnoughSpaceError, LogChangedError, RecoveryNeededError."""
    (result,) = end_recoveries([recovery])
    if isinstance(result, KcompactError):
        raise result
    return result


def end_recoveries(recoveries: Sequence[Recovery]) -> list[RecoveryReport | KcompactError]:
    """Write the checkpoints of recoveries, remove their staging directories, and return the reports in their order.

    In place of a report is the error of a recovery that could not end: its staging directories stay if the checkpoint
    was not written. Raises nothing.
    """
    return [_reported(each.report, outcome) for each, outcome in zip(recoveries, end(recoveries), strict=True)]


def _reported(report: RecoveryReport, outcome: Ended) -> RecoveryReport | KcompactError:
    problem = outcome.unwritten or outcome.stays
    return replace(report, checkpoint=outcome.offset) if problem is None else as_failure(problem)


def end_offset(directory: OpenDirectory, manifests: Mapping[str, Manifest | None]) -> int | None:
    """Return the checkpoint of the interrupted round, None if its manifest has none or files are still staged."""
    if len(manifests) != 1:
        return None
    ((staging, manifest),) = manifests.items()
    if manifest is None or manifest.end_offset is None or not manifest.groups:
        return None
    staged = directory.names(staging)
    if any(file.staged_as in staged for group in manifest.groups for file in group.files):
        return None
    return manifest.end_offset


def is_in_place(directory: OpenDirectory, group: CleanedSegment) -> bool:
    """Return whether the new files of a group are there, by their digests, and none of the other old ones."""
    new = {file.name for file in group.files}
    gone = [file.name for file in group.replaces if file.name not in new]
    return all(directory.status(name) is None for name in gone) and all(
        directory.has_content_of(file.name, file) for file in group.files
    )


@contextmanager
def _as_stopped(directory: OpenDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise stopped(directory, problem) from problem


def stopped(directory: OpenDirectory, problem: OSError) -> RecoveryNeededError:
    """Return the error for a recovery of which a step failed, with the unfinished files if they can be listed."""
    files: list[str] = []
    with suppress(KcompactError, OSError):
        files = unfinished_names(directory.names())
    return RecoveryNeededError(
        path=directory.path,
        problem=f"recovery stopped: {': '.join((*getattr(problem, '__notes__', ()), problem.strerror or ''))}",
        files=files,
        hint=f"Nothing is lost. Remove the cause, then run `kcompact recover {shell_word(directory.path)}` again.",
    )
