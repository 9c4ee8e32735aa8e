"""Histories of which it is known which replica is right: what is said of each, and what before its broker starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kcompact.format.names import log_name
from kcompact.questions.compare.before_start import Action, actions_before_start
from kcompact.questions.compare.findings import Certainty, DifferenceKind
from tests.support.replica_logs import answer, written

KEEP, DECIDE, MOVE = Action.KEEP, Action.DECIDE, Action.MOVE_AWAY
PROVEN, LIKELY, UNDECIDED = Certainty.PROVEN, Certainty.LIKELY, Certainty.UNDECIDED


@dataclass(frozen=True, kw_only=True)
class History:
    """The logs of the replicas, the segments of them with a rotten last byte, and what is right to say."""

    logs: tuple[str, ...]
    rotten: dict[int, int] = field(default_factory=dict)
    told: tuple[tuple[DifferenceKind, tuple[int, ...], Certainty, tuple[int, ...] | None], ...]
    """Kind, replicas, certainty, right."""
    actions: tuple[Action, ...]


ENDED = """0: k=1 z=1
2: [o=2@24]@24(pid=7 seq=2 txn) [commit@25]@25(pid=7) q=1@26
27:
snapshot 27: pid=7 epoch=0 seq=2 last=24 at=09:00"""
MISSED_ABORT = ENDED.replace("z=1\n", "z=1 [k=2@15]@15(pid=7 seq=0 txn)\n").replace("2: [o", "16: [o")
CLEANED = """0: k=1 z=1
2: q=1@26
27:
snapshot 27: pid=7 epoch=0 seq=0 last=15 at=09:00"""
WITHOUT_MARKER = CLEANED.replace("z=1\n", "z=1 [k=2@15]@15(pid=7 seq=0 txn)\n").replace("2: q", "16: q")
SINCE_10 = "log start=10\n0: p=1 s=1@11\n13: q=1@40"

NEW_LEADER = """log hw=12
0: x=1(leader=1) y=1(leader=1)
2: a=9@7(leader=3) b=1(leader=3)
9: c=1(leader=3)"""
"""It began epoch 3 at offset 2, and has cleaned its first records."""
COMMON = "0: x=1(leader=1) y=1(leader=1)"
TRANSACTION = """log hw=16
0: x=1(leader=1) [m=1](leader=1 pid=7 seq=0 txn)
2: a=9@7(leader=3) [commit@8]@8(leader=3 pid=7) b=1@9(leader=3)
10: c=1(leader=3)
11:
snapshot 11: pid=7 epoch=0 seq=0 last=1 at=09:00"""
OWN_MARKER = """log hw=2
0: x=1(leader=1) [m=1](leader=1 pid=7 seq=0 txn) [MARKER@2]@2(leader=2 pid=7)
3:
snapshot 3: pid=7 epoch=0 seq=0 last=1 at=09:00"""

HISTORIES = {
    # The last replica led in epoch 2 and crashed with a tail that nobody had fetched: its high watermark is 2.
    **{
        f"hidden-fork-{name}": History(
            logs=(NEW_LEADER, NEW_LEADER, f"log hw=2\n{COMMON} {tail}"), told=(), actions=(KEEP, KEEP, KEEP)
        )
        for name, tail in {
            "value": "x=2(leader=2)",
            "tombstone": "x=~(leader=2)",
            "keys": " ".join(f"k{number}=1(leader=2)" for number in range(5)),
        }.items()
    },
    **{
        f"hidden-fork-{marker}": History(
            logs=(TRANSACTION, OWN_MARKER.replace("MARKER", marker) + entry), told=(), actions=(KEEP, KEEP)
        )
        for marker, entry in {"commit": "", "abort": "\ntxnindex 0: pid=7 first=1 last=2 stable=3"}.items()
    },
    "the-fork-is-below-the-first-record-of-the-new-leader": History(
        logs=(NEW_LEADER, f"log hw=2\n{COMMON} x=2(leader=1) " + " ".join(f"k{each}=1(leader=1)" for each in range(5))),
        told=((DifferenceKind.UNREPLICATED_TAIL, (1,), PROVEN, None),),
        actions=(KEEP, KEEP),
    ),
    "the-common-epoch-was-cleaned-away": History(
        logs=(
            "log hw=12\n0: p=9@7(leader=1) q=1@8(leader=1)\n9: a=1(leader=1)",
            "log hw=3\n0: p=1(leader=0) p=2(leader=0) q=1(leader=0) "
            + " ".join(f"p={each}(leader=0)" for each in range(3, 7))
            + " q=2(leader=0)",
        ),
        told=((DifferenceKind.UNREPLICATED_TAIL, (1,), PROVEN, None),),
        actions=(KEEP, KEEP),
    ),
    # By its high watermark x=2 was committed. So a new leader without it has lost it.
    "a-committed-record-that-the-new-leader-lacks": History(
        logs=(NEW_LEADER, f"log hw=3\n{COMMON} x=2(leader=2)"),
        told=((DifferenceKind.STALE_VALUE, (0,), PROVEN, None),),
        actions=(MOVE, KEEP),
    ),
    # Replica 3 missed the ABORT at 16. The COMMIT at 25 of the same producer makes k=2 look committed there.
    "most-have-had-an-abort": History(
        logs=(ENDED, ENDED, ENDED, MISSED_ABORT),
        told=tuple((DifferenceKind.STALE_VALUE, (number,), UNDECIDED, None) for number in range(3)),
        actions=(DECIDE,) * 4,
    ),
    "most-have-a-committed-record": History(
        logs=(ENDED, MISSED_ABORT, MISSED_ABORT, MISSED_ABORT),
        told=((DifferenceKind.STALE_VALUE, (0,), LIKELY, None),),
        actions=(MOVE, KEEP, KEEP, KEEP),
    ),
    # k: a tombstone at 3, a value at 10, a tombstone at 15 that has expired.
    "deleted-twice-and-one-is-behind": History(
        logs=("0: p=1\n1: q=1@40", "0: p=1 k=~@3\n4: q=1@40", "0: p=1 k=~@3 k=2@10 z=1@12"),
        told=((DifferenceKind.BEHIND_WILL_RESURRECT, (2,), LIKELY, None),),
        actions=(DECIDE, DECIDE, MOVE),
    ),
    "deleted-twice-and-one-has-missed-it": History(
        logs=("0: p=1\n1: q=1@40", "0: p=1 k=~@3\n4: q=1@40", "0: p=1 k=~@3 k=2@10\n11: q=1@40"),
        told=((DifferenceKind.PRESENT_IN_ONE, (2,), LIKELY, None),),
        actions=(DECIDE, DECIDE, DECIDE),
    ),
    "a-value-lost-above-a-tombstone": History(
        logs=("0: k=~ a=1 k=2 q=1", "0: k=~ a=1 q=1@3"),
        told=((DifferenceKind.LOST_KEY, (1,), PROVEN, (0,)),),
        actions=(KEEP, MOVE),
    ),
    # The .txnindex was lost, so a cleaner took the data for committed, and dropped the ABORT marker.
    "aborted-data-without-a-marker": History(
        logs=(WITHOUT_MARKER, CLEANED, CLEANED),
        told=((DifferenceKind.ABORTED_SERVED, (0,), PROVEN, None),),
        actions=(MOVE, KEEP, KEEP),
    ),
    "aborted-data-below-the-log-start": History(
        logs=("log start=16\n" + WITHOUT_MARKER, CLEANED, CLEANED), told=(), actions=(KEEP, KEEP, KEEP)
    ),
    # Replica 1 is truncated at 3, and fetches k=3 of the newest line.
    "written-again-above-the-fork": History(
        logs=(
            "0: x=1(leader=1) k=1(leader=1) z=1(leader=1)\n3: k=3(leader=3) z=2(leader=3)",
            "0: x=1(leader=1)\n2: z=1(leader=1) k=2(leader=2) q=2(leader=2)",
        ),
        told=((DifferenceKind.DIVERGED_EPOCH, (1,), PROVEN, None),),
        actions=(KEEP, DECIDE),
    ),
    # Replica 2 has k in a batch that cannot be read: it does not count among those without k.
    "one-of-three-is-damaged": History(
        logs=("0: p=1\n2: q=1@40", "0: p=1 k=2\n2: q=1@40", "0: p=1\n1: k=2\n2: q=1@40"),
        rotten={2: 1},
        told=(
            (DifferenceKind.CORRUPT_COPY, (2,), PROVEN, None),
            (DifferenceKind.PRESENT_IN_ONE, (1,), UNDECIDED, None),
        ),
        actions=(DECIDE, DECIDE, MOVE),
    ),
    # Replicas 0 and 1 may have lost k together.
    "the-only-holder-is-behind": History(
        logs=("0: p=1 z=1@12\n13: q=1@40", "0: p=1 z=1@12\n13: q=1@40", "0: p=1 k=2 z=1@12"),
        told=((DifferenceKind.BEHIND_WILL_RESURRECT, (2,), LIKELY, None),),
        actions=(DECIDE, DECIDE, MOVE),
    ),
    # When replica 2 fetches, its log start becomes 10, so k at 5 is never served.
    "a-value-below-the-log-start-of-the-others": History(
        logs=(SINCE_10, SINCE_10.replace("s=1@11", "k=2@5 s=1@11 k=~@12"), "0: p=1 k=2@5 s=1@11"),
        told=(),
        actions=(KEEP, KEEP, KEEP),
    ),
    # Replica 2 has the value too, in a batch that cannot be read, and not the tombstone.
    "a-damaged-one-is-not-said-to-be-right": History(
        logs=("0: k=1 z=1\n2: q=1@40", "0: k=1 z=1 k=~@5\n6: q=1@40", "0: k=1\n1: z=1\n2: q=1@40"),
        rotten={2: 0},
        told=((DifferenceKind.CORRUPT_COPY, (2,), PROVEN, None), (DifferenceKind.RESURRECTED_KEY, (0,), PROVEN, (1,))),
        actions=(MOVE, KEEP, MOVE),
    ),
    # k5 is lacked by two, k50 by one: replica 2 ends below it.
    "each-key-has-its-own-majority": History(
        logs=("0: p=1\n2: z=1@29\n30: q=1@60", "0: p=1 k5=1@5 z=1@29 k50=1@50\n51: q=1@60", "0: p=1 z=1@29\n30:"),
        told=(
            (DifferenceKind.PRESENT_IN_ONE, (1,), LIKELY, None),
            (DifferenceKind.PRESENT_IN_ONE, (1,), UNDECIDED, None),
        ),
        actions=(DECIDE, DECIDE, DECIDE),
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history(name: str, tmp_path: Path) -> None:
    history = HISTORIES[name]
    directories = written(tmp_path, *history.logs)
    for number, base in history.rotten.items():
        file = directories[number] / log_name(base)
        data = bytearray(file.read_bytes())
        data[-1] ^= 0x10
        file.write_bytes(data)
    found = answer(directories)
    told = [each.finding for each in found.findings]
    assert [(each.kind, each.replicas, each.certainty, each.right) for each in told] == list(history.told)
    actions = [
        actions_before_start([found], each.parent, {found.topic_partition: each})[0].action for each in directories
    ]
    assert actions == list(history.actions)
