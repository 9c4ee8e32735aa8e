"""`clean.job`: statistics add up."""

from __future__ import annotations

from kcompact.clean.job import CleanerStats


def test_statistics_add_up() -> None:
    one = CleanerStats(bytes_read=1, bytes_written=2, messages_read=3, messages_written=4, map_bytes_read=5, map_keys=6)
    assert one + CleanerStats() == one
    assert (one + one).map_keys == 12
    assert sum([one] * 3, CleanerStats()).bytes_read == 3
