"""An application that keeps the newest price of each fruit, from a topic that is compacted."""

from __future__ import annotations

from pathlib import Path

import kcompact


def newest_prices(partition: Path) -> dict[str, str]:
    """Return the newest price of each fruit. A tombstone removes the fruit."""
    prices: dict[str, str] = {}
    for segment in kcompact.read_log(partition).segments:
        for batch in kcompact.batches(partition / segment.log_name):
            for record in kcompact.read_records(batch, file=segment.log_name):
                assert record.key is not None, "a compacted topic has no record without a key"
                if record.value is None:
                    prices.pop(record.key.decode(), None)
                else:
                    prices[record.key.decode()] = record.value.decode()
    return prices
