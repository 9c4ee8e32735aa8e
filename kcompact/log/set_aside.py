"""Which `.deleted` segments may be the only copy of their records.

A broker gives a segment this suffix when it has replaced or deleted it, and removes it a minute later. A copy of a
running broker may lack the segment that has taken its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from kcompact.errors import CorruptCheckpointError
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kcompact.format.names import Suffix, Temporary, parse_file_name
from kcompact.log.files import Files


def deleted_segments(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the `.log.deleted` files among the names, ascending."""
    parsed = (parse_file_name(name) for name in names)
    return sorted(
        name.base_offset
        for name in parsed
        if name is not None and name.suffix is Suffix.LOG and name.temporary is Temporary.DELETED
    )


def only_copies(aside: Iterable[int], ends: Mapping[int, int | None], *, began_at: int | None) -> list[int]:
    """Return the base offsets of the segments in `aside` for which nothing shows that a broker needs them no more.

    It shows if a segment of the log has the same base offset, if the one before reaches beyond that (a cleaning has
    merged them), or if the log begins above it (deleted by retention, or by request). `ends` are the end offsets of the
    segments of the log by base offset, None for a damaged one. `began_at` is the first offset that the log had, as
    `first_epoch_offset` returns it: at or below a segment it shows that this one was not deleted from the start.

    A merged segment does not reach beyond an old one whose records were all removed. That one is returned too.
    """
    bases = sorted(ends)
    found = []
    for base in aside:
        place = bisect_left(bases, base)
        if base in ends:
            is_needed = ends[base] is None
        elif not bases:
            is_needed = True
        elif place == 0:
            is_needed = began_at is not None and began_at <= base
        else:
            end = ends[bases[place - 1]]
            is_needed = end is None or end <= base
        if is_needed:
            found.append(base)
    return found


def holders(aside: Iterable[int], bases: Iterable[int]) -> set[int]:
    """Return the base offsets of the segments whose ends `only_copies` uses: at each offset, or before it."""
    ascending = sorted(bases)
    places = (bisect_left(ascending, base + 1) for base in aside)
    return {ascending[place - 1] for place in places if place > 0}


def first_epoch_offset(files: Files) -> int | None:
    """Return where the first leader epoch of a partition begins; None if none is known, 0 if the file is malformed.

    A broker moves it when it deletes segments from the start of the log. Raises RefusedError, StorageError.
    Rule: LeaderEpochFileCache.truncateFromStart.
    """
    file = files.file(LEADER_EPOCH_CHECKPOINT)
    if not file.exists():
        return None
    try:
        entries = parse_leader_epochs(file.read(), file=str(file))
    except CorruptCheckpointError:
        return 0
    return entries[0].start_offset if entries else None
