"""Finishes or undoes what a broker's interrupted cleaning has left: `.cleaned`, `.swap` and `.deleted` files.

The passes are those of Kafka's loader, with a sync after each. The content of new segments is verified first, and in
states in which the loader would lose records or find them twice nothing is done. A `.deleted` segment that may be the
only copy of its records is left alone.

Rule: LogLoader.load, passes 1 to 3; LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kcompact.errors import CorruptDataError, RecoveryNeededError
from kcompact.format.names import (
    MAX_OFFSET,
    FileName,
    Suffix,
    Temporary,
    file_name,
    log_bases,
    log_name,
    parse_file_name,
    parse_file_names,
)
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.batch_headers import end_by_headers
from kcompact.log.files import LogFile, files_in
from kcompact.log.segments import deleted_segments, first_epoch_offset, holders, only_copies
from kcompact.readable import shell_word
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery.broker_log import Files, Overlap, index_problem, overlaps, verified_end
from kcompact.swap.steps import CLEANED, SWAP, Remove, Rename, Step, SyncDir, logs_and_others
from kcompact.values import dataclass

_START_NO_BROKER = "Start no broker on it: a broker would delete some of these files."


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRecovery:
    """What to do with a broker's files: those of `names` are renamed or removed.

    `installed` and `dropped` are base offsets of new segments, ascending. `only_copies` are those of `.deleted`
    segments that are left alone, because nothing shows that the log does not need them.
    """

    names: tuple[str, ...] = ()
    installed: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    only_copies: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class _Files:
    """The names of Kafka's files by their second suffix."""

    final: tuple[FileName, ...]
    cleaned: tuple[FileName, ...]
    swap: tuple[FileName, ...]
    deleted: tuple[FileName, ...]

    @classmethod
    def of(cls, present: Iterable[str]) -> _Files:
        parsed = sorted(parse_file_names(present), key=lambda name: (name.base_offset, str(name)))
        by_suffix = {each: tuple(name for name in parsed if name.temporary is each) for each in Temporary}
        return cls(*(by_suffix[each] for each in (Temporary.NO, Temporary.CLEANED, Temporary.SWAP, Temporary.DELETED)))

    @property
    def temporary(self) -> tuple[FileName, ...]:
        """The files of a swap, finished or not."""
        return (*self.cleaned, *self.swap, *self.deleted)

    @property
    def final_logs(self) -> list[int]:
        """The base offsets of the segments, ascending."""
        return [name.base_offset for name in self.final if name.suffix is Suffix.LOG]


def decide_foreign(directory: OpenDirectory, present: Collection[str]) -> ForeignRecovery:
    """Return how to finish or undo what a broker left. Nothing is changed.

    Raises RecoveryNeededError in a state in which records could be lost, RefusedError, StorageError.
    """
    files = _Files.of(present)
    unknown = [name for name in present if name.endswith((CLEANED, SWAP)) and parse_file_name(name) is None]
    if unknown:
        raise _stopped(directory, "a broker does not start with these names; no broker has written them", unknown)
    for name in files.temporary:
        if directory.size(str(name)) is None:
            raise _stopped(directory, "not a regular file", [str(name)])
    try:
        return _decision(directory, files)
    except CorruptDataError as problem:
        raise _stopped(directory, str(problem).splitlines()[0], []) from problem


def _decision(directory: OpenDirectory, files: _Files) -> ForeignRecovery:
    guard = min((name.base_offset for name in files.cleaned), default=MAX_OFFSET + 1)
    invalid = [name for name in files.swap if name.base_offset >= guard]
    valid = [name for name in files.swap if name.base_offset < guard]
    _require_old_segments(directory, files, invalid, guard)
    _require_replaceable(directory, files)
    for name in valid:
        indexes = (file_name(name.base_offset, suffix, Temporary.SWAP) for suffix in (Suffix.INDEX, Suffix.TIME_INDEX))
        missing = [index_file for index_file in indexes if index_file not in map(str, valid)]
        if name.suffix is Suffix.LOG and missing:  # A broker makes all three before the first rename to `.swap`.
            raise _incomplete(directory, files, name, missing)
    standing = {str(name): str(name) for name in files.final} | {str(_final(name)): str(name) for name in valid}
    ends = {
        name.base_offset: verified_end(directory, standing, name.base_offset)
        for name in valid
        if name.suffix is Suffix.LOG
    }
    for base in {name.base_offset for name in valid} - set(ends):
        if base not in files.final_logs:
            raise _stopped(directory, f"indexes of a new segment {base}, but neither its .log.swap nor its .log", [])
        if base == files.final_logs[-1]:
            raise _stopped(directory, f"new indexes of the active segment {base}; no cleaner replaces it", [])
        old = [str(_final(name)) for name in valid if name.base_offset == base and _final(name) in files.final]
        if old:  # A broker sets the old indexes aside before the new log gets its name.
            raise _stopped(directory, f"new indexes of segment {base}, but its .log may be the old one", old)
    _require_whole_range(directory, files, ends)
    replaced = [
        str(name)
        for name in files.final
        if any(base <= name.base_offset < end for base, end in ends.items())
        # A new segment without records has no range.
        or (name.base_offset in ends and name.suffix is not Suffix.SNAPSHOT)
    ]
    result = {name: now for name, now in standing.items() if now not in replaced}
    if overlapping_segments := overlaps(directory, result):
        raise _overlapping(directory, files, result, overlapping_segments)
    kept = _only_copies(directory, files, result, ends)
    removed = [name for name in files.deleted if name.base_offset not in kept]
    if files.cleaned or files.swap or removed:
        _require_own_indexes(directory, files, result)
        _require_no_clean_shutdown(directory, result)
    return ForeignRecovery(
        names=tuple(sorted(str(name) for name in (*files.cleaned, *files.swap, *removed))),
        installed=tuple(sorted({name.base_offset for name in valid})),
        dropped=tuple(sorted({name.base_offset for name in (*files.cleaned, *invalid)})),
        only_copies=tuple(kept),
        steps=_steps(invalid, files.cleaned, replaced, valid, removed),
    )


