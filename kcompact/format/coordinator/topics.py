"""The topics of Kafka's coordinators, each with its types of records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kcompact.format.coordinator.consumer_groups import CONSUMER_GROUP_RECORDS
from kcompact.format.coordinator.consumer_protocol import with_members_decoded
from kcompact.format.coordinator.offset_records import GROUP_METADATA, OFFSET_RECORDS
from kcompact.format.coordinator.records import Decoded, RecordType, decode_record
from kcompact.format.coordinator.share_groups import SHARE_GROUP_RECORDS
from kcompact.format.coordinator.share_state import SHARE_STATE_RECORDS
from kcompact.format.coordinator.streams_groups import STREAMS_GROUP_RECORDS
from kcompact.format.coordinator.transactions import TRANSACTION_RECORDS
from kcompact.format.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE


def _by_number(types: Iterable[RecordType]) -> dict[int, RecordType]:
    return {each.number: each for each in types}


RECORD_TYPES = {
    CONSUMER_OFFSETS: _by_number(
        (*OFFSET_RECORDS, *CONSUMER_GROUP_RECORDS, *SHARE_GROUP_RECORDS, *STREAMS_GROUP_RECORDS)
    ),
    TRANSACTION_STATE: _by_number(TRANSACTION_RECORDS),
    SHARE_GROUP_STATE: _by_number(SHARE_STATE_RECORDS),
}
"""The types of records of each topic, by number."""


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """Return the fields of a record of one of the topics above, those of a classic group's members too.

    Raises ValueError for a type or version that Kafka does not have, and where bytes contradict the schema.
    """
    decoded = decode_record(RECORD_TYPES[topic], key, value)
    if decoded.type is GROUP_METADATA and decoded.value is not None:
        return replace(decoded, value=with_members_decoded(decoded.value))
    return decoded
