"""Subscription and assignment of a consumer, which a classic group keeps as bytes for each member.

A group of consumers has the protocol type `consumer`. The bytes of other groups, such as those of Kafka Connect, have
other formats and stay as they are. Each value begins with its version, a number of two bytes.
Rules: `ConsumerProtocol`, `DumpLogSegments`.
"""

from __future__ import annotations

import base64
import contextlib

from kcompact.format.coordinator.schema import (
    BYTES,
    INT32,
    STRING,
    Array,
    Field,
    Fields,
    Struct,
    Value,
    read_struct,
    struct,
)
from kcompact.format.field_reader import FieldReader

PROTOCOL_TYPE = "consumer"

_PARTITIONS = Struct((Field("topic", STRING), Field("partitions", Array(INT32))), last_version=3)

SUBSCRIPTION = struct(
    Field("topics", Array(STRING)),
    Field("userData", BYTES, nullable=True),
    Field("ownedPartitions", Array(_PARTITIONS), since=1),
    Field("generationId", INT32, since=2),
    Field("rackId", STRING, since=3, nullable=True),
)
ASSIGNMENT = struct(Field("assignedPartitions", Array(_PARTITIONS)), Field("userData", BYTES, nullable=True))


def with_members_decoded(group: Fields) -> Fields:
    """Return the fields of a classic group with the bytes of its members decoded, where they are of a consumer."""
    members = group.get("members")
    if group.get("protocolType") != PROTOCOL_TYPE or not isinstance(members, list):
        return group
    return group | {"members": [_member(member) for member in members if isinstance(member, dict)]}


def _member(member: Fields) -> Fields:
    subscription, assignment = member["subscription"], member["assignment"]
    return member | {
        "subscription": _decoded(subscription, SUBSCRIPTION),
        "assignment": _decoded(assignment, ASSIGNMENT),
    }


def _decoded(value: Value, schema: Struct) -> Value:
    """Return the fields in bytes that are given in base64, or the bytes as they are if they are no such fields."""
    with contextlib.suppress(ValueError):
        reader = FieldReader(base64.b64decode(str(value)))
        version = max(reader.integer(2), 0)  # Kafka reads a negative version like version 0.
        return read_struct(reader, schema, version, flexible=False)
    return value