def _steps(
    invalid: Iterable[FileName],
    cleaned: Iterable[FileName],
    replaced: list[str],
    valid: Iterable[FileName],
    deleted: Iterable[FileName],
) -> tuple[Step, ...]:
    """Return the steps: the passes of the loader, each followed by a sync, and what is set aside at the end."""
    old_logs, old_others = logs_and_others(replaced)
    new_logs, new_others = logs_and_others([str(_final(name)) for name in valid])
    return (
        *(Remove(str(name)) for name in invalid),
        SyncDir(),  # The guard goes last: without it the loader installs a `.swap` that is left.
        *(Remove(str(name)) for name in cleaned),
        SyncDir(),
        *(Remove(name) for name in (*old_logs, *old_others)),
        SyncDir(),  # While there is a `.log.swap`, the loader deletes every file in its range.
        *(Rename(name + SWAP, name) for name in new_logs),
        SyncDir(),
        *(Rename(name + SWAP, name) for name in new_others),
        SyncDir(),
        *(Remove(str(name)) for name in deleted),
        SyncDir(),
    )


def _require_old_segments(directory: OpenDirectory, files: _Files, invalid: list[FileName], guard: int) -> None:
    """Raise RecoveryNeededError if new segments are to be dropped although old ones are set aside already.

    A segment of the log may reach the base offset of a dropped one, or of one that is set aside: a cleaning has merged
    that one into it.
    """
    aside = [name for name in files.deleted if name.base_offset >= guard]
    logs = [name for name in (*invalid, *aside) if name.suffix is Suffix.LOG]
    missing = [name.base_offset for name in logs if name.base_offset not in files.final_logs]
    ends: dict[int, int | None] = dict.fromkeys(files.final_logs)
    for base in holders(missing, ends):
        ends[base] = end_by_headers(LogFile.at(directory.path / log_name(base)), base)
    gone = only_copies(missing, ends, began_at=0)  # A segment below all others counts as needed.
    for name in logs:
        if name.base_offset in gone:
            problem = (
                f"the loader would drop the new segment {name.base_offset}, but the old one is gone"
                if name.temporary is Temporary.SWAP
                else f"the loader would drop the new segment {guard}, but an old one is set aside already"
            )
            raise _stopped(directory, problem, [str(name)])


def _require_replaceable(directory: OpenDirectory, files: _Files) -> None:
    """Raise RecoveryNeededError if the unfinished copy of a segment is there, but not the segment."""
    unfinished = [
        name.base_offset
        for name in files.cleaned
        if name.suffix is Suffix.LOG and name.base_offset not in files.final_logs and directory.size(str(name))
    ]
    log = {str(name): str(name) for name in files.final}
    for base in _needed(directory, unfinished, dict.fromkeys(files.final_logs), log):
        problem = f"the loader would drop the new segment {base}, but no old one is there"
        raise _stopped(directory, problem, [file_name(base, Suffix.LOG, Temporary.CLEANED)])


def _only_copies(directory: OpenDirectory, files: _Files, result: Files, new_ends: Mapping[int, int]) -> list[int]:
    """Return the `.deleted` segments that stay, because nothing shows that the log does not need them.

    Raises RecoveryNeededError if no other segment would be left.
    """
    remaining: dict[int, int | None] = {**dict.fromkeys(log_bases(result)), **new_ends}
    aside = deleted_segments(map(str, files.deleted))
    if aside and not remaining:
        problem = "every segment is marked as deleted, and no other is left"
        raise _stopped(directory, problem, [file_name(base, Suffix.LOG, Temporary.DELETED) for base in aside])
    return _needed(directory, aside, remaining, result)


def _needed(directory: OpenDirectory, aside: Collection[int], ends: Mapping[int, int | None], log: Files) -> list[int]:
    """Return the segments of `aside` that may be only copies; None in `ends` is an end that is not known yet."""
    if not aside:
        return []
    unknown = [base for base in holders(aside, ends) if ends[base] is None]
    known = {**ends, **{base: _end_if_intact(directory, log, base) for base in unknown}}
    return only_copies(aside, known, began_at=first_epoch_offset(files_in(directory.path)))


