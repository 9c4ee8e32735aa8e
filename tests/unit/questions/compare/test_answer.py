"""What the answer about a partition names: replicas, keys, numbers, and what was not compared."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcompact.format.codec import Codec, compress
from kcompact.format.names import log_name
from kcompact.questions.compare import judge
from kcompact.questions.compare.answer import ComparedPartition, ReplicaVerdict
from kcompact.questions.compare.findings import Certainty, DifferenceKind
from tests.support.mutants import legacy_entry
from tests.support.replica_logs import answer, written

START = "log-start-offset-checkpoint"


def compared(home: Path, *texts: str) -> ComparedPartition:
    return answer(written(home, *texts))


def told(found: ComparedPartition) -> list[tuple[DifferenceKind, tuple[int, ...], Certainty, tuple[int, ...]]]:
    return [
        (each.finding.kind, each.finding.replicas, each.finding.certainty, each.finding.offsets)
        for each in found.findings
    ]


def damage(directory: Path, batch: int) -> None:
    """Spoil the records of a batch of the first segment."""
    file = directory / log_name(0)
    data = bytearray(file.read_bytes())
    position = 0
    for _ in range(batch):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    data[position + 62] ^= 0x55
    file.write_bytes(data)


def test_what_is_above_a_fork_is_named_with_its_offsets(tmp_path: Path) -> None:
    found = compared(tmp_path, "0: a=1 b=1\n2: c=1 d=1 e=1", "0: a=1 b=1\n2: x=1(leader=1) y=1(leader=1)")
    assert told(found) == [(DifferenceKind.DIVERGED_EPOCH, (0,), Certainty.PROVEN, (2,))]
    (part,) = found.not_compared
    assert (part.path, part.from_offset, part.to_offset) == (tmp_path / "0", 2, 5)
    assert (found.verdict, found.fork_offset, found.exit_code) == (ReplicaVerdict.DIFFERENT, 2, 9)


def test_each_fork_names_its_own_replicas(tmp_path: Path) -> None:
    newest = "0: a=1 b=1\n2: c=1(leader=2) d=1(leader=2)\n4: e=1(leader=3)"
    found = compared(
        tmp_path, newest, "0: a=1 b=1 x=1(leader=1)", "0: a=1 b=1\n2: c=1(leader=2) d=1(leader=2) y=1(leader=2)"
    )
    assert told(found) == [
        (DifferenceKind.DIVERGED_EPOCH, (1,), Certainty.PROVEN, (2,)),
        (DifferenceKind.DIVERGED_EPOCH, (2,), Certainty.PROVEN, (4,)),
    ]
    assert [(part.path.name, part.from_offset, part.to_offset) for part in found.not_compared] == [
        ("1", 2, 3),
        ("2", 4, 5),
    ]


def test_what_is_damaged_is_named_with_the_reason(tmp_path: Path) -> None:
    directories = written(tmp_path, *["0: a=1 b=1 c=1 d=1\n4: e=1"] * 2)
    damage(directories[1], 2)
    found = answer(directories)
    (part,) = found.not_compared
    assert (part.path, part.from_offset, part.to_offset) == (tmp_path / "1", 2, 3)
    assert "checksum" in part.why
    assert found.exit_code == 3


def test_the_damage_of_one_replica_excuses_no_other(tmp_path: Path) -> None:
    """Replica 0 is damaged where replica 2 lacks the only record of a key. Replica 1 has it, and there is no hole."""
    directories = written(tmp_path, *["0: a=1 b=1 c=1 d=1\n4: e=1"] * 2, "0: a=1 c=1@2 d=1\n4: e=1")
    damage(directories[0], 1)
    assert told(answer(directories)) == [
        (DifferenceKind.CORRUPT_COPY, (0,), Certainty.PROVEN, (1,)),
        (DifferenceKind.LOST_KEY, (2,), Certainty.PROVEN, (1,)),
    ]


def test_a_key_behind_damage_is_still_named(tmp_path: Path) -> None:
    directories = written(tmp_path, "0: a=1 b=1 K=1 d=1\n4: e=1", "0: a=1 b=1 d=1@3\n4: e=1")
    damage(directories[0], 1)
    (lost,) = (each for each in answer(directories).findings if each.finding.kind is not DifferenceKind.CORRUPT_COPY)
    assert lost.keys == ((2, b"K"),)


def test_all_keys_are_counted_and_the_first_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MOST_ROWS", 3)
    records = " ".join(f"k{number}=1" for number in range(8))
    found = compared(tmp_path, f"0: {records} z=1", "0: z=1@8")
    (lost,) = found.findings
    assert (lost.finding.kind, lost.finding.count, lost.finding.offsets) == (DifferenceKind.LOST_KEY, 8, (0, 1, 2))


def test_the_last_hole_decides_also_where_another_replica_ends(tmp_path: Path) -> None:
    """A tombstone of K can have been at offset 6. Replica 2 ends at 4, so the holes are noted in two ranges."""
    texts = ["0: a=1 c=1@2 K=1@3 d=1@4 e=1@5 f=1@7", "0: a=1 c=1@2 d=1@4 e=1@5 f=1@7", "0: a=1 c=1@2 K=1@3"]
    assert told(compared(tmp_path, *texts)) == [(DifferenceKind.PRESENT_IN_ONE, (0, 2), Certainty.UNDECIDED, (3,))]


def test_the_first_record_of_all_counts(tmp_path: Path) -> None:
    found = compared(tmp_path, "0: K=1 a=1 b=1 c=1@4", "0: a=1@1 b=1 K=~ c=1")
    assert told(found) == [(DifferenceKind.RESURRECTED_KEY, (0,), Certainty.PROVEN, (0,))]
    assert found.findings[0].right == (tmp_path / "1",)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_record_without_a_majority_accuses_nobody(order: Sequence[int], tmp_path: Path) -> None:
    """Three of the five replicas have cleaned it away, because a later record of the key superseded it there."""
    two = ["0: a=1 b=1 c=1", "0: a=2 b=1 c=1"]
    directories = written(tmp_path, *(two[number] for number in order), *["1: b=1 c=1"] * 3)
    for directory in directories[2:]:
        (directory.parent / START).write_text("0\n1\norders 0 1\n")
    found = answer(directories)
    assert told(found) == [(DifferenceKind.CONTENT_DIFFERS, (0, 1), Certainty.UNDECIDED, (0,))]
    assert found.exit_code == 10


def test_a_record_that_most_have_otherwise_is_likely_wrong(tmp_path: Path) -> None:
    found = compared(tmp_path, "0: a=1 b=1", "0: a=1 b=1", "0: a=2 b=1")
    assert told(found) == [(DifferenceKind.CONTENT_DIFFERS, (2,), Certainty.LIKELY, (0,))]


def test_every_replica_with_another_record_is_named_however_many_there_are(tmp_path: Path) -> None:
    """Only the first offsets are kept: replica 2 differs behind them."""
    records = [f"k{number}=1" for number in range(100)]
    others = [f"k{number}=2" for number in range(90)] + records[90:]
    last = [*records[:95], "k95=2", *records[96:]]
    found = compared(tmp_path, *(f"0: {' '.join(each)}" for each in (records, others, last, records)))
    (differs,) = found.findings
    assert (differs.finding.kind, differs.finding.replicas, differs.finding.count) == (
        DifferenceKind.CONTENT_DIFFERS,
        (1, 2),
        91,
    )


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        (["0: a=1 b=1 a=2", "0: a=1 b=1 a=2"], ReplicaVerdict.EQUAL),
        (["0: a=1 b=1 a=2", "0: b=1@1 a=2"], ReplicaVerdict.COMPACTED),
        (["0: a=1 b=1 a=2", "0: a=1 b=1"], ReplicaVerdict.BEHIND),
    ],
)
def test_verdicts_of_replicas_without_a_finding(texts: list[str], verdict: ReplicaVerdict, tmp_path: Path) -> None:
    found = compared(tmp_path, *texts)
    assert (found.verdict, found.findings, found.exit_code) == (verdict, (), 0)


def test_the_numbers_of_each_replica(tmp_path: Path) -> None:
    found = compared(tmp_path, "0: a=1 [b=1 c=1] a=2", "1: [b=1 c=1] a=2")
    assert [(each.batches, each.records, each.log_start_offset) for each in found.replicas] == [(3, 4, 0), (2, 3, 1)]
    assert (found.equal_batches, found.alone, found.keys) == (2, 1, 3)
    assert (found.compared_from, found.compared_to) == (0, 4)


def test_batches_that_some_replicas_have_are_counted_once(tmp_path: Path) -> None:
    found = compared(tmp_path, "0: a=1 b=1 a=2 b=2", "0: b=1@1 a=2 b=2", "0: a=1 a=2@2 b=2")
    assert (found.equal_batches, found.alone, found.rebuilt, found.findings) == (4, 4, {}, ())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a=1 b=1 K=1@3 z=1", "a=1 b=1 z=1@4", (DifferenceKind.LOST_KEY, (1,), Certainty.PROVEN, (3,))),
        ("a=1 b=1 K=1 z=1@4", "a=1 b=1 z=1@4", (DifferenceKind.PRESENT_IN_ONE, (0,), Certainty.UNDECIDED, (2,))),
        ("a=1 K=1@2 b=1 z=1", "a=1 b=1@3 z=1", (DifferenceKind.LOST_KEY, (1,), Certainty.PROVEN, (2,))),
    ],
    ids=["right-above-a-hole", "right-below-a-hole", "hole-before-other-batches"],
)
def test_a_loss_is_proven_above_the_last_hole_only(
    one: str, other: str, expected: tuple[object, ...], tmp_path: Path
) -> None:
    assert told(compared(tmp_path, f"0: {one}", f"0: {other}")) == [expected]


@pytest.mark.parametrize(
    ("right", "wrong", "hidden"),
    [(1, 7, range(1, 8)), (3, 0, range(4))],
    ids=["above-its-segment", "below-its-segment"],
)
def test_a_batch_with_a_wrong_offset_hides_where_it_is_and_where_it_should_be(
    right: int, wrong: int, hidden: range, tmp_path: Path
) -> None:
    """Offsets are not in the checksum. Nothing is said of the keys that lie there."""
    directories = written(tmp_path, *["0: a=1 b=1 c=1\n3: d=1\n4: e=1"] * 2)
    file = directories[0] / log_name(3 if right == 3 else 0)
    data = bytearray(file.read_bytes())
    position = 12 + int.from_bytes(data[8:12], "big") if right == 1 else 0
    assert data[position : position + 8] == right.to_bytes(8, "big")
    data[position : position + 8] = wrong.to_bytes(8, "big")
    file.write_bytes(data)
    found = answer(directories)
    assert {kind for kind, _, _, _ in told(found)} == {DifferenceKind.CORRUPT_COPY}
    assert min(part.from_offset for part in found.not_compared) == hidden.start
    assert max(part.to_offset for part in found.not_compared) == hidden.stop


def test_a_transaction_of_which_only_an_empty_batch_is_left_hangs_as_well(tmp_path: Path) -> None:
    """A broker that loads the log opens it, and no marker ends it. The other replica has had the marker."""
    open_ = "snapshot 4: pid=7 seq=0 last=0 open=0 at=09:00"
    found = compared(
        tmp_path,
        f"0: []@0..0(pid=7 epoch=0 seq=0 txn) b=2@1 c=3@3\n4:\n{open_}",
        "0: []@0..0(pid=7 epoch=0 seq=0 txn) b=2@1 [commit@2](pid=7 epoch=0) c=3@3\n4:\nsnapshot 4: pid=7 at=09:00",
    )
    assert told(found) == [(DifferenceKind.HANGING_TRANSACTION, (0,), Certainty.PROVEN, (0,))]
    assert found.findings[0].right == (tmp_path / "1",)


def test_a_marker_with_a_wrong_offset_ends_nothing_elsewhere(tmp_path: Path) -> None:
    """In replica 0 the marker at 1 says that it is at 7, behind data of the same producer that is still open."""
    text = "0: a=1(pid=7 epoch=0 seq=0 txn) commit@1(pid=7 epoch=0) b=1\n3: c=1(pid=7 epoch=0 seq=1 txn) d=1@9\n10:"
    directories = written(tmp_path, *[f"{text}\nsnapshot 10: pid=7 seq=1 last=3 open=3 at=09:00"] * 2)
    file = directories[0] / log_name(0)
    data = bytearray(file.read_bytes())
    position = 12 + int.from_bytes(data[8:12], "big")
    data[position : position + 8] = (7).to_bytes(8, "big")
    file.write_bytes(data)
    assert {(kind, replicas) for kind, replicas, _, _ in told(answer(directories))} == {
        (DifferenceKind.CORRUPT_COPY, (0,))
    }


def test_the_keys_of_a_batch_with_a_wrong_epoch_are_nobodys(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        "0: a=1(leader=1) b=1(leader=9) c=1(leader=1)\n3: d=1(leader=2)",
        "0: a=1(leader=1) c=1@2(leader=1)\n3: d=1(leader=2)",
    )
    assert [(kind, replicas) for kind, replicas, _, _ in told(found)] == [(DifferenceKind.CORRUPT_COPY, (0,))]


TIME = 1_704_099_600_000


def wrapped(magic: int, *records: tuple[int, bytes, bytes]) -> bytes:
    """Return a compressed old message with some records."""
    first, last = records[0][0], records[-1][0]
    inner = b"".join(
        legacy_entry(offset - (first if magic else 0), key, value, magic=magic, timestamp=TIME)
        for offset, key, value in records
    )
    value = compress(Codec.GZIP, inner, magic=magic)
    return legacy_entry(last, None, value, magic=magic, attributes=Codec.GZIP, timestamp=TIME)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("is_cleaned", [False, True], ids=["others-cleaned", "rotten-one-cleaned"])
@pytest.mark.parametrize("is_rotten", [False, True], ids=["sound", "rotten"])
def test_rot_in_old_messages_is_seen_whatever_was_cleaned_of_them(
    magic: int, is_cleaned: bool, is_rotten: bool, tmp_path: Path
) -> None:
    """A cleaner gives a compressed old message the offset of the last record that it keeps."""
    directories = written(tmp_path, *["0: a=1"] * 3)
    for number, directory in enumerate(directories):
        records = [(0, b"a", b"rot" if is_rotten and number == 0 else b"1"), (1, b"b", b"1"), (2, b"c", b"1")]
        kept = records[:2] if (number == 0) == is_cleaned else records
        shutil.rmtree(directory)
        directory.mkdir()
        (directory / log_name(0)).write_bytes(wrapped(magic, *kept) + wrapped(magic, (3, b"c", b"2")))
    expected = [(DifferenceKind.CONTENT_DIFFERS, (0,), Certainty.LIKELY, (0,))] if is_rotten else []
    assert told(answer(directories)) == expected
