"""Damage in batches that are not cleaned, but whose headers decide: refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import HEADER_BYTES, Batch, parse_batches
from kcompact.format.names import log_name
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.command_line import kcompact
from tests.support.copies import read_files
from tests.support.log_writer import LogSpec

SPEC = log_dsl.parse(
    """log lone now=10:00 min.cleanable.dirty.ratio=0 min.compaction.lag.ms=15m
    0: a=1 b=1 a=2(pid=7 txn) c=1
    4: b=2 c=2
    6: a=3^09:50(pid=7 txn seq=1) abort^09:50(pid=7) c=3^09:50(pid=8)
    9: a=3^09:55(pid=8 seq=1) b=3^09:55(pid=7 txn seq=2) c=4^09:55(pid=9 txn) abort^09:55(pid=7) d=1^09:55
    txnindex 6: pid=7 first=2 last=7 stable=8
    txnindex 9: pid=7 first=10 last=12 stable=11"""
)
"""Two segments are cleaned. That at 6 is too young, the last one active: their headers decide about producers."""

YOUNG, ACTIVE = 6, 9

FIELDS: dict[str, tuple[int, int, int]] = {
    # name: which batch of the active segment, position in the batch, bits
    "base offset": (1, 7, 1),
    "base offset, below the segment": (0, 7, 8),
    "last offset delta": (1, 26, 1),
    "leader epoch": (1, 15, 1),
    "length": (1, 11, 1),
    "checksum": (1, 17, 1),
    "codec": (1, 22, 2),
    "transactional bit": (1, 22, 0x10),
    "control bit": (1, 22, 0x20),
    "control bit of a marker": (3, 22, 0x20),
    "base timestamp": (1, 34, 1),
    "max timestamp": (1, 42, 1),
    "producer id": (1, 50, 1),
    "producer epoch": (1, 52, 1),
    "sequence": (1, 56, 1),
    "records count": (1, 60, 2),
    "kind of a marker": (3, HEADER_BYTES + 8, 1),
    "producer of a marker": (3, 50, 1),
    "record": (1, HEADER_BYTES + 6, 1),
    "last batch": (4, HEADER_BYTES + 6, 1),
}


def batches_of(path: Path) -> list[Batch]:
    return list(parse_batches(path.read_bytes(), file=path.name))


def flip(path: Path, batch: int, position: int, bits: int) -> None:
    content = bytearray(path.read_bytes())
    content[batches_of(path)[batch].position + position] ^= bits
    path.write_bytes(content)


def plan_of(directory: Path, spec: LogSpec = SPEC) -> CleanPlan:
    return plan_partition(directory, spec.config, now_ms=spec.now_ms)


def first_damage(directory: Path) -> Exception:
    """Return the damage that a plan reports; some of it is raised."""
    return next(iter(plan_of(directory).log.damage), AssertionError("the damage was not found"))


def test_the_sound_log_is_cleaned(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    plan = plan_of(directory)
    assert (plan.eligible, plan.first_uncleanable_offset) == (True, YOUNG)
    with log_dir_lock(tmp_path) as lock:
        clean_partition(plan, InProcess(), lock=lock)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_batch_of_the_active_segment(field: str, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = directory / log_name(ACTIVE)
    batch = batches_of(path)[FIELDS[field][0]]
    flip(path, *FIELDS[field])
    before = read_files(directory)
    with pytest.raises(CorruptBatchError) as refused:
        raise first_damage(directory)
    assert refused.value.file == str(path)
    assert batch.position <= (refused.value.position or 0) <= batch.position + batch.header.size_bytes
    arguments = ("--json", "--config", "cleanup.policy=compact", directory)
    for command in (("plan",), ("clean", "--yes", "--engine", "in-process")):
        shown = kcompact(*command, *arguments)
        assert shown.code == 3
        assert shown.partition["reason"] == "corrupt"
    assert read_files(directory) == before


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_damaged_batch_of_a_segment_that_is_too_young(batch: int, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = directory / log_name(YOUNG)
    flip(path, batch, 50, 2)
    before = read_files(directory)
    with pytest.raises(CorruptBatchError) as refused, log_dir_lock(tmp_path) as lock:
        clean_partition(plan_of(directory), InProcess(), lock=lock, options=CleanOptions(dry_run=True))
    assert refused.value.file == str(path)
    assert read_files(directory) == before


HEADS: dict[str, tuple[str, Callable[[CleanPlan], object]]] = {
    "log end": ("log", lambda plan: plan.log.log_end_offset),
    "last stable offset": ("log hw=3", lambda plan: plan.last_stable_offset),
}


@pytest.mark.parametrize("head", HEADS)
def test_with_a_snapshot_only_what_decides_is_read(head: str, tmp_path: Path) -> None:
    """The last batch decides about the log end, so its checksum counts also where nothing is replayed."""
    words, value = HEADS[head]
    text = f"{words} index.interval.bytes=0\n0: a=1 b=1\n2: a=2 b=2 c=2\nsnapshot 5:"
    spec = log_dsl.parse(text)
    directory = log_writer.write(spec, tmp_path)
    path = directory / log_name(2)
    sound = value(plan_of(directory, spec))
    flip(path, 0, HEADER_BYTES + 6, 1)
    plan = plan_of(directory, spec)
    assert (plan.log.damage, value(plan)) == ((), sound)
    flip(path, 2, HEADER_BYTES + 6, 1)
    damage, *_ = plan_of(directory, spec).log.damage
    assert damage.file == str(path)