def _end_if_intact(directory: OpenDirectory, log: Files, base_offset: int) -> int | None:
    try:
        return verified_end(directory, log, base_offset)
    except CorruptDataError:
        return None


def _require_own_indexes(directory: OpenDirectory, files: _Files, result: Files) -> None:
    """Raise an error if a segment of these files, or one before, would be left with indexes of another."""
    temporary = {name.base_offset for name in files.temporary}
    bases = log_bases(result)
    near = holders(temporary, bases) | holders((base - 1 for base in temporary), bases)
    if wrong_index := index_problem(directory, result, near):
        base, problem = wrong_index
        advice = (
            "Move this file to another place (mv). Without it a broker makes all indexes of the segment anew when it "
            f"starts. Then run `kcompact recover --foreign {shell_word(directory.path)}`."
        )
        raise _stopped(directory, problem, [result[file_name(base, Suffix.INDEX)]], advice)


def _require_no_clean_shutdown(directory: OpenDirectory, result: Files) -> None:
    """Raise RecoveryNeededError if a broker could forget open transactions when it makes an `.index` anew.

    It then deletes the newer snapshots of producers. After a clean shutdown, if no snapshot is left, it does not read
    the log for producers, but starts with none.
    Rule: LogLoader.recoverSegment, ProducerStateManager.removeStraySnapshots, UnifiedLog.rebuildProducerState.
    """
    without = [base for base in log_bases(result)[:-1] if file_name(base, Suffix.INDEX) not in result]
    marker = directory.path.parent / CLEAN_SHUTDOWN_FILE
    if without and marker.exists():
        advice = (
            f"A broker that died while it cleaned leaves no {CLEAN_SHUTDOWN_FILE}. With this file, a broker that makes "
            f"the .index anew can forget open transactions. Move {shell_word(marker)} to another place (mv), then run "
            f"`kcompact recover --foreign {shell_word(directory.path)}`."
        )
        problem = f"segment {without[0]} has no .index, and the log directory has {CLEAN_SHUTDOWN_FILE}"
        raise _stopped(directory, problem, [], advice)


def _require_whole_range(directory: OpenDirectory, files: _Files, ends: Mapping[int, int]) -> None:
    """Raise RecoveryNeededError if the loader would delete a segment that no new segment replaces."""
    if not ends:
        return
    first, last = min(ends), max(ends.values())
    for base in files.final_logs:
        if first <= base < last and not any(start <= base < end for start, end in ends.items()):
            problem = f"the loader would delete segment {base}, which is between two new segments"
            raise _stopped(directory, problem, [log_name(base)])
    active = max(files.final_logs, default=-1)
    if any(start <= active < end for start, end in ends.items()):
        problem = f"the active segment {active} is in the range of a new segment; no cleaner replaces it"
        raise _stopped(directory, problem, [log_name(active)])


def _final(name: FileName) -> FileName:
    return FileName(base_offset=name.base_offset, suffix=name.suffix)


def _overlapping(
    directory: OpenDirectory, files: _Files, result: Files, overlapping_segments: Sequence[Overlap]
) -> RecoveryNeededError:
    """Return the error about segments whose offsets would be in the log twice."""
    inside, before, end = overlapping_segments[0]
    bases = {each.base_offset for each in overlapping_segments}
    merged = {each.before for each in overlapping_segments}
    if any(_end_if_intact(directory, result, base) is None for base in merged):
        advice = f"Segment {before} is damaged, or contradicts its indexes. {_START_NO_BROKER}"
    else:
        advice = (
            f"A broker loads both. It was interrupted when it had merged the files above into segment {before}, which "
            "is sound. Move them to another place (mv), then run `kcompact recover --foreign "
            f"{shell_word(directory.path)}`."
        )
    return _stopped(
        directory,
        f"segment {inside} begins before the end of segment {before}, {end}: these offsets would be in the log twice",
        [str(name) for name in (*files.final, *files.temporary) if name.base_offset in bases],
        advice,
    )


def _incomplete(directory: OpenDirectory, files: _Files, log: FileName, missing: Sequence[str]) -> RecoveryNeededError:
    """Return the error about a `.log.swap` without its indexes; they may have their final names already."""
    final = {str(name) for name in files.final}
    is_loading = log_name(log.base_offset) not in final and all(name.removesuffix(SWAP) in final for name in missing)
    return _stopped(
        directory,
        f"the new segment {log.base_offset} is incomplete: no {missing[0]}",
        [str(log)],
        advice="A broker that was killed while it started leaves this. Then start it again: it goes on."
        if is_loading
        else _START_NO_BROKER,
    )


def _stopped(
    directory: OpenDirectory, problem: str, files: Collection[str], advice: str = _START_NO_BROKER
) -> RecoveryNeededError:
    return RecoveryNeededError(
        path=directory.path,
        problem=problem,
        files=sorted(files),
        hint=f"kcompact changed nothing. Copy the directory first: cp -a {shell_word(directory.path)} BACKUP\n{advice}",
    )
