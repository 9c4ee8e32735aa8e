"""Small logs of every odd kind, from a seed: what to write, how to clean it, round after round.

    spec = odd_spec(7)          # a plain JSON value
    rounds = spec["rounds"]     # each: what to write, the clock, the configuration, checkpoints, high watermarks

Where `generate` makes large logs such as people have, this makes what they hardly ever have: record formats mixed
within a segment, offsets far apart, transactions that never end, an index with room for three entries. A spec is data:
what Kafka refuses to append is passed over (`lenient`), so any part of it can be taken out and the rest still
runs. Same seed, same spec.
"""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import crc32c

from kcompact.format.codec import Codec, compress
from tests.oracle.real_kafka import Json, append, clock, marker, record, roll, start_offset

START_MS = 1_600_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LONG_MAX = 2**63 - 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")
MARKER_LIKE_KEYS = (b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\1\0\1", b"\0\0\0\1\0")
ROOM_FOR_OLD_FORMATS = 4_000
NAMES = (["odd-0"], ["odd-0"], ["odd-0", "odd-1"], ["odd-0", "odd-1", "a.b-c-7"], ["a.b-c-7", "odd-3"])
RETENTIONS_MS = (0, 0, 1, 1_000, 1_000, HOUR_MS, DAY_MS, LONG_MAX, LONG_MAX - START_MS - 5_000)


def odd_spec(seed: int) -> Json:
    """Return the spec of one log directory, as it is written to `spec.json`."""
    rng = random.Random(f"odd {seed}")
    # Transactions go in several cleanings: a third of the logs is about nothing else.
    is_transactional = rng.random() < 0.35
    names = ["odd-0"] if is_transactional else rng.choice(NAMES)
    partitions = [WrittenPartition(rng, name, is_transactional=is_transactional) for name in names]
    now_ms = START_MS + rng.randrange(DAY_MS)
    config, topics = config_of(rng, is_eager=is_transactional), _topics(rng, partitions)
    expiration_ms = rng.choice([DAY_MS, DAY_MS, DAY_MS, HOUR_MS, 1_000, 1])
    # A broker cannot open an active segment whose index is larger than the configured size.
    index_changes = rng.random() < 0.4
    if not index_changes and any(min(partition.style.magics) < 2 for partition in partitions):
        config["segment.index.bytes"] = str(ROOM_FOR_OLD_FORMATS)
    rounds: list[Json] = []
    for number in range(rng.choice([2, 3, 4, 5, 6] if is_transactional else [1, 2, 2, 3, 3, 4])):
        if number and rng.random() < 0.2:
            index_bytes = config["segment.index.bytes"]
            config, topics = config_of(rng, is_eager=is_transactional), _topics(rng, partitions)
            if not index_changes:
                config["segment.index.bytes"] = index_bytes
        writes = []
        for partition in partitions:
            if number == 0 or rng.random() < 0.8:
                writes.append(partition.write(config, now_ms, is_first=number == 0, rolls=index_changes))
                now_ms = partition.now_ms
        cleaned_at = [settings["now_ms"] for settings in rounds]
        now_ms = rng.choice(moments(now_ms, cleaned_at, config, expiration_ms))
        rounds.append(
            {
                "writes": writes,
                "now_ms": now_ms,
                "config": config,
                "topics": topics,
                "checkpoints": {name: _share(rng) for name in names if rng.random() < 0.2},
                "high_watermarks": {name: _high_watermark(rng) for name in names if rng.random() < 0.1},
                "lost_snapshots": {name: rng.choice([1, 1, 2, 3, 99]) for name in names if rng.random() < 0.25},
                "full_group": rng.choice([None, None, None, [rng.randint(1, 4), rng.choice([-1, 0, 0])]]),
                "producer_id_expiration_ms": expiration_ms,
                "io_buffer_bytes": rng.choice([200, 1_000, 524_288]),
                "max_message_bytes": rng.choice([100, 1_000, 1_048_588]),
            }
        )
        if rng.random() < 0.3:
            now_ms += rng.choice([1, HOUR_MS, DAY_MS])
    return {"seed": seed, "rounds": rounds}


def written_config(config: dict[str, str]) -> dict[str, str]:
    """Return the configuration with which a log is written that is cleaned with this one."""
    return config | {
        "message.timestamp.after.max.ms": str(LONG_MAX),
        "preallocate": "false",
        "cleanup.policy": "delete",
        "max.message.bytes": "1000000",
    }


def moments(now_ms: int, cleaned_at: list[int], config: dict[str, str], expiration_ms: int) -> list[int]:
    """When to clean: soon, late, and just before, at and just after what becomes due."""
    moments = [now_ms, now_ms, now_ms + 1, now_ms + 1_000, now_ms + HOUR_MS, now_ms + 25 * HOUR_MS]
    retention_ms = int(config["delete.retention.ms"])
    due = [cleaned_ms + retention_ms for cleaned_ms in cleaned_at] * 3
    due += [now_ms + min(wait, DAY_MS) for wait in (expiration_ms, int(config["min.compaction.lag.ms"]), retention_ms)]
    moments += [moment for time_ms in due for moment in (time_ms - 1, time_ms, time_ms, time_ms, time_ms + 1)]
    return [moment for moment in moments if now_ms <= moment < now_ms + 3 * DAY_MS]


def _share(rng: random.Random) -> float | None:
    """Return a checkpoint as a share of the way from log start to log end; None removes the entry."""
    return rng.choice([None, 0.0, 1.0, -0.5, 1.5, rng.random(), rng.random(), rng.random()])


def _high_watermark(rng: random.Random) -> float | None:
    """Return the same for a high watermark, which kcompact refuses beyond the log end."""
    share = _share(rng)
    return share if share is None else min(share, 1.0)


def config_of(rng: random.Random, *, is_eager: bool) -> dict[str, str]:
    least_lag_ms = rng.choice([0] * 6 + [1, 1_000, HOUR_MS, LONG_MAX])
    most_lag_ms = rng.choice([LONG_MAX] * 5 + [1, 1_000, HOUR_MS, DAY_MS])
    config = {
        "cleanup.policy": rng.choice(["compact"] * 12 + ["compact,delete", "delete"]),
        "segment.bytes": str(rng.choice([250, 400, 700, 1_500, 4_000, 20_000, 1_000_000])),
        "segment.index.bytes": str(rng.choice([36, 48, 72, 120, 400, 4_000, 4_000, 100_000])),
        "index.interval.bytes": str(rng.choice([0, 0, 1, 90, 300, 1_000, 4_096, 4_096])),
        "delete.retention.ms": str(rng.choice(RETENTIONS_MS)),
        "min.cleanable.dirty.ratio": rng.choice(["0", "0", "0.001", "0.1", "0.5", "0.9", "1"]),
        "min.compaction.lag.ms": str(min(least_lag_ms, most_lag_ms)),
        "max.compaction.lag.ms": str(most_lag_ms),
        "max.message.bytes": str(rng.choice([100, 300, 1_000_000, 1_000_000])),
        "preallocate": rng.choice(["false"] * 9 + ["true"]),
    }
    if is_eager:
        config |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
        config["delete.retention.ms"] = str(rng.choice([0, 1, HOUR_MS, HOUR_MS, DAY_MS]))
    return config


def _topics(rng: random.Random, partitions: list[WrittenPartition]) -> dict[str, dict[str, str]]:
    """Settings of some topics alone."""
    chosen = {partition.topic for partition in partitions if rng.random() < 0.2}
    return {topic: {"min.cleanable.dirty.ratio": rng.choice(["0", "0.3"])} for topic in sorted(chosen)}


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool
    in_transaction: bool = False

    def take(self, count: int) -> list[int]:
        taken = [self.producer_id, self.epoch, self.sequence]
        self.sequence = (self.sequence + count) % 2**31
        return taken


class WrittenPartition:
    """One partition while it is being written: dice, clock, next offset, producers.

    The next offset is an upper bound: what Kafka refuses was counted.
    """

    def __init__(self, rng: random.Random, name: str, *, is_transactional: bool) -> None:
        self.rng = rng
        self.name = name
        self.topic, _, number = name.rpartition("-")
        self.number = int(number)
        self.now_ms = START_MS
        self.next_offset = 0
        self.leader_epoch = rng.choice([0, 0, 3])
        self.style = _Style(rng)
        if is_transactional:
            self.style.magics = rng.choice([(2,), (2,), (2,), (1, 2, 2, 2)])
            self.style.transactional = rng.choice([0.7, 1.0])
            self.style.keys = rng.choice([1, 3, 10])
        transaction_version = rng.choice([0, 2])
        self.transaction_version = transaction_version
        self.producers = [
            _Producer(
                producer_id=rng.choice([0, 1, 7, 2**40]) + number,
                epoch=rng.choice([0, 0, 5]),
                sequence=rng.choice([0, 0, 0, 2**31 - 3]),
                is_transactional=rng.random() < self.style.transactional,
            )
            for number in range(rng.choice([1, 2, 3] if is_transactional else [0, 0, 1, 2, 4]))
        ]

    def write(
        self, config: dict[str, str], now_ms: int, *, is_first: bool, rolls: bool, records: int | None = None
    ) -> Json:
        """Return one request to write: a few actions, on top of what is there."""
        self.now_ms = now_ms
        started_ms = now_ms
        records = records or int((600 if is_first else 150) ** self.rng.random())
        actions: list[Json] = []
        if is_first and self.rng.random() < 0.1:
            self.next_offset = self.rng.choice([1, 1_000, 2**31 - 20, 2**40])
        while records > 0:
            dice = self.rng.random()
            if dice < 0.07:
                actions.append(roll(now_ms=self.now_ms))
            elif dice < 0.09:
                actions.append(roll(now_ms=self.now_ms))
                self.next_offset += self.rng.choice(self.style.gaps)
            elif dice < 0.12:
                self.leader_epoch += 1
            elif dice < 0.12 + self.style.leaps and self.next_offset < 2**40:
                actions += self._to_the_limit_of_an_index()
            elif dice < 0.14:
                self.now_ms += self.rng.choice([1, 60_000, HOUR_MS, DAY_MS])
                actions.append(clock(self.now_ms))
            else:
                count = self.rng.randint(1, min(records, self.style.max_batch_records))
                records -= count
                actions += self._batch(count)
        if self.rng.random() < 0.7 or rolls:
            actions.append(roll(now_ms=self.now_ms))
        if self.rng.random() < 0.15:
            actions.append(start_offset(self.rng.randint(0, self.next_offset)))
        policy_of_writing = {}
        if self.rng.random() < self.style.append_time:
            policy_of_writing["message.timestamp.type"] = "LogAppendTime"
        return {
            "topic": self.topic,
            "partition": self.number,
            "now_ms": started_ms,
            "config": written_config(config) | policy_of_writing | self._index_room(config),
            "actions": actions,
        }

    def _index_room(self, config: dict[str, str]) -> dict[str, str]:
        """An append of several batches, as of old formats, may not fill an index half-way: Kafka breaks there."""
        room = int(config["segment.index.bytes"])
        return {"segment.index.bytes": str(max(room, ROOM_FOR_OLD_FORMATS))} if min(self.style.magics) < 2 else {}

    def _batch(self, count: int) -> list[Json]:
        self.now_ms += self.rng.choice([0, 1, 100, 10_000])
        producer = self.rng.choice([None, *self.producers])
        if producer is not None:
            return self._of_producer(producer, count)
        magic = self.rng.choice(self.style.magics)
        if magic < 2:
            return [self._legacy(count, magic)]
        dice = self.rng.random()
        if dice < self.style.raw:
            return [self._raw(count)]
        rows = [self._record() for _ in range(count)]
        fields: Json = {"leader_epoch": self.leader_epoch}
        if dice < self.style.raw + 0.15:
            fields["base_offset"] = self._skip()
            if self.rng.random() < 0.3:
                fields["append_time_ms"] = self._timestamp()
        self.next_offset += count
        return [append(rows, codec=self.rng.choice(self.style.codecs), now_ms=self.now_ms, **fields)]

    def _to_the_limit_of_an_index(self) -> list[Json]:
        """Write one record about 2^31 offsets after a round number, and begin a segment after it."""
        self.next_offset = (self.next_offset // 2**31 + 1) * 2**31 - self.rng.choice([0, 1, 2])
        offset = self.next_offset
        self.next_offset += 1
        at_limit = append([self._record()], base_offset=offset, leader_epoch=self.leader_epoch, now_ms=self.now_ms)
        return [at_limit, roll(now_ms=self.now_ms)]

    def _skip(self) -> int:
        """Leave a gap before the next batch, as a cleaning would have; return where the batch starts."""
        self.next_offset += self.rng.choice([0, 0, 1, 5, *self.style.gaps])
        return self.next_offset

    def _of_producer(self, producer: _Producer, count: int) -> list[Json]:
        actions: list[Json] = []
        dice = self.rng.random()
        if producer.is_transactional and dice < 0.12:
            actions.append(self._end(producer))  # an empty transaction, where none is open
        elif dice < 0.2:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        if not actions:
            rows = [self._record() for _ in range(count)]
            fields: Json = {"producer": producer.take(count), "leader_epoch": self.leader_epoch}
            if producer.is_transactional:
                fields["transactional"] = producer.in_transaction = True
            if self.rng.random() < 0.1:
                fields["base_offset"] = self._skip()
            self.next_offset += count
            actions.append(append(rows, codec=self.rng.choice(self.style.codecs), now_ms=self.now_ms, **fields))
        if producer.in_transaction and self.rng.random() < self.style.ends:
            actions.append(self._end(producer))
        return actions

    def end_transactions(self) -> list[Json]:
        """Return the markers of all open transactions."""
        return [self._end(producer) for producer in self.producers if producer.in_transaction]

    def _end(self, producer: _Producer) -> Json:
        if self.transaction_version == 2:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer.in_transaction = False
        self.next_offset += 1
        return marker(
            self.rng.choice(self.style.outcomes),
            producer.producer_id,
            producer.epoch,
            now_ms=self.now_ms,
            transaction_version=self.transaction_version,
            coordinator_epoch=self.rng.choice([0, 0, 4]),
            leader_epoch=self.leader_epoch,
        )

    def _legacy(self, count: int, magic: int) -> Json:
        """Records of format 0 or 1, without headers: as a follower receives them, or as a leader numbers them."""
        codec = self.rng.choice([codec for codec in self.style.codecs if codec != "zstd"] or ["none"])
        rows = [self._record()[:3] for _ in range(count)]
        fields: Json = {"magic": magic, "leader_epoch": self.leader_epoch}
        if magic == 1 and self.rng.random() < self.style.append_time:
            fields["append_time_ms"] = self._timestamp()
        if fields.get("append_time_ms") or self.rng.random() < 0.6:
            first = fields["base_offset"] = self._skip()
            for row in rows:
                self.next_offset += self.rng.choice([0, 0, 0, 2]) if self.style.inner_gaps else 0
                row += [[], self.next_offset]
                self.next_offset += 1
            if codec == "none":
                fields["base_offset"] = first
        else:
            self.next_offset += count
        return append(rows, codec=codec, now_ms=self.now_ms, **fields)

    def _raw(self, count: int) -> Json:
        """A sound batch that no Kafka client writes."""
        rng = self.rng
        base_offset = self._skip()
        offsets = []
        for _ in range(count):
            self.next_offset += rng.choice([0, 0, 1])
            offsets.append(self.next_offset)
            self.next_offset += 1
        self.next_offset += rng.choice([0, 0, 3])
        rows = []
        for offset in offsets:
            name, content = rng.choice([b"h", b"", b"\xff\xfe", b"a\xc3"]), rng.choice([None, b"", b"x"])
            headers = [(name, content)] if rng.random() < 0.5 else []
            timestamp = rng.randrange(-(2**40), -1) if rng.random() < self.style.negative else self._timestamp()
            rows.append((offset, timestamp, self._key(), self._value(), headers))
        shape = rng.random()
        horizons_ms = [-5, -1, 0, *(self.now_ms + ms for ms in (-1, 0, 1, HOUR_MS))]
        batch = encode_batch(
            rows if shape > 0.1 else [],
            base_offset=base_offset,
            last_offset=self.next_offset - 1,
            leader_epoch=self.leader_epoch,
            codec=Codec[rng.choice(self.style.codecs).upper()] if shape > 0.1 else Codec.NONE,
            control_type=rng.choice([2, 3, 4, 5, 6]) if 0.1 < shape < 0.15 else None,
            append_time_ms=self._timestamp() if rng.random() < self.style.append_time else None,
            horizon_ms=rng.choice(horizons_ms) if rng.random() < 0.15 else None,
            producer=rng.choice([(-1, -1, -1)] * 40 + [(90, 0, 0), (91, -1, 0), (92, 0, -1), (-2, 0, 0)]),
            is_transactional=rng.random() < 0.02,
            is_sloppy=rng.random() < 0.5,
        )
        return {
            "do": "append",
            "raw": base64.b64encode(batch).decode("ascii"),
            "leader_epoch": self.leader_epoch,
            "now_ms": self.now_ms,
        }

    def _record(self) -> list[Any]:
        headers = [("h", b"x"), ("ü", None), ("", b"")][: self.rng.randint(0, 3)]
        headers = headers if self.rng.random() < self.style.headers else []
        return record(self._timestamp(), self._key(), self._value(), headers)

    def _timestamp(self) -> int:
        kind = self.rng.choice(self.style.timestamps)
        if kind == "none":
            return -1
        if kind == "equal":
            return START_MS
        if kind == "huge":
            return self.rng.choice([2**62, LONG_MAX, self.now_ms + 10 * DAY_MS])
        if kind == "tiny":
            return self.rng.choice([0, 1])
        return self.now_ms - (self.rng.randint(0, 10 * HOUR_MS) if kind == "jitter" else 0)

    def _key(self) -> bytes | None:
        dice = self.rng.random()
        if dice < self.style.null_keys:
            return None
        if dice < self.style.null_keys + self.style.odd_keys:
            return self.rng.choice([b"", *MARKER_LIKE_KEYS])
        return b"k%d" % self.rng.randrange(self.style.keys)

    def _value(self) -> bytes | None:
        dice = self.rng.random()
        if dice < self.style.tombstones:
            return None
        if dice < self.style.tombstones + 0.1:
            return b""
        return self.rng.choice([b"v", self.rng.randbytes(self.rng.randint(1, 30)), b"ab" * 50])


@dataclass(slots=True)
class _Style:
    """What one partition is like; shares are of 1."""

    rng: random.Random
    keys: int = field(init=False)
    tombstones: float = field(init=False)
    null_keys: float = field(init=False)
    odd_keys: float = field(init=False)
    headers: float = field(init=False)
    raw: float = field(init=False)
    negative: float = field(init=False)
    append_time: float = field(init=False)
    transactional: float = field(init=False)
    ends: float = field(init=False)
    outcomes: tuple[str, ...] = ("commit", "commit", "abort")
    leaps: float = 0.005
    inner_gaps: bool = field(init=False)
    codecs: tuple[str, ...] = field(init=False)
    magics: tuple[int, ...] = field(init=False)
    gaps: tuple[int, ...] = field(init=False)
    timestamps: tuple[str, ...] = field(init=False)
    max_batch_records: int = field(init=False)

    def __post_init__(self) -> None:
        choice = self.rng.choice
        self.keys = choice([1, 2, 5, 20, 100, 1_000])
        self.tombstones = choice([0.0, 0.1, 0.1, 0.6, 1.0])
        self.null_keys = choice([0.0, 0.0, 0.0, 0.1, 1.0])
        self.odd_keys = choice([0.0, 0.1, 0.7])
        self.headers = choice([0.0, 0.5])
        self.raw = choice([0.0, 0.0, 0.1, 0.6])
        self.negative = choice([0.0] * 19 + [0.01])
        self.append_time = choice([0.0, 0.0, 0.3, 1.0])
        self.transactional = choice([0.0, 0.5, 1.0])
        self.ends = choice([0.1, 0.5, 0.9])
        self.inner_gaps = choice([False, True])
        self.codecs = choice([("none",), ("none",), ("none",), CODECS, LEGACY_CODECS, ("none", choice(CODECS))])
        self.magics = choice([(2,), (2,), (2,), (2,), (0,), (1,), (0, 1, 2), (1, 2), (0, 1, 2, 2, 2, 2)])
        self.gaps = choice([(0,), (0,), (0, 3, 100), (0, 0, 0, 2**31 - 1_000, 2**31), (0, 0, 0, 0, 2**30, 2**33)])
        self.timestamps = choice(
            [
                ("now",),
                ("now", "jitter"),
                ("jitter",),
                ("none",),
                ("equal",),
                ("now", "none"),
                ("now", "now", "now", "huge"),
                ("none", "tiny"),
                ("now", "equal", "jitter", "none", "tiny"),
            ]
        )
        self.max_batch_records = choice([1, 1, 3, 10, 50])


# Batches that no client writes. `format.batch` writes only what Kafka writes, so the encoder is here; it returns the
# bytes of a batch, and Kafka itself writes the log from them.

_HEADER = struct.Struct(">qiibIhiqqqhii")
RawRecord = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def encode_batch(
    rows: list[RawRecord],
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    codec: Codec = Codec.NONE,
    control_type: int | None = None,
    append_time_ms: int | None = None,
    horizon_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
    is_sloppy: bool = False,
) -> bytes:
    """Return a v2 batch of (offset, timestamp, key, value, headers); `producer` is (id, epoch, base sequence).

    `is_sloppy` sets attributes of records, which mean nothing, and writes varints longer than needed. A `control_type`
    keeps the first row only and gives it that key.
    """
    if control_type is not None:
        rows = [(row[0], row[1], struct.pack(">hh", 0, control_type), b"\0\0\0\0\0\0", []) for row in rows[:1]]
    timestamps = [row[1] for row in rows]
    base_timestamp = horizon_ms if horizon_ms is not None else (timestamps or [-1])[0]
    max_timestamp = append_time_ms if append_time_ms is not None else max(timestamps, default=-1)
    section = b"".join(_encode_record(row, base_offset, base_timestamp, is_sloppy) for row in rows)
    if codec:
        section = compress(codec, section)
    attributes = (
        codec
        | (0x08 if append_time_ms is not None else 0)
        | (0x10 if is_transactional else 0)
        | (0x20 if control_type is not None else 0)
        | (0x40 if horizon_ms is not None else 0)
    )
    tail = struct.pack(
        ">hiqqqhii", attributes, last_offset - base_offset, base_timestamp, max_timestamp, *producer, len(rows)
    )
    body = tail + section
    return struct.pack(">qiibI", base_offset, 9 + len(body), leader_epoch, 2, crc32c.crc32c(body)) + body


def _encode_record(row: RawRecord, base_offset: int, base_timestamp: int, is_sloppy: bool) -> bytes:
    offset, timestamp, key, value, headers = row
    delta = (timestamp - base_timestamp + 2**63) % 2**64 - 2**63
    parts = [b"\x05" if is_sloppy else b"\0", _varint(delta), _varint(offset - base_offset, is_sloppy)]
    for content in (key, value):
        parts.append(_sized(content, is_sloppy))
    parts.append(_varint(len(headers)))
    for name, content in headers:
        parts += [_sized(name, False), _sized(content, False)]
    body = b"".join(parts)
    return _varint(len(body), is_sloppy) + body


def _sized(content: bytes | None, is_sloppy: bool) -> bytes:
    return _varint(-1, is_sloppy) if content is None else _varint(len(content), is_sloppy) + content


def _varint(value: int, is_sloppy: bool = False) -> bytes:
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    if is_sloppy and len(encoded) < 4:
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)
