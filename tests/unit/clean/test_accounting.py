"""A stage that loses or doubles one key, record, bit, part or split is caught before anything is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kcompact import kernels
from kcompact.clean import offset_map, prepare
from kcompact.clean.job import OUTPUT_DTYPE, WrittenPart
from kcompact.clean.offset_map import Reduced
from kcompact.clean.rules import RecordFate, record_fate
from kcompact.clean.scan import Scanned
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import Status
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.errors import AccountingError
from kcompact.format.batch import read_records
from kcompact.format.block import clear_rows, head, pack_rows
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.job import Split
from tests.support import log_dsl
from tests.support.command_line import digest
from tests.support.machine_code import switched
from tests.support.stages import plan_of

LOG = """\
log now=10:00 min.cleanable.dirty.ratio=0 segment.bytes=400 index.interval.bytes=100 delete.retention.ms=1
0: [a=1 b=2 c=3 d=4] [e=5 f=6 a=7]
7: [a=2 g=1 b=~] [h=1 c=4]
12: [a=3] [i=1 d=5]
15: z=1
"""
"""Several groups; superseded, latest and tombstone records; some batches that stay as they are."""


@dataclass(frozen=True, kw_only=True)
class Sabotaged(InProcess):
    """An executor whose results are altered on their way to the driver."""

    scanned: Callable[[list[Scanned]], list[Scanned]] = list
    reduced: Callable[[list[Reduced]], list[Reduced]] = list
    written: Callable[[list[WrittenPart]], list[WrittenPart]] = list

    def scan_and_reduce(self, job: Any, tasks: Sequence[Sequence[Split]], stages: Any) -> tuple[list[Any], list[Any]]:
        scanned, reduced = super().scan_and_reduce(job, tasks, stages)
        return self.scanned(list(scanned)), self.reduced(list(reduced))

    def run(self, stage: str, job: Any, tasks: Sequence[Sequence[Any]], work: Any) -> list[Any]:
        return self.written(super().run(stage, job, tasks, work))


def altered(number: int, **changes: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a function that changes fields of one element of a list."""

    def change(elements: list[Any]) -> list[Any]:
        elements[number] = within(**changes)(elements[number])
        return elements

    return change


