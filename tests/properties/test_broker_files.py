"""Whatever lies where brokers keep their file: the search raises nothing, and takes only the file of this broker."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.config.server_properties import SWITCH, BrokerSearch

NODE = 1
VALUES = {
    "process.roles": ("broker", "controller", "broker,controller", "", "brokers"),
    "zookeeper.connect": ("host:2181",),
    "node.id": ("1", "2", "x"),
    "log.dirs": ("LOG_DIR", "/elsewhere", "/elsewhere,LOG_DIR", "data", "${env:DIRS}", ""),
    "config.providers": ("env",),
    "log.cleaner.threads": ("2",),
    "log.cleaner.enable": ("false", "${env:CLEANER}"),
}
PLACES = (
    "server.properties",
    "config/server.properties",
    "config/kraft/broker.properties",
    "etc/kafka/kafka.properties",
)

lines = st.sampled_from([(name, value) for name, values in VALUES.items() for value in values])
files = st.lists(lines, max_size=7)
bad_bytes = st.none() | st.none() | st.sampled_from([b"\\u12", b"\0", b"=", b"#", b"\\"])


def is_of_this_broker(properties: dict[str, str], log_dir: str) -> bool:
    roles = properties.get("process.roles")
    is_broker = "zookeeper.connect" in properties if roles is None else "broker" in roles.split(",")
    is_named = log_dir in properties.get("log.dirs", "").split(",")
    return is_broker and is_named and properties.get("node.id") != "2"


@pytest.mark.long
@given(written=st.dictionaries(st.sampled_from(PLACES), st.tuples(files, bad_bytes), max_size=3))
def test_only_the_file_of_this_broker_counts(written: dict[str, tuple[list[tuple[str, str]], bytes | None]]) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        patch.setenv(SWITCH, "auto")
        log_dir = Path(scratch) / "data"
        log_dir.mkdir()
        good: list[dict[str, str]] = []
        for place, (found, damage) in written.items():
            properties = {name: value.replace("LOG_DIR", str(log_dir)) for name, value in found}
            file = Path(scratch) / place
            file.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(f"{name}={value}\n" for name, value in properties.items())
            file.write_bytes(text.encode() + (damage or b""))
            if is_of_this_broker(properties, str(log_dir)) and damage in (None, b"=", b"#", b"\0", b"\\"):
                good.append(properties)
        broker = BrokerSearch({}).of(log_dir, node_id=NODE)
        used = [{name: each.get(name) for name in ("log.cleaner.threads", "log.cleaner.enable")} for each in good]
        if not good:
            assert not broker.is_known
        elif len(good) == 1:
            assert broker.is_known
            assert {name: broker.properties.get(name) for name in used[0]} == used[0]
        elif broker.is_known:
            assert any({name: broker.properties.get(name) for name in each} == each for each in used)
