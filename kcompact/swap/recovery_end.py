"""The end of a recovery: the checkpoint, then the removal of the staging directories. Many recoveries end together.

All checkpoints of a log directory are one file. A round that could not write it leaves a manifest in each partition
that it has cleaned, so the recoveries end in groups: one read and one write. As at the end of a cleaning, the staging
directory with the manifest stays until the checkpoint of its group is synced, and a partition that fails does not keep
the others from their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import CorruptCheckpointError, KcompactError, RecoveryNeededError, as_failure
from kcompact.format.names import TopicPartition
from kcompact.log.directory import partition_by_name
from kcompact.log.lock import LogDirLock
from kcompact.readable import shell_word
from kcompact.swap.checkpoint import read_checkpoint, write_checkpoints
from kcompact.swap.leftovers import unfinished_names
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.staging import discard_steps
from kcompact.swap.steps import Observer


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery did.

    `finished` or `undone` is the base offset of the group whose swap was unfinished, `checkpoint` the offset that was
    written, `removed_staging` the staging directories that were removed, and an unfinished `leader-epoch-checkpoint`.
    `left_behind` are `.deleted` files that do not belong to a swap of kcompact; the broker deletes them when it starts.
    `broker_files` are the names of a broker's files that were given their final names or removed; then `finished` or
    `undone` is the lowest base offset of the broker's new segments. `only_copies` are the base offsets of `.deleted`
    segments that were left alone with `foreign`, because nothing shows that the log does not need them.
    """

    finished: int | None = None
    undone: int | None = None
    checkpoint: int | None = None
    removed_staging: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    broker_files: tuple[str, ...] = ()
    only_copies: tuple[int, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.removed_staging or self.broker_files)

    @property
    def action(self) -> str:
        """What recovery did, in a word: `finished`, `undone`, `tidied` or `nothing-to-do`."""
        if self.finished is not None:
            return "finished"
        if self.undone is not None:
            return "undone"
        return "tidied" if self.changed else "nothing-to-do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A recovery that has come to its checkpoint: every swap is finished or undone, and the manifests are still there.

    `end_offset` is the checkpoint of the interrupted round, None if there is none to write. `directory` is held open
    until `end_recoveries` closes it. `report` has no `checkpoint` yet.
    """

    directory: OpenDirectory
    manifests: Mapping[str, Manifest | None]
    report: RecoveryReport
    end_offset: int | None
    log_dir: Path | None
    lock: LogDirLock | None
    after_step: Observer | None

    @property
    def partition(self) -> TopicPartition:
        """The partition, by the name of its directory."""
        return partition_by_name(self.directory.path)


def ended(recovery: Recovery) -> RecoveryReport:
    """End one recovery. Raises StorageError, NotEnoughSpaceError, LogChangedError, RecoveryNeededError."""
    (result,) = end_recoveries([recovery])
    if isinstance(result, KcompactError):
        raise result
    return result


def end_recoveries(recoveries: Sequence[Recovery]) -> list[RecoveryReport | KcompactError]:
    """Write the checkpoints of recoveries, remove their staging directories, and return the reports in their order.

    One write for each log directory. In place of a report is the error of a recovery that could not end: its staging
    directories stay if the checkpoint was not written. Raises nothing.
    """
    written: dict[int, int | KcompactError] = {}
    by_log_dir: dict[tuple[Path, int], dict[int, Recovery]] = {}
    for number, each in enumerate(recoveries):
        if each.log_dir is not None and each.end_offset is not None:
            by_log_dir.setdefault((each.log_dir, id(each.lock)), {})[number] = each
    for (log_dir, _), together in by_log_dir.items():
        written |= _written(log_dir, together)
    return [_ended(each, written.get(number)) for number, each in enumerate(recoveries)]


def _written(log_dir: Path, recoveries: Mapping[int, Recovery]) -> dict[int, int | KcompactError]:
    """Write the checkpoints that are due in a log directory. Return each offset, or the error that kept it from there.

    All recoveries have an `end_offset`. It is due if every group of the round is in place, and the checkpoint is below.
    """
    found: dict[int, int | KcompactError] = {number: each.end_offset or 0 for number, each in recoveries.items()}
    lock = recoveries[min(recoveries)].lock
    try:
        with OpenDirectory.of_log_dir(log_dir, lock) as opened_log_dir:
            present = read_checkpoint(opened_log_dir)
            for number, each in recoveries.items():
                try:
                    if present.get(each.partition, 0) >= (each.end_offset or 0) or not _is_in_place(each):
                        del found[number]
                except Exception as problem:
                    found[number] = _stopped(each, problem)
            wanted = {recoveries[number].partition: to for number, to in found.items() if isinstance(to, int)}
            if wanted:
                check(lock)
                write_checkpoints(opened_log_dir, wanted)
    except CorruptCheckpointError:
        return {}  # The next plan reports it. The partitions themselves are recovered.
    except Exception as problem:
        failure = as_failure(problem)
        return {number: failure if isinstance(to, int) else to for number, to in found.items()}
    return found


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


def _is_in_place(recovery: Recovery) -> bool:
    return all(
        is_in_place(recovery.directory, group)
        for manifest in recovery.manifests.values()
        if manifest is not None
        for group in manifest.groups
    )


def is_in_place(directory: OpenDirectory, group: CleanedSegment) -> bool:
    """Return whether the new files of a group are there, by their digests, and none of the other old ones."""
    new = {file.name for file in group.files}
    gone = [file.name for file in group.replaces if file.name not in new]
    return all(directory.status(name) is None for name in gone) and all(
        directory.has_content_of(file.name, file) for file in group.files
    )


def _ended(recovery: Recovery, written: int | KcompactError | None) -> RecoveryReport | KcompactError:
    """Remove the staging directories, unless the checkpoint could not be written."""
    with recovery.directory as directory:
        if isinstance(written, KcompactError):
            return written
        try:
            for staging in recovery.manifests:
                apply_steps(directory, discard_steps(directory, staging), recovery.after_step)
        except Exception as problem:
            return _stopped(recovery, problem)
    return replace(recovery.report, checkpoint=written)


def _stopped(recovery: Recovery, problem: Exception) -> KcompactError:
    failure = stopped(recovery.directory, problem) if isinstance(problem, OSError) else as_failure(problem)
    if failure is not problem:
        failure.__cause__ = problem
    return failure


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


def check(lock: LogDirLock | None) -> None:
    """Raise LogChangedError if there is a lock and it is lost."""
    if lock is not None:
        lock.check()
