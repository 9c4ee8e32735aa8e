"""`stages.folded_log`: whatever the pieces are, a fold sees each record once, in order, up to the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.errors import BatchTooLargeError, CorruptBatchError, KcompactError
from kcompact.format.codec import Codec
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun
from kcompact.stages import sizing
from kcompact.stages.fold import Fold, JoinableFold
from kcompact.stages.folded_log import fold_log
from tests.support import giants, log_dsl, log_writer

LOG = "log now=10:00\n0: a=1 b=2 a=3\n3: [b=4 c=5] d=~\n6: [e=1] f=2 [g=3 h=4]\n10: a=6"
Offsets = list[int]


class InOrder(Fold[Offsets, tuple[Offsets, bool]]):
    """The offsets of all records, and whether all of them were read."""

    def zero(self) -> Offsets:
        return []

    def add(self, state: Offsets, run: RecordRun, file: LogFile) -> Offsets:
        return [*state, *run.offset.tolist()]

    def finish(self, state: Offsets, damage: KcompactError | None) -> tuple[Offsets, bool]:
        return state, damage is None


class Joined(InOrder, JoinableFold[Offsets, tuple[Offsets, bool]]):
    def join(self, state: Offsets, later: Offsets) -> Offsets:
        return state + later


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "MIN_SPLIT_BYTES", 1)
    monkeypatch.setattr(sizing, "SPLIT_PART", 1 << 60)


@pytest.mark.parametrize("question", [InOrder(), Joined()])
@pytest.mark.parametrize("workers", [1, 2, 3, 16])
@pytest.mark.parametrize("damaged", [False, True])
def test_each_record_once_and_in_order(question: InOrder, workers: int, damaged: bool, tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse(LOG), tmp_path)
    expected: tuple[Offsets, bool] = (list(range(11)), True)
    if damaged:
        path = directory / f"{6:020d}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        expected = (list(range(8)), False)
    found, damage = fold_log(question, read_log(directory), InProcess(parallelism=workers))
    assert found == expected
    assert isinstance(damage, CorruptBatchError) == damaged


@pytest.mark.parametrize("question", [InOrder(), Joined()])
@pytest.mark.parametrize(("memory_bytes", "is_enough"), [(128 << 20, True), (8 << 20, False)])
@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_large_batch_is_read_alone(
    codec: Codec, question: InOrder, memory_bytes: int, is_enough: bool, workers: int, tmp_path: Path
) -> None:
    directory = giants.write(tmp_path, giants.giant(codec))
    found, damage = fold_log(question, read_log(directory), InProcess(parallelism=workers), memory_bytes=memory_bytes)
    assert found == (([0, 1], True) if is_enough else ([], False))
    assert isinstance(damage, BatchTooLargeError) != is_enough
