"""Small logs of followers, from a seed: what two leaders write, and what a follower fetches from them.

    spec = follower_spec(7)     # a spec as those of `odd_logs`; each round has `leaders` besides

A follower appends fetches of many batches at once, is started anew, and is truncated when the other leader takes over.
So its transaction indexes and time indexes differ from those of any leader. The leaders share nothing, so a transaction
can begin in one log and end in the other, or never. Same seed, same spec.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.oracle.odd_logs import DAY_MS, START_MS, WrittenPartition, config_of, moments, written_config
from tests.oracle.real_kafka import Json, roll

NAME = "odd-0"
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
        leader.style.outcomes = rng.choice([("abort",), ("commit", "abort")])
        leader.style.ends = rng.choice([0.3, 0.6])
        leader.style.max_batch_records = rng.choice([1, 1, 3])
    follower = _Follower(rng)
    config = config_of(rng, is_eager=True) | {"segment.index.bytes": "4000"}
    config["segment.bytes"] = str(rng.choice([1_500, 4_000, 20_000]))
    now_ms, cleaned_at = START_MS + rng.randrange(DAY_MS), list[int]()
    rounds: list[Json] = []
    for number in range(rng.choice([1, 2, 3, 4])):
        records = rng.choice([30, 100])
        written = [leader.write(config, now_ms, is_first=False, rolls=True, records=records) for leader in leaders]
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
            actions = [self._action(segment_bytes) for _ in range(self.rng.randint(1, 8))]
            yield [action | {"now_ms": now_ms} for action in actions]
        yield [self._fetch(segment_bytes), roll(now_ms=now_ms)]

    def _action(self, segment_bytes: int) -> Json:
        dice = self.rng.random()
        if dice < 0.1:
            return roll()
        if dice < 0.4:
            self.leader, self.leader_epoch = 1 - self.leader, self.leader_epoch + 1
            return {"do": "truncate", "batches": self.rng.choice([1, 2, 3, 5, 10, 30])}
        return self._fetch(segment_bytes)

    def _fetch(self, segment_bytes: int) -> Json:
        return {
            "do": "fetch",
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "batches": self.rng.choice([1, 5, 10, 25, 100]),
            "most_bytes": segment_bytes,
        }
