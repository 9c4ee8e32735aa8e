"""What a broker and its readers see of two loaded log directories, kcompact's and Kafka's, compared.

A view is what `RealKafka.load` says of each partition.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.real_kafka import Json, Record


def view_differences(ours: Json, theirs: Json, *, passed_over: set[str]) -> list[str]:
    """Return what a broker and its readers see differently in two log directories."""
    found = []
    for name in sorted(theirs.keys() - passed_over):
        for key, expected in theirs[name].items():
            got = ours[name][key]
            if key == "segments":
                # The size of a recompressed segment is the compression library's.
                got, expected = [base for base, _ in got], [base for base, _ in expected]
            if got != expected:
                found.append(f"{name}: loaded: {key} {unlike(got, expected)}")
    return found


def unlike(got: Any, expected: Any) -> str:
    """Return how two values differ, or the first place where two lists do."""
    if isinstance(expected, list):
        for number, (left, right) in enumerate(zip(got, expected, strict=False)):
            if left != right:
                return f"number {number} is {left}, Kafka's {right}"
        return f"{len(got)} of them, Kafka {len(expected)}"
    return f"is {got}, Kafka's {expected}"


def newest_differences(ours: Json, theirs: Json) -> list[str]:
    """Return for which keys a reader of committed records ends up with something else."""
    found = []
    for name in sorted(theirs):
        mine, other = newest(ours[name]), newest(theirs[name])
        found += [
            f"{name}: newest of {key!r} is {mine.get(key)}, Kafka's {other.get(key)}"
            for key in sorted(mine.keys() | other.keys())
            if mine.get(key) != other.get(key)
        ]
        found += [f"{name}: {line}" for line in end_differences(ours[name], theirs[name])]
    return found


def end_differences(ours: Json, theirs: Json) -> list[str]:
    """Return which offsets of one partition differ."""
    return [
        f"{key} {ours[key]}, Kafka's {theirs[key]}"
        for key in ("log_start_offset", "log_end_offset", "last_stable_offset")
        if ours[key] != theirs[key]
    ]


def newest(partition: Json) -> dict[bytes, Record]:
    """Return the newest committed record of each key that has a value."""
    records: list[Record] = partition["committed_records"]
    latest = {record.key: record for record in records if record.key is not None}
    return {key: record for key, record in latest.items() if record.value is not None}
