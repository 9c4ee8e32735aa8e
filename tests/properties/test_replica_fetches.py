"""Where a replica begins to fetch, and what it then has of a cleaned log, as Kafka's own code has it.

`tests.support.simulated_fetches` is written from Kafka's source, and knows nothing of `plan.replicas`.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.round import clean_log_dir
from kcompact.format.batch import Record, build, parse_batches, read_records, rebuild
from kcompact.format.checkpoint import EpochEntry
from kcompact.plan.options import PlanOptions
from kcompact.plan.replicas import Epochs, Replicas, truncated_to
from tests.support import log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.mutants import legacy_entry
from tests.support.simulated_fetches import EpochCache, FetchedLog, StuckError, begin, elect, fetch_all, load

HORIZON = DEFAULT_TIME - 3_600_000
FUTURE = f"orders-0.{'0123456789abcdef' * 2}-future"
ENDS = st.integers(0, 12)


@st.composite
def any_epochs(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Epochs with their starts, both ascending, some of them far above the end of a log."""
    count = draw(st.integers(0, 4))
    epochs = sorted(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count, unique=True)))
    starts = sorted(draw(st.lists(st.integers(0, 14), min_size=count, max_size=count, unique=True)))
    return tuple(zip(epochs, starts, strict=True))


def epochs_of(entries: Sequence[tuple[int, int]]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch=epoch, start_offset=start) for epoch, start in entries)


def began_at(leader: FetchedLog, follower: FetchedLog, *, is_future: bool) -> int:
    """Return where a follower begins to fetch: a future replica the lower of where with a follower, with a leader."""
    return min(
        begin(copy.deepcopy(follower), each, is_future=is_future) for each in leaders(leader, is_future=is_future)
    )


def leaders(log: FetchedLog, *, is_future: bool) -> list[FetchedLog]:
    """Return a log as a replica may fetch from it: the log of a leader; of a follower too if it is a future replica."""
    elected = copy.deepcopy(log)
    elect(elected)
    return [log, elected] if is_future else [elected]


@settings(max_examples=500)  # They are quick: no files.
@given(any_epochs(), ENDS, any_epochs(), ENDS, ENDS, st.booleans())
def test_a_replica_is_truncated_as_kafka_does(
    own: tuple[tuple[int, int], ...],
    own_end: int,
    its: tuple[tuple[int, int], ...],
    its_end: int,
    high_watermark: int,
    is_future: bool,
) -> None:
    own, its = (tuple(each for each in one if each[1] < end) for one, end in ((own, own_end), (its, its_end)))
    leader = FetchedLog(end=own_end, epochs=EpochCache(own))
    follower = FetchedLog(end=its_end, high_watermark=min(high_watermark, its_end), epochs=EpochCache(its))
    offset, _ = truncated_to(
        Epochs(epochs_of(own), own_end),
        Epochs(epochs_of(its), its_end),
        follower.high_watermark,
        is_future=is_future,
    )
    assert min(offset, own_end) == began_at(leader, follower, is_future=is_future)


class Pair(NamedTuple):
    """The logs of two replicas, of which the second one fetches. `unindexed`: its first segment lacks an `.index`."""

    own: LogSpec
    its: LogSpec
    is_future: bool
    unindexed: bool

    def write(self, scratch: Path) -> tuple[Path, Path]:
        """Write both; return their directories."""
        own, its = log_writer.write(self.own, scratch / "own"), log_writer.write(self.its, scratch / "its")
        if self.unindexed:
            (its / f"{self.its.segments[0].base_offset:020d}.index").unlink()
        return own, its.rename(its.with_name(FUTURE)) if self.is_future else its


class _Batch(NamedTuple):
    """Records of one batch: keys and values, the first offset, the leader epoch; `magic` 1 for an old batch."""

    pairs: tuple[tuple[bytes, bytes | None], ...]
    base: int
    epoch: int
    magic: int = 2

    @property
    def end(self) -> int:
        return self.base + len(self.pairs)

    def built(self) -> bytes:
        """Return the bytes. The delete horizon of tombstones has passed."""
        if self.magic < 2:
            ((key, value),) = self.pairs
            return legacy_entry(self.base, key, value, magic=1, timestamp=DEFAULT_TIME)
        records = [Record(self.base + at, DEFAULT_TIME, key, value) for at, (key, value) in enumerate(self.pairs)]
        (batch,) = parse_batches(build(records, partition_leader_epoch=self.epoch), file="")
        has_tombstone = any(value is None for _, value in self.pairs)
        return rebuild(batch.header, records, delete_horizon_ms=HORIZON if has_tombstone else None)


@st.composite
def _batches(draw: st.DrawFn, *, base: int, epoch: int, count: int, value: bytes) -> list[_Batch]:
    """Batches from an offset and an epoch on. The value of each record is its own: `value` and the offset."""
    found: list[_Batch] = []
    for _ in range(count):
        epoch += draw(st.sampled_from([0, 0, 0, 1, 2]))
        keys = draw(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=2))
        pairs = tuple((key, draw(st.sampled_from([None, value + b"%d" % (base + at)]))) for at, key in enumerate(keys))
        found.append(_Batch(pairs, base, epoch))
        base = found[-1].end
    return found


def _in_segments(draw: st.DrawFn, batches: Sequence[_Batch]) -> tuple[SegmentSpec, ...]:
    """Divide batches into segments. The last one, the active segment, can be empty."""
    starts = [0, *(sorted(draw(st.sets(st.integers(1, len(batches)), max_size=2))) if batches else [])]
    return tuple(
        SegmentSpec(
            base_offset=batches[start - 1].end if start else 0,
            batches=tuple(each.built() for each in batches[start:end]),
        )
        for start, end in zip_longest(starts, starts[1:])
    )


