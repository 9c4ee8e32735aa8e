"""Damage anywhere in a log: every record of every intact batch is read, and none is invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kcompact.format.batch import Batch, Record, parse_batches, read_records
from kcompact.log.files import LogFile
from kcompact.log.past_damage import Unreadable, readable_batches
from tests.support import strategies

END_OFFSET = 1 << 20


@st.composite
def damages(draw: Any, data: bytes) -> tuple[bytes, range]:
    """Bytes with some of them changed, in one place, and which of them were changed."""
    start = draw(st.integers(0, len(data) - 1))
    kind = draw(st.sampled_from(["flip", "flip", "noise", "zeros", "cut"]))
    if kind == "flip":
        damaged = bytearray(data)
        damaged[start] ^= 1 << draw(st.integers(0, 7))
        return bytes(damaged), range(start, start + 1)
    if kind == "cut":
        return data[:start], range(start, len(data))
    end = min(len(data), start + draw(st.integers(1, 300)))
    filler = draw(st.binary(min_size=end - start, max_size=end - start)) if kind == "noise" else bytes(end - start)
    return data[:start] + filler + data[end:], range(start, end)


def records_of(batch: Batch) -> list[Record]:
    return read_records(batch, file="")


@given(st.data())
def test_what_is_intact_is_read_and_nothing_else(tmp_path_factory: Any, data: Any) -> None:
    fresh = data.draw(st.booleans())
    batches, offset = [], 0
    for _ in range(data.draw(st.integers(1, 8))):
        batches.append(data.draw(strategies.batches(base_offset=offset, fresh=fresh)))
        offset = strategies.end_of(batches[-1])
    whole = b"".join(batches)
    damaged, changed = data.draw(damages(whole))
    path: Path = tmp_path_factory.mktemp("log") / "00000000000000000000.log"
    path.write_bytes(damaged)

    found = list(readable_batches(LogFile.at(path), end_offset=offset))

    written = list(parse_batches(whole, file=""))
    intact = {
        each.position
        for each in written
        if damaged[each.position : each.position + each.header.size_bytes] == bytes(each.data)
    }
    read = {each.position: each for each in found if isinstance(each, Batch)}
    by_position = {each.position: each for each in written}
    touched = [each for each in written if each.position not in intact]
    assert read.keys() <= by_position.keys(), "a batch was invented"
    assert intact <= read.keys() or only_offsets_changed(touched, changed, fresh=fresh)
    for position in read.keys() & intact:
        assert records_of(read[position]) == records_of(by_position[position])
    for position in read.keys() - intact:
        assert only_offsets_changed([by_position[position]], changed, fresh=fresh)
    # Every byte is in exactly one part.
    end = 0
    for part in found:
        assert part.position == end
        end = part.end_position if isinstance(part, Unreadable) else part.position + part.header.size_bytes
    assert end == len(damaged)


def only_offsets_changed(touched: list[Batch], changed: range, *, fresh: bool) -> bool:
    """Return whether only bytes were changed that no checksum covers: the leader epoch; the offset of a cleaned log."""
    allowed = range(12, 16) if fresh else {*range(8), *range(12, 16)}
    return all(
        at - each.position in allowed
        for each in touched
        for at in changed
        if each.position <= at < each.position + each.header.size_bytes
    )