def plus(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def within(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that returns a value with other fields."""

    def change(value: Any) -> Any:
        values = {name: new(getattr(value, name)) for name, new in changes.items()}
        return value._replace(**values) if hasattr(value, "_replace") else replace(value, **values)

    return change


def with_other_bit(bitmap: bytes) -> bytes:
    return bytes([bitmap[0] ^ 1]) + bitmap[1:]


def without_a_row(blocks: list[bytes]) -> list[bytes]:
    """Drop the last superseded row of the first block."""
    rows = np.flatnonzero(cleared_by(blocks[0]))
    return [pack_rows(head(blocks[0]).number, rows[:-1]), *blocks[1:]]


def cleared_by(block: bytes) -> Any:
    bitmap = np.full(1 << 10, 0xFF, np.uint8)
    clear_rows(block, bitmap)
    return ~np.unpackbits(bitmap, bitorder="little").astype(bool)


def with_higher_offset(outputs: bytes) -> bytes:
    table = np.frombuffer(outputs, OUTPUT_DTYPE).copy()
    table["last_offset"][-1] += 1000
    return table.tobytes()


WAYS: dict[str, tuple[str, Sabotaged]] = {
    "a split is missing": ("scan", Sabotaged(scanned=lambda scanned: scanned[1:])),
    "a split came twice": ("scan", Sabotaged(scanned=lambda scanned: [*scanned, scanned[0]])),
    "a record was not read": ("scan", Sabotaged(scanned=altered(1, summary=within(keyed=plus(-1))))),
    "a header counts more": ("scan", Sabotaged(scanned=altered(1, summary=within(records=plus(1))))),
    "an unkeyed record too many": ("scan", Sabotaged(scanned=altered(0, summary=within(unkeyed=plus(1))))),
    "a bit was flipped": ("scan", Sabotaged(scanned=altered(0, survivors=with_other_bit))),
    "bits are missing": ("scan", Sabotaged(scanned=altered(0, survivors=lambda bitmap: bitmap[:-1]))),
    "bits and count agree, keys do not": (
        "reduction",
        Sabotaged(scanned=altered(0, survivors=with_other_bit, superseded=plus(-1))),
    ),
    "a bucket is missing": ("reduction", Sabotaged(reduced=lambda reduced: reduced[1:])),
    "a bucket came twice": ("reduction", Sabotaged(reduced=lambda reduced: [*reduced, reduced[0]])),
    "a key was not reduced": ("reduction", Sabotaged(reduced=altered(0, keys=plus(-1)))),
    "a block of rows is missing": ("reduction", Sabotaged(reduced=altered(0, blocks=lambda blocks: blocks[1:]))),
    "a superseded row is missing": ("reduction", Sabotaged(reduced=altered(0, blocks=without_a_row))),
    "a row too many in the count": ("reduction", Sabotaged(reduced=altered(0, superseded=plus(1)))),
    "more keys than records": ("reduction", Sabotaged(reduced=altered(0, map_keys=plus(1000)))),
    "a part is missing": ("writing", Sabotaged(written=lambda parts: parts[1:])),
    "a part came twice": ("writing", Sabotaged(written=lambda parts: [*parts, parts[0]])),
    "a part of another group": ("writing", Sabotaged(written=altered(0, group=plus(1)))),
    "a record was not written": ("writing", Sabotaged(written=altered(0, counts=within(kept=plus(-1))))),
    "a record was not filtered": ("writing", Sabotaged(written=altered(0, counts=within(read=plus(-1))))),
    "one more is superseded": (
        "writing",
        Sabotaged(
            written=altered(
                0,
                counts=within(kept=plus(-1), kept_latest=plus(-1), superseded=plus(1)),
                stats=within(messages_written=plus(-1)),
            )
        ),
    ),
    "one more has expired": (
        "writing",
        Sabotaged(
            written=altered(
                0,
                counts=within(kept=plus(-9), kept_latest=plus(-9), expired=plus(9)),
                stats=within(messages_written=plus(-9)),
            )
        ),
    ),
    "messages do not add up": ("writing", Sabotaged(written=altered(0, stats=within(messages_written=plus(1))))),
    "messages read do not add up": ("writing", Sabotaged(written=altered(0, stats=within(messages_read=plus(-1))))),
    "bytes were not read": ("writing", Sabotaged(written=altered(0, stats=within(bytes_read=plus(-1))))),
    "the size is another": ("writing", Sabotaged(written=altered(0, size_bytes=plus(1)))),
    "a batch is missing": (
        "writing",
        Sabotaged(written=altered(0, outputs=lambda outputs: outputs[OUTPUT_DTYPE.itemsize :])),
    ),
    "an offset is beyond the group": ("writing", Sabotaged(written=altered(0, outputs=with_higher_offset))),
}
"""Results that were altered, and the stage that the error names."""


def cleaned(plan: CleanPlan, executor: InProcess, *, dry_run: bool = False) -> Status:
    with log_dir_lock(plan.log.directory.parent) as lock:
        return clean_partition(plan, executor, lock=lock, options=CleanOptions(dry_run=dry_run)).status


@pytest.fixture
def plan(tmp_path: Path) -> CleanPlan:
    return plan_of(log_dsl.parse(LOG), tmp_path / "logs")


def test_a_sound_run_adds_up(plan: CleanPlan, compiled: bool) -> None:
    assert len(plan.groups) > 1
    assert cleaned(plan, Sabotaged()) is Status.CLEANED


@pytest.mark.parametrize("way", WAYS)
def test_an_altered_result_changes_nothing(
    plan: CleanPlan, compiled: bool, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "LEAST_TASK_BYTES", 1)
    stage, executor = WAYS[way]
    before = digest(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(AccountingError) as raised:
            cleaned(plan, executor, dry_run=dry_run)
        assert (raised.value.stage, raised.value.exit_code) == (stage, 1)
        assert "are unchanged" in str(raised.value)
        assert "report this message" in str(raised.value)
    assert digest(tmp_path) == before


# Stages that make a mistake themselves


def loses_a_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kcompact.clean.scan.read_records", lambda batch, **given: read_records(batch, **given)[:1])


def doubles_a_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kcompact.clean.scan.read_records", lambda batch, **given: [*read_records(batch, **given)] * 2)


class OtherKernels(SimpleNamespace):
    """The kernels, some of them replaced."""

    def __getattr__(self, name: str) -> Any:
        return getattr(kernels, name)


def kernel_loses_a_record(patch: pytest.MonkeyPatch) -> None:
    really = kernels.scan_records

    def scanned(*arguments: Any) -> Any:
        entries, *others = really(*arguments)
        return (max(0, entries - 1), *others)

    patch.setattr("kcompact.clean.split_kernels.kernels", OtherKernels(scan_records=scanned))


def collector_loses_a_key(patch: pytest.MonkeyPatch) -> None:
    really = offset_map.KeyCollector.commit
    patch.setattr(
        offset_map.KeyCollector,
        "commit",
        lambda self, split, records, rows: really(self, split, records, max(0, rows - 1)),
    )


def bucket_is_not_packed(patch: pytest.MonkeyPatch) -> None:
    really = offset_map.keys_by_bucket
    patch.setattr(
        offset_map,
        "keys_by_bucket",
        lambda *arguments, **options: (keys.first(max(0, keys.rows - 1)) for keys in really(*arguments, **options)),
    )


def block_is_reduced_twice(patch: pytest.MonkeyPatch) -> None:
    really = offset_map.joined
    patch.setattr(offset_map, "joined", lambda parts: really([*parts, *parts[-1:]]))


def filter_drops_a_record(patch: pytest.MonkeyPatch) -> None:
    fates: list[RecordFate] = []

    def once(**facts: Any) -> RecordFate:
        fates.append(record_fate(**facts))
        return RecordFate.SUPERSEDED if fates.count(RecordFate.KEPT) == 2 else fates[-1]

    patch.setattr("kcompact.clean.filter.record_fate", once)


def filter_keeps_a_superseded_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kcompact.clean.filter.record_fate", lambda **facts: RecordFate.KEPT)


def kernel_drops_a_record(patch: pytest.MonkeyPatch) -> None:
    really = kernels.filter_batches

    def filtered(*arguments: Any) -> Any:
        altered = list(arguments)
        altered[5] = np.zeros_like(arguments[5])  # No survivor bit.
        return really(*altered)

    patch.setattr("kcompact.clean.split_kernels.kernels", OtherKernels(filter_batches=filtered))


def kernel_keeps_a_superseded_record(patch: pytest.MonkeyPatch) -> None:
    really = kernels.filter_batches

    def filtered(*arguments: Any) -> Any:
        altered = list(arguments)
        altered[5] = np.full_like(arguments[5], 0xFF)
        return really(*altered)

    patch.setattr("kcompact.clean.split_kernels.kernels", OtherKernels(filter_batches=filtered))


MISTAKES: dict[str, tuple[bool, Callable[[pytest.MonkeyPatch], None]]] = {
    "scan loses records": (False, loses_a_record),
    "scan doubles records": (False, doubles_a_record),
    "kernel loses keys": (True, kernel_loses_a_record),
    "collector loses keys": (False, collector_loses_a_key),
    "collector loses keys, compiled": (True, collector_loses_a_key),
    "keys are not packed": (True, bucket_is_not_packed),
    "a block is reduced twice": (True, block_is_reduced_twice),
    "filter drops a record": (False, filter_drops_a_record),
    "filter keeps superseded records": (False, filter_keeps_a_superseded_record),
    "kernel drops records": (True, kernel_drops_a_record),
    "kernel keeps superseded records": (True, kernel_keeps_a_superseded_record),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_stage_that_loses_or_doubles_changes_nothing(
    plan: CleanPlan, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, make = MISTAKES[mistake]
    before = digest(tmp_path)
    make(monkeypatch)
    with switched(compiled=compiled), pytest.raises(AccountingError):
        cleaned(plan, InProcess(parallelism=2))
    assert digest(tmp_path) == before
