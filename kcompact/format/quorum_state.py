"""`quorum-state`: what a node of a KRaft quorum remembers of the last election. One line of JSON.

    {"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

A node that cannot read it does not start. Rules: `FileQuorumStateStore.readStateFromFile`,
`QuorumStateDataJsonConverter.read`.
"""

from __future__ import annotations

import json
from typing import Any

from kcompact.errors import CorruptCheckpointError
from kcompact.format.properties import MAX_SMALL_FILE_BYTES, decode_uuid
from kcompact.format.text_lines import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, quoted, split_lines

QUORUM_STATE = "quorum-state"

_VERSION = "data_version"
_NUMBERS = {"leaderId": (INT_MIN, INT_MAX), "leaderEpoch": (INT_MIN, INT_MAX), "votedId": (INT_MIN, INT_MAX)}
_OF_VERSION_0 = ("clusterId", "appliedOffset", "currentVoters")


def verify_quorum_state(data: bytes, *, file: str) -> None:
    """Raise CorruptCheckpointError for a `quorum-state` that a node cannot read. Unknown fields are ignored."""
    lines = split_lines(data, file=file, max_bytes=MAX_SMALL_FILE_BYTES)
    problem = "the file is empty" if not lines else _problem(lines[0])
    if problem:
        raise CorruptCheckpointError(file=file, problem=problem)


def _problem(line: str) -> str:
    """Return what is wrong with the line, an empty text if nothing is."""
    try:
        fields, _ = json.JSONDecoder().raw_decode(line.lstrip(" \t"))
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(fields, dict):
        return f"{quoted(line)} is no JSON object"
    version = fields.get(_VERSION)
    if version is None:
        return f"has no {_VERSION}"
    if not _is_number(version, 0, 1):
        return f"{_VERSION} {quoted(str(version))} is unknown"
    limits = _NUMBERS | ({"appliedOffset": (LONG_MIN, LONG_MAX)} if version == 0 or "appliedOffset" in fields else {})
    for name in (*limits, *(_OF_VERSION_0 if version == 0 else ("votedDirectoryId",))):
        if name not in fields:
            return f"has no {name}, which version {version} has"
    wrong = [name for name, (low, high) in limits.items() if not _is_number(fields[name], low, high)]
    wrong += [name for name in ("clusterId", "votedDirectoryId") if not isinstance(fields.get(name, ""), str)]
    if "votedDirectoryId" in fields and not wrong and decode_uuid(fields["votedDirectoryId"]) is None:
        wrong.append("votedDirectoryId")
    if not _are_voters(fields.get("currentVoters", [])):
        wrong.append("currentVoters")
    return f"{wrong[0]} {quoted(str(fields[wrong[0]]))} is not valid" if wrong else ""


def _is_number(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _are_voters(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(each, dict) and _is_number(each.get("voterId"), INT_MIN, INT_MAX) for each in value)
