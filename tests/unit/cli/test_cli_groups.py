"""`groups`: its table, its JSON, and paths that have no groups."""

from __future__ import annotations

from pathlib import Path

from kcompact.format.batch import Record, build
from tests.support.command_line import CONTROL, kcompact
from tests.support.coordinator_keys import offset_key, offset_value

LOG = "00000000000000000000.log"


def test_a_group_whose_name_would_control_a_terminal(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-3"
    directory.mkdir()
    records = [Record(0, 1, offset_key("a\x1b[31m\u202eb"), offset_value(1)), Record(1, 1, b"\0\x63", b"")]
    (directory / LOG).write_bytes(build(records))
    ran = kcompact("groups", directory)
    assert not CONTROL.search(ran.out)
    assert "not decoded: 1 record, " in ran.out
