"""Checks that the counts of the stages add up, before the first rename: no record is lost or invented on the way.

Each stage counts what it reads and what it puts out. The driver compares these counts with each other, and with its
own values: the splits that it gave out, the survivor bits, the sizes of the segments.

    scan      of each split: keyed + unkeyed + control records = the records that its batch headers announce;
              keyed records = survivor bits + records superseded in the same task
    reduce    keys that came in = survivor bits that the scans left set; bits cleared = superseded keys
    write     of each part: kept + superseded + expired + unkeyed + discarded = records of its splits;
              latest records kept, expired or discarded = its survivor bits; kept = latest + markers;
              sizes and offsets as expected

A difference is a bug, or altered memory. It raises AccountingError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from kcompact.clean.job import WriteTask, WrittenPart
from kcompact.clean.offset_map import Reduced, count_bits
from kcompact.clean.scan import Scanned
from kcompact.errors import AccountingError
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.job import Split


class _Ledger:
    """The checks of one stage."""

    def __init__(self, path: Path, stage: str) -> None:
        self._path = path
        self._stage = stage

    def require(self, is_right: bool, problem: str) -> None:
        if not is_right:
            raise AccountingError(path=self._path, stage=self._stage, problem=problem)

    def equal(self, what: str, actual: int, expected: int) -> None:
        self.require(actual == expected, f"{what} {actual:,}, expected {expected:,}")

    def once(self, what: str, actual: Iterable[object], expected: Iterable[object]) -> None:
        """Require that the same things were found as expected, each as often."""
        counted, wanted = Counter(actual), Counter(expected)
        missing, surplus = list((wanted - counted).elements()), list((counted - wanted).elements())
        self.require(counted == wanted, f"{what} missing {missing[:5]}, too many {surplus[:5]}")


def check_scan(directory: Path, tasks: Sequence[Sequence[Split]], scanned: Sequence[Scanned]) -> None:
    """Raise AccountingError unless each split was scanned once and each of its records was counted once."""
    ledger = _Ledger(directory, "scan")
    ledger.once("splits", (scan.split.number for scan in scanned), (split.number for task in tasks for split in task))
    for split, survivors, summary, superseded in scanned:
        where = f"{split.log.name}, positions {split.start_position:,} to {split.end_position:,}: "
        ledger.equal(where + "records", summary.keyed + summary.unkeyed + summary.control, summary.records)
        ledger.equal(where + "bytes of survivor bits", len(survivors), (summary.records + 7) // 8)
        latest = count_bits(np.frombuffer(survivors, np.uint8))
        ledger.equal(where + "latest and superseded records", latest + superseded, summary.keyed)


def check_reduction(directory: Path, reduced: Sequence[Reduced], *, latest_in_tasks: int, latest: int) -> None:
    """Raise AccountingError unless every key was reduced once and every superseded one cleared its survivor bit.

    `latest_in_tasks` is the number of survivor bits that the scans left set, `latest` that after the reduction.
    """
    ledger = _Ledger(directory, "reduction")
    ledger.equal("keys", sum(bucket.keys for bucket in reduced), latest_in_tasks)
    ledger.equal("superseded keys", latest_in_tasks - latest, sum(bucket.superseded for bucket in reduced))
    ledger.require(sum(bucket.map_keys for bucket in reduced) <= latest, "more keys in the map than latest records")


def check_parts(plan: CleanPlan, tasks: Sequence[WriteTask], parts: Sequence[WrittenPart]) -> None:
    """Raise AccountingError unless each part was written once, with exactly the records that survive in it."""
    ledger = _Ledger(plan.log.directory, "writing")
    ledger.once("parts", ((p.group, p.part) for p in parts), ((task.group, task.part) for task in tasks))
    written_parts = {(part.group, part.part): part for part in parts}
    for task in tasks:
        _check_part(ledger, task, written_parts[task.group, task.part])
    last_of_group: dict[int, int] = {}
    for task in sorted(tasks):
        base_offset = plan.groups[task.group][0].base_offset
        end_offset = plan.log.end_of(plan.groups[task.group][-1])
        offsets = written_parts[task.group, task.part].output_table["last_offset"]
        previous = last_of_group.setdefault(task.group, base_offset - 1)
        if len(offsets):
            rises = bool(np.all(np.diff(offsets, prepend=previous) > 0))
            ledger.require(rises and int(offsets[-1]) < end_offset, f"offsets of group {task.group} are out of order")
            last_of_group[task.group] = int(offsets[-1])


def _check_part(ledger: _Ledger, task: WriteTask, part: WrittenPart) -> None:
    counts, stats = part.counts, part.stats
    where = f"group {task.group}, part {task.part}: "
    divided = counts.kept + counts.superseded + counts.expired + counts.unkeyed + counts.discarded
    latest = counts.kept_latest + counts.expired + counts.discarded_latest
    without = counts.expired + counts.unkeyed + counts.held_tombstones
    ledger.equal(where + "records read", counts.read, task.records)
    ledger.equal(where + "records kept, superseded, expired, unkeyed or discarded", divided, counts.read)
    ledger.equal(where + "latest records kept, expired or discarded", latest, _bits_of(task))
    ledger.equal(where + "records kept", counts.kept, counts.kept_latest + counts.kept_control)
    ledger.equal(where + "messages written", stats.messages_written, counts.kept)
    ledger.equal(where + "messages without key", stats.invalid_messages, counts.unkeyed)
    ledger.equal(where + "bytes read", stats.bytes_read, task.size_bytes)
    ledger.equal(where + "bytes written", stats.bytes_written, part.size_bytes)
    ledger.equal(where + "bytes of batches", int(part.output_table["size_bytes"].sum(dtype=np.int64)), part.size_bytes)
    ledger.require(
        counts.held_tombstones <= counts.kept_latest and counts.held_markers <= counts.kept_control,
        f"{where}{counts.held_tombstones:,} tombstones and {counts.held_markers:,} markers held back, but not kept",
    )
    ledger.require(
        counts.read - counts.discarded <= stats.messages_read <= counts.read, f"{where}{stats.messages_read:,} messages"
    )
    ledger.require(
        without <= sum(task.unkeyed_or_tombstones),
        f"{where}{without:,} records without key or value",
    )


def _bits_of(task: WriteTask) -> int:
    return sum(count_bits(np.frombuffer(bitmap, np.uint8)) for bitmap in task.survivors)
