"""Random logs with a history: compacted batches, transactions in every state, producers, horizons.

The text is of `log_dsl`, so a log that fails a test can be read.
"""

from __future__ import annotations

import random
from pathlib import Path

from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.log_writer import LogSpec

PRODUCERS = (5, 7, 8)
_TIMES = ("09:00", "09:01", "08:30", "09:59:59.999")
_CODECS = ("", "", "", " gzip", " lz4", " snappy", " zstd")


def random_log(seed: int) -> LogSpec:
    """Return the log of a seed. Its `.txnindex` files are left out."""
    return log_dsl.parse(random_text(seed))


def plan_of(seed: int, directory: Path) -> CleanPlan:
    """Write the log of a seed below a directory; return its plan."""
    spec = random_log(seed)
    return plan_partition(log_writer.write(spec, directory / str(seed)), spec.config, now_ms=spec.now_ms)


def random_text(seed: int) -> str:
    """Return the same as text."""
    dice = random.Random(seed)
    offset = base = dice.choice([0, 0, 3, 2**33])
    lines = []
    for _ in range(dice.randint(1, 4)):
        items = []
        for _ in range(dice.choice([0, 1, 3, 8, 12])):
            offset += dice.choice([0, 0, 0, 0, 1, 4])
            last = offset + dice.choice([0, 0, 1, 3, 5])
            items.append(_batch(dice, offset, last))
            offset = last + 1
        lines.append(f"{base}: {' '.join(items)}")
        base = offset = offset + dice.choice([0, 0, 2])
        base += not items
        offset = base
    first = int(lines[0].partition(":")[0])
    head = f"log now=10:00 delete.retention.ms=1h checkpoint={dice.randint(first, base)}"
    if dice.random() < 0.3:
        head += f" start={dice.randint(first, int(lines[-1].partition(':')[0]))}"
    return "\n".join([head, *lines])


def _batch(dice: random.Random, offset: int, last: int) -> str:
    """Return a batch at these offsets: whole, with some of its records, or with none."""
    producer = dice.choice(PRODUCERS)
    kind = dice.choice(["plain", "plain", "idempotent", "transactional", "transactional", "marker", "marker", "other"])
    words = f"epoch={dice.choice([0, 0, 1])}" + _horizon(dice)
    if kind == "marker":
        kept = dice.random() < 0.8
        if not kept:
            return f"[]@{offset}..{offset}(pid={producer} control txn)"
        name = dice.choice(["commit", "abort"])
        return f"[{name}@{last}^{dice.choice(_TIMES)}]@{last}(pid={producer} coordinator={dice.choice([0, 4])} {words})"
    offsets = [each for each in range(offset, last + 1) if kind == "plain" or dice.random() < 0.7]
    if dice.random() < 0.3:
        offsets = offsets[: dice.randint(0, len(offsets))]
    records = " ".join(
        f"{dice.choice('abcd')}={dice.choice(['1', '2', '~'])}@{each}^{dice.choice(_TIMES)}" for each in offsets
    )
    of_producer = "" if kind in ("plain", "other") else f"pid={producer} {words}" + " txn" * (kind == "transactional")
    codec = dice.choice(_CODECS) if offsets else ""
    append = dice.choice(["", "", " append"])
    return f"[{records}]@{offset}..{last}({of_producer}{codec}{append}{_horizon(dice) if not of_producer else ''})"


def _horizon(dice: random.Random) -> str:
    return dice.choice(["", "", " horizon=09:30", " horizon=10:30", " horizon=10:00"])
