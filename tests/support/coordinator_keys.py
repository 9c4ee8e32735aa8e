"""Keys and values of `__consumer_offsets` and `__transaction_state` for tests, built by hand."""

from __future__ import annotations

import struct


def string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def offset_key(group: str, topic: str = "orders", partition: int = 0, *, legacy: bool = False) -> bytes:
    return struct.pack(">h", 0 if legacy else 1) + string(group) + string(topic) + struct.pack(">i", partition)


def offset_value(offset: int) -> bytes:
    """Version 3, without metadata."""
    return struct.pack(">hqihq", 3, offset, -1, 0, 0)


def group_key(number: int, group: str, *rest: str) -> bytes:
    """The key of a record about a group or, with a member's id, about a member."""
    return struct.pack(">h", number) + b"".join(map(string, (group, *rest)))


def classic_value(members: int) -> bytes:
    """Version 0 of a group of consumers without assignments."""
    member = string("m") + string("c") + string("h") + struct.pack(">iii", 1, 0, 0)
    return struct.pack(">h", 0) + string("consumer") + struct.pack(">ihhi", 1, -1, -1, members) + member * members


def transaction_key(transactional_id: str) -> bytes:
    return struct.pack(">h", 0) + string(transactional_id)


def transaction_value(
    producer_id: int, epoch: int, status: int, partitions: dict[str, list[int]], *, start_ms: int, timeout_ms: int
) -> bytes:
    """Version 0 of the state of a transactional id."""
    topics = [
        string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    ]
    head = struct.pack(">hqhib", 0, producer_id, epoch, timeout_ms, status)
    return head + struct.pack(">i", len(topics)) + b"".join(topics) + struct.pack(">qq", start_ms, start_ms)
