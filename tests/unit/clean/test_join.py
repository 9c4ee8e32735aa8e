"""`clean.join`: the parts of a group become one segment with indexes, also where the disk cannot copy."""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.clean import join, staged_files
from kcompact.errors import (
    CorruptDataError,
    KcompactError,
    NotEnoughSpaceError,
    StorageError,
)
from kcompact.format.index import AbortedTxn, build_txn_index
from tests.support.parts import INDEXES, joined, parts_of

pytestmark = pytest.mark.usefixtures("compiled")

ABORTED = AbortedTxn(producer_id=7, first_offset=1, last_offset=3, last_stable_offset=4)


def test_an_aborted_transaction_makes_a_file(source: Path, staging: Path) -> None:
    files = joined(staging, parts_of(source, staging), aborted=[ABORTED])
    assert files[f"{0:020d}.txnindex"] == build_txn_index([ABORTED])


def test_each_file_is_read_back_from_the_disk(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []

    def advise(descriptor: int, *arguments: int) -> None:
        assert arguments == (0, 0, os.POSIX_FADV_DONTNEED)
        dropped.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    joined(staging, parts_of(source, staging, 1, 3), aborted=[ABORTED])
    assert {".index", ".timeindex", ".txnindex"} <= set(dropped)


def test_much_data_goes_out_in_pieces(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    monkeypatch.setattr(staged_files, "MAX_PIECES", 1)
    monkeypatch.setattr(staged_files, "VERIFY_BYTES", 50)
    monkeypatch.setattr(join, "COPY_BYTES", 7)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 1, 3)) == whole


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
@pytest.mark.parametrize("turn", [0, 1, 3])
def test_a_file_system_that_cannot_copy(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, turn: int
) -> None:
    whole = joined(staging, parts_of(source, staging))
    really, calls = os.copy_file_range, itertools.count()

    def copy(*arguments: int) -> int:
        if next(calls) >= turn:
            raise OSError(code, os.strerror(code))
        return really(*arguments)

    monkeypatch.setattr(os, "copy_file_range", copy)
    monkeypatch.setattr(join, "COPY_BYTES", 30)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 1, 3)) == whole
    assert next(calls) > turn


def test_a_copy_that_ends_early_goes_on_by_hand(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 2)) == whole


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, NotEnoughSpaceError), (errno.EIO, StorageError)])
def test_a_copy_that_fails(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[KcompactError]
) -> None:
    def fail(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    parts = parts_of(source, staging, 2)
    monkeypatch.setattr(os, "copy_file_range", fail)
    with pytest.raises(error):
        joined(staging, parts)


def test_joined_parts_do_not_stay(source: Path, staging: Path) -> None:
    parts = parts_of(source, staging, 1, 3)
    joined(staging, parts)
    assert {path.name for path in staging.iterdir() if path.suffix == ".log"} == {parts[0].name}


def test_an_index_that_comes_back_otherwise(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(source, staging)
    really = os.write

    def write_other_bytes(descriptor: int, data: bytes) -> int:
        return really(descriptor, bytes(len(data)))

    monkeypatch.setattr(os, "write", write_other_bytes)
    with pytest.raises(CorruptDataError, match="differs from what was written"):
        joined(staging, parts)


def test_a_full_index(source: Path, staging: Path) -> None:
    with pytest.raises(KcompactError, match="index is full"):
        joined(staging, parts_of(source, staging), config=replace(INDEXES, segment_index_bytes=8))
