"""Random logs whose records are known while they are made, and a plain count of them with dicts.

The count shares no code with kcompact: what each record is comes from the maker, not from the bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kcompact.format.batch import Record, build, empty, parse_batches, read_records, rebuild
from kcompact.format.codec import Codec, compress
from kcompact.format.index import AbortedTxn
from kcompact.plan.clean_plan import CleanPlan
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.mutants import legacy_entry

NOW = DEFAULT_TIME + 100 * 86_400_000
HORIZONS = (None, NOW - 1, NOW, NOW + 1)
KEYS = (None, b"", b"a", b"b", b"user:1", b"user:2", b"user:1:x", b"order:7", b"\xff\x00")


@dataclass(slots=True)
class Known:
    """A record, the base offset of its segment, its encoded bytes, and `fate`: data, control, aborted or open."""

    segment: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    size_bytes: int
    fate: str = "data"
    horizon: int | None = None


class KeyLog(NamedTuple):
    """A log as a value, its records in order, and the sizes of its empty batches."""

    spec: LogSpec
    records: list[Known]
    empty_bytes: list[int]


@dataclass(slots=True)
class _Maker:
    chance: random.Random
    offset: int
    segment: int = 0
    known: list[Known] = field(default_factory=list)
    empty_bytes: list[int] = field(default_factory=list)
    open: dict[int, list[Known]] = field(default_factory=dict)
    aborted: list[AbortedTxn] = field(default_factory=list)
    is_modern: bool = False

    def records(self, most: int = 5) -> list[Record]:
        found = []
        for _ in range(self.chance.randint(1, most)):
            self.offset += self.chance.choice((0, 0, 0, 2))
            timestamp = self.chance.choice((NOW - self.chance.randrange(4 * 10**10), NOW, NOW + 5, -1, 0))
            value = self.chance.choice((None, b"", b"v" * self.chance.randrange(200)))
            headers = self.chance.choice(((), (), ((b"h", b"x"), (b"n", None))))
            found.append(Record(self.offset, timestamp, self.chance.choice(KEYS), value, headers))
            self.offset += 1
        return found

    def batch(self) -> bytes:
        kind = self.chance.choice(("plain",) * 5 + ("transaction",) * 3 + ("marker",) * 2 + ("empty", "legacy"))
        if kind == "marker" and self.open:
            return self.marker()
        if kind == "legacy" and not self.is_modern:
            return self.legacy()
        if kind == "empty":
            return self.empty()
        producer = self.chance.choice((1, 2, 3)) if kind == "transaction" else -1
        return self.data(producer)

    def data(self, producer: int) -> bytes:
        records = self.records()
        options: dict[str, Any] = {"log_append_time": self.chance.random() < 0.2}
        if producer >= 0:
            options |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        data = build(records, codec=self.chance.choice(list(Codec)), **options)
        header = next(iter(parse_batches(data, file=""))).header
        horizon = self.chance.choice(HORIZONS)
        base_timestamp = records[0].timestamp if horizon is None else horizon
        known = [
            Known(
                self.segment, one.offset, one.key, one.value,
                header.max_timestamp if header.is_log_append_time else one.timestamp,
                encoded_bytes(one, records[0].offset, base_timestamp), horizon=horizon,
            )
            for one in records
        ]  # fmt: skip
        self.known += known
        if producer >= 0:
            self.open.setdefault(producer, []).extend(known)
        return data if horizon is None else rebuild(header, records, delete_horizon_ms=horizon)

    def marker(self) -> bytes:
        producer = self.chance.choice(list(self.open))
        aborts = self.chance.random() < 0.5
        marker = Record(self.offset, NOW, bytes([0, 0, 0, not aborts]), bytes(6))
        self.offset += 1
        self.known.append(
            Known(
                self.segment, marker.offset, marker.key, marker.value, NOW,
                encoded_bytes(marker, marker.offset, NOW), "control",
            )
        )  # fmt: skip
        of_transaction = self.open.pop(producer)
        if aborts:
            for each in of_transaction:
                each.fate = "aborted"
            first = of_transaction[0].offset
            self.aborted.append(
                AbortedTxn(
                    producer_id=producer, first_offset=first, last_offset=marker.offset, last_stable_offset=first
                )
            )
        return build([marker], producer_id=producer, producer_epoch=0, transactional=True, control=True)

    def empty(self) -> bytes:
        data = build(self.records(2))
        found = empty(next(iter(parse_batches(data, file=""))).header)
        self.empty_bytes.append(len(found))
        return found

    def legacy(self) -> bytes:
        magic, codec = self.chance.choice((0, 1)), self.chance.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY))
        records = [one._replace(headers=()) for one in self.records(1 if codec is Codec.NONE else 4)]
        times = [-1 if magic == 0 else one.timestamp for one in records]
        first, last = records[0].offset, records[-1].offset
        base = first if magic == 1 and codec is not Codec.NONE else 0
        entries = [
            legacy_entry(one.offset - base, one.key, one.value, magic=magic, timestamp=time)
            for one, time in zip(records, times, strict=True)
        ]
        for one, time, entry in zip(records, times, entries, strict=True):
            self.known.append(Known(self.segment, one.offset, one.key, one.value, time, len(entry)))
        if codec is Codec.NONE:
            return entries[0]
        value = compress(codec, b"".join(entries), magic=magic)
        return legacy_entry(last, None, value, magic=magic, attributes=codec, timestamp=max(times))


def random_log(seed: int, *, name: str = "orders-0", modern: bool = False) -> KeyLog:
    """Return a random log; `modern` without batches of magic 0 and 1."""
    chance = random.Random(seed)
    maker = _Maker(chance, chance.choice((0, 0, 5, 2**33)), is_modern=modern)
    first = maker.offset
    segments, aborted = [], {}
    for _ in range(chance.randint(1, 4)):
        maker.segment = maker.offset
        batches = tuple(maker.batch() for _ in range(chance.choice((0, 1, 3, 6))))
        if not batches:
            maker.offset += 1
        segments.append(SegmentSpec(base_offset=maker.segment, batches=batches))
        if maker.aborted:
            aborted[maker.segment] = tuple(maker.aborted)
            maker.aborted.clear()
    for known in maker.open.values():
        for each in known:
            each.fate = "open"
    spec = LogSpec(
        name=name,
        segments=tuple(segments),
        now_ms=NOW,
        settings={"min.cleanable.dirty.ratio": "0", "index.interval.bytes": chance.choice(("0", "200"))},
        checkpoint=None if chance.random() < 0.5 else chance.randint(first, segments[-1].base_offset),
        # A broker without a snapshot has no producers; a lone copy is replayed.
        lone=True,
        aborted=aborted if chance.random() < 0.9 else {},
    )
    return KeyLog(spec, maker.known, maker.empty_bytes)


def encoded_bytes(record: Record, base_offset: int, base_timestamp: int) -> int:
    """Return the size of a record of format 2."""

    def number(value: int) -> int:
        return max(1, -(-((value << 1 ^ value >> 63).bit_length()) // 7))

    def data(content: bytes | None) -> int:
        return 1 if content is None else number(len(content)) + len(content)

    body = 1 + number(record.timestamp - base_timestamp) + number(record.offset - base_offset)
    body += data(record.key) + data(record.value) + number(len(record.headers))
    body += sum(data(name) + data(content) for name, content in record.headers)
    return number(body) + body


class Plain(NamedTuple):
    """What a count should find: records and bytes by segment and class; and the records of each key, in order."""

    classes: Counter[tuple[int, str]]
    class_bytes: Counter[tuple[int, str]]
    keys: dict[bytes, list[Known]]


def end_of_view(log: KeyLog, plan: CleanPlan) -> int:
    """Return the last stable offset, or the first of the batch in which it lies: a reader gets whole batches."""
    for segment in log.spec.segments:
        for batch in parse_batches(segment.data, file=""):
            records = read_records(batch, file="")
            if records and batch.header.last_offset >= plan.last_stable_offset > records[0].offset:
                return max(records[0].offset, plan.log.log_start_offset)
    return plan.last_stable_offset


def plain_count(records: Sequence[Known], *, start_offset: int, stable_offset: int) -> Plain:
    """Count records with dicts."""
    keys: dict[bytes, list[Known]] = {}
    of_record = []
    for each in records:
        name = each.fate
        if each.offset >= stable_offset:
            name = "undecided_records"
        elif each.offset < start_offset:
            name = "below_start_records"
        elif each.fate in ("control", "aborted"):
            name = f"{each.fate}_records"
        elif each.key is None:
            name = "null_key_records"
        else:
            keys.setdefault(each.key, []).append(each)
            continue
        of_record.append((each, name))
    for versions in keys.values():
        of_record += [(each, "superseded_records") for each in versions[:-1]]
        newest = versions[-1]
        name = "live_keys"
        if newest.value is None:
            name = "unstamped_tombstones"
            if newest.horizon is not None:
                name = "waiting_tombstones" if newest.horizon > NOW else "expired_tombstones"
        of_record.append((newest, name))
    classes, class_bytes = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for each, name in of_record:
        classes[each.segment, name] += 1
        class_bytes[each.segment, name] += each.size_bytes
    return Plain(classes, class_bytes, keys)
