"""Damage in every kind of file of a replica: it is named, and what it explains is not accused."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptDataError
from kcompact.plan.walk import LogDirs
from kcompact.questions.compare.answer import ComparedPartition, compare_partition
from kcompact.questions.compare.findings import Certainty, DifferenceKind
from kcompact.questions.compare.pairs import pair

REPLICA = Path(__file__).parents[4] / "fixtures/logs/transactions/before"
"""Two closed segments and an active one, an aborted transaction with its data, a `.txnindex`, snapshots."""
SEGMENT_0, SEGMENT_6, SEGMENT_11 = (f"transfers-0/{base:020d}" for base in (0, 6, 11))


def compared(*paths: Path) -> ComparedPartition:
    pairs, log_dirs = pair(paths), LogDirs()
    (paired,) = pairs.paired
    if paired.error is not None:
        raise paired.error
    found = [log_dirs.despite_damage(directory) for _, directory in paired.replicas]
    return compare_partition(
        *(paired, pairs.sides, [log_dir for log_dir, _ in found], InProcess(parallelism=1)),
        problems=[problem for _, problem in found],
    )


# What can happen to a file


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def give_epoch(path: Path, epoch: int) -> None:
    data = bytearray(path.read_bytes())
    data[12:16] = struct.pack(">i", epoch)
    path.write_bytes(data)


def renumber(path: Path, position: int, base_offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + 8] = struct.pack(">q", base_offset)
    path.write_bytes(data)


def give_base_offset(path: Path, offset: int) -> None:
    data = path.read_bytes()
    path.write_bytes(struct.pack(">q", offset) + data[8:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def fill(path: Path) -> None:
    path.write_bytes(b"\xee\x00no such file" * 8)


CORRUPT, SERVED = {DifferenceKind.CORRUPT_COPY}, {DifferenceKind.ABORTED_SERVED}


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("name", "damage", "kinds", "exit_code"),
    [
        (f"{SEGMENT_0}.log", partial(flip, position=70), CORRUPT, 3),
        (f"{SEGMENT_0}.log", partial(flip, position=8), CORRUPT, 3),
        (f"{SEGMENT_0}.log", partial(give_epoch, epoch=5), CORRUPT, 3),
        (f"{SEGMENT_0}.log", partial(renumber, position=87, base_offset=3), CORRUPT, 3),
        (f"{SEGMENT_0}.log", partial(give_base_offset, offset=1), CORRUPT, 3),
        (f"{SEGMENT_6}.log", partial(give_base_offset, offset=5), CORRUPT, 3),
        (f"{SEGMENT_6}.log", partial(give_base_offset, offset=7), CORRUPT, 3),
        (f"{SEGMENT_6}.log", partial(give_base_offset, offset=1 << 40), CORRUPT, 3),
        (f"{SEGMENT_6}.log", cut, CORRUPT, 3),
        (f"{SEGMENT_6}.log", zero, CORRUPT, 3),
        (f"{SEGMENT_6}.log", Path.unlink, CORRUPT, 3),
        # A broker makes these anew. `doctor` names them.
        (f"{SEGMENT_0}.index", fill, set(), 0),
        (f"{SEGMENT_0}.timeindex", fill, set(), 0),
        (f"{SEGMENT_6}.txnindex", fill, set(), 0),
        (f"{SEGMENT_11}.snapshot", fill, set(), 0),
        (f"{SEGMENT_11}.snapshot", Path.unlink, set(), 0),
        ("transfers-0/leader-epoch-checkpoint", fill, set(), 0),
        ("meta.properties", fill, set(), 0),
        # This one it does not: it takes a transaction without an entry for committed.
        (f"{SEGMENT_6}.txnindex", Path.unlink, SERVED, 9),
        # Of a log directory without its offsets less is known.
        ("log-start-offset-checkpoint", fill, CORRUPT, 3),
        ("recovery-point-offset-checkpoint", fill, CORRUPT, 3),
        ("replication-offset-checkpoint", fill, CORRUPT, 3),
    ],
)
def test_damage(
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    kinds: set[DifferenceKind],
    exit_code: int,
    *,
    is_first: bool,
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for path in (good, bad):
        shutil.copytree(REPLICA, path)
    damage(bad / name)
    found = compared(bad, good) if is_first else compared(good, bad)
    assert {each.finding.kind for each in found.findings} == kinds
    assert found.exit_code == exit_code
    assert all(each.replicas == (bad,) for each in found.findings)
    assert all(each.finding.certainty is Certainty.PROVEN for each in found.findings)


def test_a_broker_makes_the_indexes_of_what_it_recovers(tmp_path: Path) -> None:
    shutil.copytree(REPLICA, tmp_path / "killed")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", f"{SEGMENT_6}.txnindex"):
        (tmp_path / "killed" / name).unlink()
    assert compared(REPLICA, tmp_path / "killed").findings == ()


def test_damage_to_the_topic_id(tmp_path: Path) -> None:
    shutil.copytree(REPLICA, tmp_path / "bad")
    fill(tmp_path / "bad/transfers-0/partition.metadata")
    with pytest.raises(CorruptDataError):
        compared(REPLICA, tmp_path / "bad")
