"""The counts of `keys` as JSON. `docs/json.md` lists the fields."""

from __future__ import annotations

import base64
from typing import Any

from kcompact.cli.entries import KeysEntry, TopicKeys
from kcompact.cli.output.json import history_entry, known
from kcompact.keys.counts import AgeBin, KeyCounts, LogKeys, NamedKey, PrefixCounts, PrefixKeys, Tally, key_hash

COUNT_FIELDS = (
    "records",
    "data_records",
    "live_keys",
    "superseded_records",
    "latest_tombstones",
    "unstamped_tombstones",
    "waiting_tombstones",
    "expired_tombstones",
    "null_key_records",
    "control_records",
    "aborted_records",
    "undecided_records",
    "below_start_records",
    "empty_batches",
    "batches",
)
"""The counts of a section; each has a field with `_bytes` too."""

TOPIC_FIELDS = (
    *(f"{name}{unit}" for name in COUNT_FIELDS for unit in ("", "_bytes")),
    *("duplicate_factor", "distinct_keys", "keys_in_several_partitions", "most_shared"),
)


def keys_entry(entry: KeysEntry, separator: bytes, *, print_data: bool) -> dict[str, Any]:
    """Return the entry of a partition with its `keys`, null if nothing could be counted."""
    keys = None if entry.keys is None else log_fields(entry.keys, separator, print_data=print_data)
    return history_entry(entry, keys=keys)


def topic_entry(topic: TopicKeys, *, print_data: bool) -> dict[str, Any]:
    """Return what the partitions of a topic add up to. The sums are null if no partition could be counted."""
    counted = topic.counted
    if not counted.logs:
        return _identity_fields(topic) | dict.fromkeys(TOPIC_FIELDS)
    return _identity_fields(topic) | {
        **count_fields(counted.counts),
        "duplicate_factor": counted.counts.duplicate_factor,
        "distinct_keys": counted.distinct_keys,
        "keys_in_several_partitions": counted.shared_keys,
        "most_shared": [
            {
                **key_fields(key.key, print_data=print_data),
                "directories": [str(each) for each in key.directories],
                "versions": key.versions,
                "bytes": key.size_bytes,
            }
            for key in counted.most_shared
        ],
    }


def _identity_fields(topic: TopicKeys) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "directories": [str(entry.directory) for entry in topic.entries if entry.keys is not None],
        "incomplete": [str(entry.directory) for entry in topic.incomplete],
    }


def count_fields(counts: KeyCounts) -> dict[str, int]:
    """Return the counts of a section, each with its bytes."""
    fields: dict[str, int] = {}
    for name in COUNT_FIELDS:
        fields |= _tally(name, getattr(counts, name))
    return fields


def _tally(name: str, tally: Tally) -> dict[str, int]:
    return {name: tally.number, f"{name}_bytes": tally.size_bytes}


def log_fields(keys: LogKeys, separator: bytes, *, print_data: bool) -> dict[str, Any]:
    """Return the counts of a partition."""

    def named(each: NamedKey) -> dict[str, Any]:
        return {
            **key_fields(each.key, print_data=print_data),
            "versions": each.versions,
            "bytes": each.size_bytes,
            "latest_offset": each.offset,
            "latest_timestamp_ms": known(each.timestamp_ms),
            "latest_bytes": each.latest_bytes,
            "is_tombstone": each.is_tombstone,
        }

    return {
        **count_fields(keys.counts),
        "distinct_keys": keys.keys,
        "duplicate_factor": keys.counts.duplicate_factor,
        "log_start_offset": keys.log_start_offset,
        "committed_end_offset": keys.committed_end_offset,
        "counted_to_offset": keys.counted_to_offset,
        "versions": [each._asdict() for each in keys.versions],
        "ages": [_age(each) for each in keys.ages],
        "old_keys": None if keys.old is None else keys.old.number,
        "old_keys_bytes": None if keys.old is None else keys.old.size_bytes,
        "oldest": [named(each) for each in keys.oldest],
        "most_versions": [named(each) for each in keys.most_versions],
        "most_bytes": [named(each) for each in keys.most_bytes],
        "prefixes": _prefixes(keys.prefixes, separator, print_data=print_data),
        "sections": {str(role): count_fields(counts) for role, counts in keys.sections.items()},
        "segments": [
            {"base_offset": each.base_offset, "role": str(each.role), **count_fields(each.counts)}
            for each in keys.segments
        ],
    }


def _age(each: AgeBin) -> dict[str, Any]:
    return {"kind": each.kind, "below_ms": each.below_ms, **_tally("live_keys", each.live_keys)}


def _prefixes(prefixes: PrefixCounts | None, separator: bytes, *, print_data: bool) -> dict[str, Any] | None:
    if prefixes is None:
        return None

    def fields(each: PrefixKeys) -> dict[str, Any]:
        return {
            **key_fields(each.prefix, print_data=print_data, name="prefix"),
            "keys": each.keys,
            **_tally("records", each.records),
            **_tally("live_keys", each.live_keys),
        }

    return {
        "separator": separator.decode("utf-8", "backslashreplace"),
        "count": prefixes.count,
        "is_complete": prefixes.is_complete,
        "most_records": [fields(each) for each in prefixes.most_records],
        "most_bytes": [fields(each) for each in prefixes.most_bytes],
    }


def key_fields(key: bytes | None, *, print_data: bool, name: str = "key") -> dict[str, Any]:
    """Return a key: the beginning of its SHA-256, and with `print_data` the key itself, in base64 if it is no text."""
    fields: dict[str, Any] = {f"{name}_sha256": None if key is None else key_hash(key)}
    if print_data:
        fields |= {name: None, f"{name}_base64": None}
        if key is not None:
            try:
                fields[name] = key.decode()
            except UnicodeDecodeError:
                fields[f"{name}_base64"] = base64.b64encode(key).decode()
    return fields
