"""Who is blamed when an index and its log differ: the log if it is damaged, else the index, with the way on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptBatchError, CorruptIndexError
from kcompact.format import batch
from kcompact.format.index import build_offset_index
from kcompact.format.names import index_name, log_name
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.producer_state import first_unstable_offset, load_producers
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.machine_code import switched
from tests.support.parameters import one_in
from tests.support.wrong_indexes import LIES

SPEC = log_dsl.parse(
    "log lone now=10:00 index.interval.bytes=100 min.cleanable.dirty.ratio=0\n"
    "0: [a=1 b=1] c=1^09:02 d=1^09:03 a=2^09:04 b=2^09:05 c=2^09:06 d=2^09:07\n"
    "8: e=1\n"
    "9: [a=3 b=3] c=3^09:02 d=3^09:03(pid=7 txn) a=4^09:04 b=4^09:05 c=4^09:06\n"
)
"""The first segment is cleaned. In the last one the log end and the batch of an open transaction are looked up."""

CLEANED, ACTIVE = 0, 9
HARMLESS = {
    ".index": {"empty", "all zero", "a long run of zeros", "one entry of zeros"},
    ".timeindex": {
        *("empty", "all zero", "a long run of zeros", "another second field", "beyond the end"),
        *("one entry of zeros", "shifted"),
    },
}
"""Without an entry, or with one for the start of the log, nothing is claimed: the batches are read. The offsets of a
time index are not used, and one that ends with a lower timestamp than the segment has is what a truncated follower can
have."""

READERS: dict[str, tuple[int, str, int, bool]] = {
    "splits": (CLEANED, ".index", 1, False),
    "splits, with kernels": (CLEANED, ".index", 1, True),
    "splits of two batches": (CLEANED, ".index", 150, False),
    "scan": (CLEANED, ".index", 1 << 30, False),
    "scan, with kernels": (CLEANED, ".index", 1 << 30, True),
    "last timestamp": (CLEANED, ".timeindex", 1 << 30, False),
    "log end": (ACTIVE, ".index", 1 << 30, False),
}
"""Segment, index, size of a split, with kernels."""


def cleaned(spec: LogSpec, directory: Path, split_bytes: int = 1 << 30, *, compiled: bool = False) -> PartitionLog:
    """Plan and scan a log; raise the first damage, as a cleaning does."""
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms, force=True)
    if plan.log.damage:
        raise plan.log.damage[0]
    assert plan.eligible
    with switched(compiled=compiled):
        prepare_clean(plan, InProcess(parallelism=1), tuning=Tuning(split_bytes=split_bytes))
    return plan.log


def edited(position: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + data + content[position + len(data) :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "length of the first batch": edited(11, b"\x47"),
    "magic of the second batch": edited(79 + 16, b"\x07"),
    "record of the last batch": lambda content: content[:-3] + b"!" + content[-2:],
    "torn end": lambda content: content[:-3],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_index_is_blamed(reader: str, lie: str, tmp_path: Path) -> None:
    base, suffix, split_bytes, compiled = READERS[reader]
    directory = log_writer.write(SPEC, tmp_path)
    path = (directory / log_name(base)).with_suffix(suffix)
    path.write_bytes(LIES[lie](path))
    if lie in HARMLESS[suffix]:
        cleaned(SPEC, directory, split_bytes, compiled=compiled)
        return
    with pytest.raises(CorruptIndexError) as stopped:
        cleaned(SPEC, directory, split_bytes, compiled=compiled)
    assert stopped.value.file == str(path)
    assert "`rebuild_indexes=True`" in str(stopped.value)


BOTH_DAMAGED = [
    (reader, damage, lie) for reader, damage, lie in product(READERS, DAMAGE, LIES) if "kernels" not in reader
]


@pytest.mark.parametrize(("reader", "damage", "lie"), one_in(5, BOTH_DAMAGED))
def test_a_damaged_log_is_blamed_before_its_index(reader: str, damage: str, lie: str, tmp_path: Path) -> None:
    base, suffix, split_bytes, compiled = READERS[reader]
    directory = log_writer.write(SPEC, tmp_path)
    path = (directory / log_name(base)).with_suffix(suffix)
    path.write_bytes(LIES[lie](path))
    log = directory / log_name(base)
    log.write_bytes(DAMAGE[damage](log.read_bytes()))
    with pytest.raises(CorruptBatchError) as stopped:
        cleaned(SPEC, directory, split_bytes, compiled=compiled)
    assert stopped.value.file == str(log)
    assert "rebuild_indexes" not in str(stopped.value)


def test_an_entry_that_points_to_a_batch_inside_a_record_is_blamed(tmp_path: Path) -> None:
    inside = batch.build([batch.Record(1, DEFAULT_TIME, b"x", b"y", ())])
    batches = [batch.build([batch.Record(offset, DEFAULT_TIME + offset, b"a", inside, ())]) for offset in range(4)]
    segments = (SegmentSpec(base_offset=0, batches=tuple(batches)), SegmentSpec(base_offset=4))
    spec = LogSpec(segments=segments, now_ms=DEFAULT_TIME + 10, lone=True)
    directory = log_writer.write(spec, tmp_path)
    path = directory / index_name(0)
    path.write_bytes(build_offset_index([(1, len(batches[0]) + batches[1].index(inside))]))
    with pytest.raises(CorruptIndexError, match="where no batch starts") as stopped:
        cleaned(spec, directory, split_bytes=1)
    assert stopped.value.file == str(path)


def search(directory: Path, *, ignores_indexes: bool = False) -> int | None:
    """Return the first unstable offset; it is in the last segment, whose index is read after the log."""
    log = read_log(directory, rebuild_indexes=True)
    state = load_producers(log, now_ms=SPEC.now_ms, expiration_ms=1 << 40)
    log = replace(log, ignores_indexes=ignores_indexes)
    return first_unstable_offset(log, state, high_watermark=None, now_ms=SPEC.now_ms, expiration_ms=1 << 40)


@pytest.mark.parametrize("lie", LIES)
def test_the_search_for_an_open_transaction_blames_the_index(lie: str, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = directory / index_name(ACTIVE)
    path.write_bytes(LIES[lie](path))
    assert search(directory, ignores_indexes=True) == 12
    if lie in HARMLESS[".index"] | {"one more entry"}:  # The search does not need the wrong entry.
        assert search(directory) == 12
        return
    with pytest.raises(CorruptIndexError, match="`rebuild_indexes=True`") as stopped:
        search(directory)
    assert stopped.value.file == str(path)


@pytest.mark.parametrize("lie", ["another second field", "random bytes", "incomplete"])
def test_the_search_for_an_open_transaction_blames_a_damaged_log(lie: str, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = directory / index_name(ACTIVE)
    path.write_bytes(LIES[lie](path))
    log = path.with_suffix(".log")
    log.write_bytes(DAMAGE["record of the last batch"](log.read_bytes()))
    with pytest.raises(CorruptBatchError) as stopped:
        search(directory)
    assert stopped.value.file == str(log)
