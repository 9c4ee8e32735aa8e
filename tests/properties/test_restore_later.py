"""A log is cleaned, grows, is cleaned again, and is then restored: no deleted key comes back, also not later.

The cleanings in between stand for those of a broker. A consumer that shares no code with kcompact compares with a log
that is never cleaned.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.round import clean_log_dir
from kcompact.format.batch import Record, build
from kcompact.format.index import AbortedTxn, build_txn_index
from kcompact.format.names import txn_index_name
from kcompact.plan.options import PlanOptions
from tests.support import log_writer
from tests.support.command_line import digest, kcompact
from tests.support.consumer_view import view
from tests.support.log_writer import DEFAULT_TIME, LogSpec
from tests.support.parameters import few_examples

HOUR = 3_600_000
KEYS = "abcdefghijkl"
PRODUCERS = (7, 8)
SEGMENTS = 14
SETTINGS = {"cleanup.policy": "compact", "delete.retention.ms": str(HOUR), "min.cleanable.dirty.ratio": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment with the transactions that were aborted in it."""

    base_offset: int
    batches: tuple[bytes, ...]
    aborted: tuple[AbortedTxn, ...]


def history(dice: random.Random) -> list[Segment]:
    """Return the segments of a log with transactions and tombstones, in the order in which a broker writes them."""
    segments, offset = [], 0
    open_from: dict[int, int] = {}
    for _ in range(SEGMENTS):
        base, batches, aborted = offset, [], []
        for _ in range(dice.randint(1, 5)):
            producer = dice.choice((None, None, *PRODUCERS))
            at = DEFAULT_TIME + offset
            if producer in open_from and dice.random() < 0.6:
                first, is_abort = open_from.pop(producer), dice.random() < 0.5
                stable = min(open_from.values(), default=offset + 1)
                if is_abort:
                    aborted.append(
                        AbortedTxn(
                            producer_id=producer, first_offset=first, last_offset=offset, last_stable_offset=stable
                        )
                    )
                record = Record(offset, at, bytes([0, 0, 0, 0 if is_abort else 1]), bytes(6))
                batches.append(
                    build([record], producer_id=producer, producer_epoch=0, transactional=True, control=True)
                )
            else:
                if producer is not None:
                    open_from.setdefault(producer, offset)
                value = None if dice.random() < 0.35 else str(offset).encode()
                record = Record(offset, at, dice.choice(KEYS[: dice.choice((3, len(KEYS)))]).encode(), value)
                batches.append(
                    build([record])
                    if producer is None
                    else build(
                        [record], producer_id=producer, producer_epoch=0, base_sequence=offset, transactional=True
                    )
                )
            offset += 1
        segments.append(Segment(base_offset=base, batches=tuple(batches), aborted=tuple(aborted)))
    return segments


def write(directory: Path, segments: Sequence[Segment]) -> None:
    """Add segments to a partition directory; an existing one is written again, longer than it was."""
    for segment in segments:
        log_writer.write_segment(directory, segment.base_offset, segment.batches)
        if segment.aborted:
            (directory / txn_index_name(segment.base_offset)).write_bytes(build_txn_index(list(segment.aborted)))


@dataclass
class Logs:
    """A log that is cleaned, and the same log that is not. The last `left` segments are not written yet."""

    work: Path
    left: list[Segment]
    hours: int = 2

    @property
    def directory(self) -> Path:
        return self.work / "logs" / "orders-0"

    def grow(self, dice: random.Random, count: int) -> None:
        """Write the next segments, of the last one maybe only the first batch. It is continued the next time."""
        added, self.left = self.left[:count], self.left[count:]
        if added and len(added[-1].batches) > 1 and not added[-1].aborted and dice.random() < 0.5:
            self.left.insert(0, added[-1])
            added[-1] = replace(added[-1], batches=added[-1].batches[:1])
        for name in ("logs", "control"):
            write(self.work / name / "orders-0", added)

    def clean(self, dice: random.Random, kept: Path | None = None) -> None:
        """Clean with groups of another size each time; mostly so late that tombstones have expired."""
        self.hours += dice.choice((0, 2, 2))
        result = clean_log_dir(
            self.work / "logs",
            SETTINGS | {"internal.segment.bytes": str(dice.choice((150, 300, 600)))},
            plan_options=PlanOptions(now_ms=DEFAULT_TIME + self.hours * HOUR, force=True),
            options=CleanOptions(keep_replaced=kept),
            engine="in-process",
        )
        assert all(outcome.error is None for outcome in result.partitions), result

    def require_the_same(self, when: str) -> None:
        """Compare what a consumer of both logs ends with."""
        found, expected = (view(self.work / name, self.work / name / "orders-0") for name in ("logs", "control"))
        assert (found.latest, found.problem) == (expected.latest, ""), when
        assert found.records <= expected.records, when


@pytest.mark.long
@few_examples()
@given(st.integers(0, 2**32))
def test_no_deleted_key_comes_back(seed: int) -> None:
    dice = random.Random(seed)
    work = Path(tempfile.mkdtemp())
    try:
        logs = begun(work, dice)
        logs.clean(dice, work / "kept")
        for _ in range(dice.randint(0, 3)):
            logs.grow(dice, dice.randint(0, 2))
            if dice.random() < 0.5:
                logs.clean(dice)
        before = digest(work / "logs")
        ran = kcompact("restore", work / "kept")
        assert ran.code in (0, 4), ran
        assert ran.code == 0 or "restored-in-part" in ran.out or digest(work / "logs") == before
        for number in range(4):
            logs.require_the_same(f"after the restore ({ran.code}) and {number} cleanings")
            logs.grow(dice, 1)
            logs.clean(dice)
    finally:
        shutil.rmtree(work)


def begun(work: Path, dice: random.Random) -> Logs:
    """Write a log that may have been cleaned before."""
    logs = Logs(work, history(dice))
    for name in ("logs", "control"):
        log_writer.write(LogSpec(segments=(), lone=True, topic_id="QNLMCLnWRESZK_ap_Xld8w"), work / name)
    logs.grow(dice, dice.randint(4, 7))
    if dice.random() < 0.5:
        logs.clean(dice)
        logs.grow(dice, dice.randint(0, 2))
    return logs