def _starts(batches: Sequence[_Batch]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for batch in batches:
        starts = starts if batch.magic == 2 else {}
        if batch.magic == 2:
            starts.setdefault(batch.epoch, batch.base)
    return starts


@st.composite
def _file_of_epochs(draw: st.DrawFn, batches: Sequence[_Batch], end: int) -> tuple[EpochEntry, ...] | None:
    """The entries of the file: as the batches have them or only a part, also above the log end; None for no file."""
    starts = list(_starts(batches).items())
    kind = draw(st.sampled_from(["whole", "whole", "whole", "first", "last", "none", "empty"]))
    if kind == "none":
        return None
    kept = {"whole": starts, "first": starts[:1], "last": starts[-1:], "empty": []}[kind]
    newest = kept[-1] if kept else (0, -1)
    if draw(st.integers(0, 3)) == 0:  # A leader has begun an epoch, and written nothing.
        kept = [*kept, (newest[0] + 1, max(newest[1] + 1, end + draw(st.sampled_from([0, 0, 2]))))]
    return epochs_of(kept)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A log that nobody has cleaned, and a replica of its first part, maybe with records of another leader behind."""
    truth = draw(_batches(base=0, epoch=draw(st.integers(0, 2)), count=draw(st.integers(3, 9)), value=b"v"))
    shared = draw(st.integers(0, len(truth)))
    copied = [each for each in truth[:shared] if draw(st.integers(0, 9))]  # The leader of that time has cleaned some.
    base, epoch = (copied[-1].end, copied[-1].epoch) if copied else (0, 0)
    if draw(st.integers(0, 4)) == 0:
        copied += draw(_batches(base=base, epoch=epoch, count=draw(st.integers(1, 4)), value=b"w"))
    if draw(st.integers(0, 5)) == 0:
        copied = [each._replace(magic=1) if len(each.pairs) == 1 else each for each in copied]
    end = copied[-1].end if copied else 0
    own_end = truth[-1].end
    own = LogSpec(segments=_in_segments(draw, truth), high_watermark=own_end, recovery_point=own_end)
    start = draw(st.sampled_from([None, None, None, draw(st.integers(0, end))]))
    watermark = draw(st.sampled_from([None, draw(st.integers(0, end)), *(each.end for each in copied)]))
    its = LogSpec(
        segments=_in_segments(draw, copied),
        start=start,
        high_watermark=watermark,
        recovery_point=draw(st.sampled_from([None, draw(st.integers(0, end))])),
        unclean=draw(st.integers(0, 5)) == 0,
        lone=draw(st.integers(0, 5)) == 0,
    )
    own = _with_epochs(own, draw(_file_of_epochs(truth, own_end)))
    its = _with_epochs(its, draw(_file_of_epochs(copied, end)))
    return Pair(own, its, draw(st.booleans()), draw(st.integers(0, 5)) == 0)


def _with_epochs(spec: LogSpec, entries: tuple[EpochEntry, ...] | None) -> LogSpec:
    if entries == ():
        return replace(spec, files={"leader-epoch-checkpoint": b"0\n0\n"})
    return replace(spec, leader_epochs=entries or ())


@settings(max_examples=max(100, settings().max_examples))
@given(pairs())
def test_a_replica_fetches_from_where_kafka_does(pair: Pair) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        own, its = pair.write(Path(scratch))
        (replica,) = Replicas([its], [own]).of(own)
        leader, follower = load(own), load(its)
        assert replica.end_offset == follower.end
        assert replica.fetches_from_offset is not None
        expected = began_at(leader, follower, is_future=pair.is_future)
        assert min(replica.fetches_from_offset, leader.end) == expected


@pytest.mark.long
@settings(
    max_examples=max(100, settings().max_examples)
)  # Keys come back in about one of twenty if nothing is held back.
@given(pairs())
def test_after_the_cleaning_a_replica_gets_what_it_would_have_got_before(pair: Pair) -> None:
    end = SegmentSpec(base_offset=pair.own.high_watermark or 0)
    if pair.own.segments[-1].batches:  # All batches are to be cleaned.
        pair = pair._replace(own=replace(pair.own, segments=(*pair.own.segments, end)))
    with tempfile.TemporaryDirectory() as scratch:
        own, its = pair.write(Path(scratch))
        before, follower = load(own), load(its)
        clean_log_dir(
            own.parent,
            {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
            plan_options=PlanOptions(now_ms=DEFAULT_TIME, force=True, use_log_end=True, replicas=(its,)),
            options=CleanOptions(journal=None),
            engine="in-process",
        ).raise_failure()
        after = load(own)
        pairs_of_leaders = zip(
            leaders(before, is_future=pair.is_future), leaders(after, is_future=pair.is_future), strict=True
        )
        for uncleaned, cleaned in pairs_of_leaders:
            try:
                expected = _fetched(follower, uncleaned, is_future=pair.is_future)
                found = _fetched(follower, cleaned, is_future=pair.is_future)
            except StuckError:
                continue
            assert found == expected


def _fetched(follower: FetchedLog, leader: FetchedLog, *, is_future: bool) -> dict[bytes | None, bytes]:
    """Return the values by key that the follower serves when it has fetched all."""
    follower = copy.deepcopy(follower)
    fetch_all(follower, leader, is_future=is_future)
    newest: dict[bytes | None, bytes | None] = {}
    for fetched in follower.batches:
        (batch,) = parse_batches(fetched.data, file="")
        newest |= {record.key: record.value for record in read_records(batch, file="")}
    return {key: value for key, value in newest.items() if value is not None}
