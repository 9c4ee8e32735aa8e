"""`quorum-state`: what a node can read, and what it cannot."""

from __future__ import annotations

import json

import pytest

from kcompact.errors import CorruptCheckpointError
from kcompact.format.quorum_state import verify_quorum_state

V1 = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": "A" * 22, "data_version": 1}
V0 = {
    "clusterId": "",
    "leaderId": 1,
    "leaderEpoch": 2,
    "votedId": -1,
    "appliedOffset": 0,
    "currentVoters": [{"voterId": 1}],
    "data_version": 0,
}


def line(fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    "data",
    [
        line(V1),
        line(V0),
        line(V1) + b"\nwhat follows is not read",
        b"  " + line(V1),
        line(V1) + b" and this is not read",
        line(V1 | {"unknown": [1]}),
        line(V1 | {"leaderId": -(2**31), "leaderEpoch": 2**31 - 1}),
        line(V0 | {"currentVoters": []}),
        line(V0 | {"appliedOffset": 2**63 - 1}),
        line(V1 | {"clusterId": "c", "appliedOffset": 5, "currentVoters": []}),
    ],
)
def test_what_a_node_reads(data: bytes) -> None:
    verify_quorum_state(data, file="f")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n", "no JSON"),
        (b"{", "no JSON"),
        (line(V1)[:-1], "no JSON"),
        (b"[1]", "is no JSON object"),
        (b"7", "is no JSON object"),
        (b"\xff", "not UTF-8"),
        (b"{}", "has no data_version"),
        (line(V1 | {"data_version": 2}), "data_version '2' is unknown"),
        (line(V1 | {"data_version": -1}), "data_version '-1' is unknown"),
        (line(V1 | {"data_version": True}), "data_version 'True' is unknown"),
        *(
            (line({name: value for name, value in V1.items() if name != left}), f"has no {left}")
            for left in list(V1)[:4]
        ),
        *(
            (line({name: value for name, value in V0.items() if name != left}), f"has no {left}")
            for left in list(V0)[:6]
        ),
        (line(V1 | {"leaderId": "1"}), "leaderId '1' is not valid"),
        (line(V1 | {"leaderEpoch": 2**31}), "leaderEpoch '2147483648' is not valid"),
        (line(V1 | {"votedId": -(2**31) - 1}), "votedId '-2147483649' is not valid"),
        (line(V1 | {"votedDirectoryId": 5}), "votedDirectoryId '5' is not valid"),
        (line(V1 | {"votedDirectoryId": "A" * 21}), "votedDirectoryId 'A+' is not valid"),
        (line(V1 | {"clusterId": 5}), "clusterId '5' is not valid"),
        (line(V0 | {"appliedOffset": 2**63}), "appliedOffset '9223372036854775808' is not valid"),
        (line(V1 | {"appliedOffset": "0"}), "appliedOffset '0' is not valid"),
        (line(V0 | {"currentVoters": {}}), "currentVoters '{}' is not valid"),
        (line(V0 | {"currentVoters": None}), "currentVoters 'None' is not valid"),
        (line(V0 | {"currentVoters": [{"voterId": "1"}]}), "currentVoters"),
        (line(V0 | {"currentVoters": [1]}), "currentVoters"),
    ],
)
def test_what_a_node_does_not_read(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        verify_quorum_state(data, file="f")
