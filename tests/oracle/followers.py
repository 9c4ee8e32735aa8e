"""Small logs of followers, from a seed: what two leaders write, and what a follower fetches from them.

    spec = follower_spec(7)     # a spec as those of `odd_logs`; each round has `leaders` besides

A follower appends fetches of many batches at once, is started anew, and is truncated when the other leader takes over.
So its transaction indexes and time indexes differ from those of any leader. The leaders share nothing, so a transaction
can begin in one log and end in the other, or never. Same seed, same spec.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kcompact.errors import CorruptTransactionIndexError
from kcompact.format.names import Suffix
from kcompact.log.files import LogFile
from kcompact.log.index_files import read_time_index
from kcompact.log.markers import read_headers
from kcompact.log.transaction_index import read_transaction_index
from kcompact.log.transactions import of_headers
from tests.oracle.odd_logs import DAY_MS, START_MS, WrittenPartition, config_of, moments, written_config
from tests.oracle.real_kafka import Json, roll
from tests.support.committed_view import committed_view
from tests.support.definitions import DefinedTransactions

NAME = "odd-0"
HIDDEN = "aborted transactions hidden by a last stable offset"
LOWER = "time indexes that end lower"
EXPIRATION_MS = 20 * DAY_MS
"""Longer than a log is written: a broker without producers forgets, at a truncation, what is open before it."""


def follower_spec(seed: int) -> Json:
    """Return the spec of one log directory of a follower."""
    rng = random.Random(f"follower {seed}")
    leaders = [WrittenPartition(rng, NAME, is_transactional=True) for _ in range(2)]
    for leader in leaders:
        leader.style.magics = (2,)
        leader.style.raw = 0.0
        leader.style.codecs = rng.choice([("none",), ("none", "lz4")])
        leader.style.timestamps = rng.choice([("now",), ("jitter",), ("now", "jitter")])
        leader.style.gaps = (0, 0, 3)
        leader.style.leaps = 0.0  # A broker may fail to load what a truncation leaves of such a log.
        leader.style.outcomes = rng.choice([("abort",), ("abort",), ("commit", "abort")])
        leader.style.ends = rng.choice([0.3, 0.6, 0.9])
        leader.style.max_batch_records = rng.choice([1, 1, 3])
        leader.style.keys = rng.choice([1, 3, 10])
    producers = {each.producer_id: each for leader in leaders for each in leader.producers}
    for producer in producers.values():
        producer.is_transactional = rng.random() < 0.6
    for leader in leaders:
        leader.producers = copy.deepcopy([*producers.values()])
    follower = _Follower(rng)
    config = config_of(rng, is_eager=True) | {"segment.index.bytes": "4000"}
    config["segment.bytes"] = str(rng.choice([400, 700, 1_500, 4_000, 20_000]))
    now_ms, cleaned_at = START_MS + rng.randrange(DAY_MS), list[int]()
    rounds: list[Json] = []
    for number in range(rng.choice([2, 3, 4, 5])):
        records = rng.choice([30, 100])
        for leader in leaders if number else ():
            if rng.random() < 0.5:
                del leader.producers[:1]
        written = [leader.write(config, now_ms, is_first=False, rolls=True, records=records) for leader in leaders]
        for request, leader in zip(written, leaders, strict=True):
            if rng.random() < 0.7:
                request["actions"] += leader.end_transactions()
        now_ms = max(leader.now_ms for leader in leaders)
        requests = [
            {**written[0], "now_ms": now_ms, "config": written_config(config), "actions": actions}
            for actions in follower.starts(int(config["segment.bytes"]), now_ms)
        ]
        now_ms = rng.choice(moments(now_ms, cleaned_at, config, EXPIRATION_MS))
        cleaned_at.append(now_ms)
        rounds.append(
            {
                "leaders": written,
                "writes": requests,
                "now_ms": now_ms,
                "config": config,
                "topics": {},
                "checkpoints": {},
                "high_watermarks": {},
                "producer_id_expiration_ms": EXPIRATION_MS,
                "io_buffer_bytes": rng.choice([200, 1_000, 524_288]),
                "max_message_bytes": 1_048_588,
            }
        )
    return {"seed": seed, "rounds": rounds}


class _Follower:
    """A follower while it is being written: dice, the leader that it follows, and the leader epoch."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.leader = 0
        self.leader_epoch = 3

    def starts(self, segment_bytes: int, now_ms: int) -> Iterator[list[Json]]:
        """Yield what the follower does in a round, from each of its starts to the next."""
        for _ in range(self.rng.choice([1, 2, 3, 5])):
            actions = [self._truncation()] if self.rng.random() < 0.3 else []
            for _ in range(self.rng.randint(1, 8)):
                actions += self._actions(segment_bytes)
            yield [action | {"now_ms": now_ms} for action in actions]
        yield [self._fetch(segment_bytes), roll(now_ms=now_ms)]

    def _actions(self, segment_bytes: int) -> list[Json]:
        dice = self.rng.random()
        if dice < 0.1:
            return [roll()]
        if dice < 0.4:
            return [self._truncation(), roll()] if self.rng.random() < 0.2 else [self._truncation()]
        return [self._fetch(segment_bytes)]

    def _truncation(self) -> Json:
        """Follow the other leader from now on."""
        self.leader, self.leader_epoch = 1 - self.leader, self.leader_epoch + 1
        batches = self.rng.choice([1, 1, 1, 2, 2, 3, 5, 10, 30])
        return {"do": "truncate", "batches": batches, "behind_marker": self.rng.random() < 0.3}

    def _fetch(self, segment_bytes: int) -> Json:
        return {
            "do": "fetch",
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "batches": self.rng.choice([1, 5, 10, 25, 100]),
            "most_bytes": segment_bytes,
        }


def committed_records(log_dir: Path) -> dict[bytes, bytes]:
    """Return the newest committed value of each key by the markers of the log, without the records that have no key."""
    return {key: value for key, value in committed_view(log_dir / NAME).items() if key is not None}


def peculiarities(directory: Path) -> Counter[str]:
    """Count what a sound log of a follower has and that of a leader does not."""
    found = Counter[str]()
    transactions, greatest_stable = DefinedTransactions(), -1
    for path in sorted(directory.glob("*.log")):
        log = LogFile.at(path)
        batches = list(read_headers(log, end_position=path.stat().st_size))
        time_index = log.with_suffix(Suffix.TIME_INDEX)
        times = read_time_index(time_index) if time_index.exists() else []  # 3.1 makes it late
        greatest = max((header.max_timestamp for _, header, _ in batches), default=-1)
        found[LOWER] += bool(times) and times[-1].timestamp < greatest
        markers = list(transactions.abort_markers(of_headers(batches)))
        index = log.with_suffix(Suffix.TXN_INDEX)
        try:
            entries = {entry.last_offset: entry for entry in read_transaction_index(index)} if index.exists() else {}
        except CorruptTransactionIndexError:  # The cleaner of 2.8 can write entries that do not rise.
            found["transaction indexes that do not rise"] += 1
            continue
        for marker in markers:
            entry = entries.get(marker.offset)
            if entry is None:
                found["ABORT markers without an entry"] += marker.first_batch >= 0
                continue
            is_hidden = -1 < marker.first_batch < greatest_stable
            found[HIDDEN] += is_hidden
            found["last stable offsets unlike a leader's"] += entry.last_stable_offset != marker.last_stable_offset
            greatest_stable = max(greatest_stable, entry.last_stable_offset)
    return +found
