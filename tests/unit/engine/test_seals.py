"""Checksums of what travels: any altered byte of a value, and of a block in a spill file, ends the run."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.cleaner.partition import clean_partition
from kcompact.engine import in_process
from kcompact.engine.in_process import InProcess
from kcompact.engine.seals import Seal, opened, scratch_error, sealed
from kcompact.errors import ScratchDamagedError, ScratchSpaceError, StorageError
from kcompact.format.block import HEADER
from kcompact.log.lock import log_dir_lock
from tests.support.command_line import DIRTY, digest
from tests.support.damage import cuts_and_flips
from tests.support.jobs import limit_keys
from tests.support.log_dsl import parse
from tests.support.stages import plan_of

VALUE = ("a bucket", [b"\1\2\3" * 9, None], 7)


def test_every_cut_and_every_flipped_bit_of_a_value_is_found() -> None:
    data = sealed(VALUE)
    assert opened(data, source="s") == VALUE
    for damaged in cuts_and_flips(data):
        with pytest.raises(ScratchDamagedError):
            opened(damaged, source="s")


@given(st.binary(min_size=1, max_size=400), st.data())
def test_any_altered_byte_is_found(block: bytes, data: st.DataObject) -> None:
    seal = Seal.of(block)
    assert seal.checked(block, source="s") == block
    position = data.draw(st.integers(0, len(block) - 1))
    altered = bytearray(block)
    altered[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ScratchDamagedError, match="s: "):
        seal.checked(bytes(altered), source="s")


def test_another_block_of_the_same_size_is_found() -> None:
    with pytest.raises(ScratchDamagedError):
        Seal.of(b"bucket 1").checked(b"bucket 2", source="s")


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [(errno.ENOSPC, ScratchSpaceError, 7), (errno.EDQUOT, ScratchSpaceError, 7), (errno.EIO, StorageError, 1)],
)
def test_errors_of_scratch_files(number: int, error: type[Exception], code: int) -> None:
    problem = scratch_error("/scratch", OSError(number, os.strerror(number)))
    assert type(problem) is error
    assert problem.exit_code == code
    assert str(problem).startswith("/scratch: ")
    copy = pickle.loads(pickle.dumps(problem))
    assert (type(copy), str(copy), copy.exit_code) == (error, str(problem), code)


def flipped_at(position: int) -> Callable[[bytes], bytes]:
    """Return a function that flips a bit of one byte."""

    def flipped(data: bytes) -> bytes:
        altered = bytearray(data)
        altered[position] ^= 1
        return bytes(altered)

    return flipped


POSITIONS = {
    "magic": 0,
    "kind": 4,
    "bucket": 8,
    "count": 16,
    "hash": HEADER.size,
    "last": -1,
}
"""A byte of each field of a spilled block."""
ALTERED: dict[str, Callable[[bytes], bytes]] = {
    **{name: flipped_at(position) for name, position in POSITIONS.items()},
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_spill_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, compiled: bool
) -> None:
    plan = plan_of(parse(DIRTY), tmp_path / "logs")
    limit_keys(monkeypatch, keys_bytes=24, buckets=2)
    monkeypatch.setattr(in_process._Blocks, "add", spilling(in_process._Blocks.add))
    sizes = Tuning()
    prepare_clean(plan, InProcess(parallelism=1), tuning=sizes)
    really, reads = os.pread, []

    def altered(descriptor: int, size: int, at: int) -> bytes:
        data = really(descriptor, size, at)
        if data.startswith(b"kcb2"):
            reads.append(at)
        elif len(reads) == 2 and at > reads[1]:
            return b""  # The rest of what was cut off.
        return ALTERED[how](data) if len(reads) == 2 and at == reads[1] else data

    monkeypatch.setattr(os, "pread", altered)
    before = digest(tmp_path)
    with log_dir_lock(plan.log.directory.parent) as lock, pytest.raises(ScratchDamagedError) as raised:
        clean_partition(plan, InProcess(parallelism=1), lock=lock)
    assert raised.value.exit_code == 1
    assert "the log is not affected" in str(raised.value)
    assert digest(tmp_path) == before


def spilling(add: Callable[..., None]) -> Callable[..., None]:
    """Return `add` without memory for any block."""

    def spilled(self: in_process._Blocks, bucket: int, block: bytes) -> None:
        self._limit_bytes = 0
        add(self, bucket, block)

    return spilled
