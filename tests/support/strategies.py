"""Random batches, logs and settings, for hypothesis.

Values, not directories: `log_writer.write` makes the directory of a log.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kcompact.format import batch as batch_format
from kcompact.format.batch import CODEC_MASK, LOG_APPEND_TIME_BIT, Header, Record, parse_batches
from kcompact.format.codec import Codec
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.release import RELEASES
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec

HOUR = 3_600_000
NOW = DEFAULT_TIME + 10 * HOUR
SMALL_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])
MANY_KEYS = st.binary(max_size=3)

codecs = st.sampled_from(list(Codec))
timestamps = st.one_of(st.just(-1), st.integers(DEFAULT_TIME - 50 * HOUR, NOW), st.integers(0, 2**62))
near_timestamps = st.one_of(
    st.just(DEFAULT_TIME),
    st.integers(DEFAULT_TIME, DEFAULT_TIME + 9 * HOUR),
    st.sampled_from([-1, DEFAULT_TIME - HOUR]),
)
header_lists = st.lists(
    st.tuples(st.text(max_size=4).map(str.encode), st.none() | st.binary(max_size=4)), max_size=2
).map(tuple)
values = st.none() | st.binary(max_size=12) | st.just(b"long value " * 12)


@st.composite
def records(
    draw: st.DrawFn,
    *,
    base_offset: int = 0,
    max_count: int = 6,
    keys: st.SearchStrategy[bytes | None] = MANY_KEYS,
    times: st.SearchStrategy[int] = near_timestamps,
    gaps: bool = True,
) -> list[Record]:
    """Records with rising offsets, the first at `base_offset` or, with gaps, somewhat above."""
    found = []
    offset = base_offset
    for _ in range(draw(st.integers(1, max_count))):
        if gaps:
            offset += draw(st.sampled_from([0, 0, 0, 1, 7]))
        found.append(Record(offset, draw(times), draw(keys), draw(values), draw(header_lists)))
        offset += 1
    return found


@st.composite
def headers(draw: st.DrawFn, *, base_offset: int, last_offset: int) -> Header:
    """The header of a batch that may have been cleaned before: what its records decide is not filled in."""
    has_producer = draw(st.sampled_from([False, False, True]))
    return Header(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=draw(codecs) | (LOG_APPEND_TIME_BIT if draw(st.sampled_from([False, False, False, True])) else 0),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=-1,
        max_timestamp=draw(near_timestamps),
        producer_id=draw(st.integers(0, 3)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, 1)) if has_producer else -1,
        base_sequence=draw(st.sampled_from([0, 5, 2**31 - 2])) if has_producer else -1,
        records_count=0,
    )


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    base_offset: int = 0,
    keys: st.SearchStrategy[bytes | None] = MANY_KEYS,
    fresh: bool = False,
) -> bytes:
    """A batch as a producer or, unless `fresh`, an earlier cleaning may have left it."""
    kept: list[Record] = draw(records(base_offset=base_offset, keys=keys, gaps=not fresh))
    last_offset = kept[-1].offset + (0 if fresh else draw(st.sampled_from([0, 0, 2])))
    if fresh:
        base_offset = kept[0].offset
    header = draw(headers(base_offset=base_offset, last_offset=last_offset))
    if not fresh and draw(st.integers(0, 9)) == 0:
        return batch_format.empty(header)
    horizon = None
    if not fresh and draw(st.booleans()):
        horizon = NOW + draw(st.sampled_from([-HOUR, -1, 0, 1, HOUR]))
    return batch_format.rebuild(header, kept, delete_horizon_ms=horizon)


@st.composite
def segments(
    draw: st.DrawFn,
    *,
    base_offset: int = 0,
    keys: st.SearchStrategy[bytes | None] = MANY_KEYS,
    fresh: bool = False,
    max_segments: int = 6,
) -> tuple[SegmentSpec, ...]:
    """Segments with rising bases, some of them empty; the last one is the active one."""
    found = []
    offset = base_offset
    for _ in range(draw(st.integers(1, max_segments))):
        segment_base, own = offset, []
        for _ in range(draw(st.sampled_from([0, 1, 2, 3, 5]))):
            own.append(draw(batches(base_offset=offset, keys=keys, fresh=fresh)))
            offset = end_of(own[-1])
        if not own:
            offset += 1
        elif not fresh:
            offset += draw(st.sampled_from([0, 0, 0, 3]))
        found.append(SegmentSpec(base_offset=segment_base, batches=tuple(own)))
    return tuple(found)


def end_of(data: bytes) -> int:
    """Return the next offset of the last batch."""
    return max(one.header.next_offset for one in parse_batches(data, file=""))


settings = st.fixed_dictionaries(
    {
        "delete.retention.ms": st.sampled_from(["0", "1", str(HOUR), str(2**63 - 1)]),
        "segment.bytes": st.sampled_from(["300", "700", "1500", "1000000"]),
        "index.interval.bytes": st.sampled_from(["0", "100", "4096"]),
        "min.compaction.lag.ms": st.sampled_from(["0", "0", "0", str(HOUR), str(8 * HOUR)]),
        "min.cleanable.dirty.ratio": st.just("0"),
    }
)


@st.composite
def logs(draw: st.DrawFn, *, lawful: bool = False) -> LogSpec:
    """A log in any state; `lawful`: one that no cleaning has seen, so that its view is all there."""
    keys: Any = draw(st.sampled_from([SMALL_KEYS, MANY_KEYS, st.none() | SMALL_KEYS]))
    base_offset = draw(st.sampled_from([0, 0, 5, 2**33]))
    found: tuple[SegmentSpec, ...] = draw(segments(base_offset=base_offset, keys=keys, fresh=lawful))
    end_offset = max([found[-1].base_offset, *map(end_of, filter(None, [found[-1].data]))])
    surroundings = draw(st.sampled_from(["lone", "plain", "snapshot", "old snapshot"]))
    start: int | None = None
    if surroundings != "lone" and not lawful:
        start = draw(st.none() | st.integers(base_offset, found[-1].base_offset))
    snapshots = {}
    if surroundings == "snapshot" and end_offset > max(base_offset, start or 0):
        snapshots = {end_offset: draw(producer_entries(found))}
    elif surroundings == "old snapshot":
        snapshots = {base_offset: ()}  # of no use: a broker would replay from the log start
    checkpoint = st.none() | st.integers(max(0, base_offset - 2), end_offset + 2)
    high_watermark = st.none() | st.none() | st.integers(base_offset, end_offset)
    return LogSpec(
        segments=found,
        now_ms=NOW,
        settings=draw(settings),
        checkpoint=None if lawful or surroundings == "lone" else draw(checkpoint),
        start=start,
        high_watermark=None if surroundings == "lone" else draw(high_watermark),
        snapshots=snapshots,
        lone=surroundings == "lone",
        release=draw(st.sampled_from(list(RELEASES.values()))),
    )


@st.composite
def producer_entries(draw: st.DrawFn, found: tuple[SegmentSpec, ...]) -> tuple[ProducerEntry, ...]:
    """Entries that a snapshot at the log end may have: the last data of each producer, some of them expired."""
    last: dict[int, Header] = {}
    for segment in found:
        for one in parse_batches(segment.data, file=""):
            if one.header.has_producer_id:
                last[one.header.producer_id] = one.header
    return tuple(
        ProducerEntry(
            producer_id=producer_id,
            producer_epoch=header.producer_epoch,
            last_sequence=header.last_sequence,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp=NOW - draw(st.sampled_from([0, 86_400_000 - 1, 86_400_000])),
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        )
        for producer_id, header in last.items()
    )


def with_codec(header: Header, codec: Codec) -> Header:
    """Return the header with another codec in its attributes."""
    return header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
