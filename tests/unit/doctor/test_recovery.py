"""Where a broker ends that recovers a segment. `make starts` compares it with Kafka's own manager of the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.doctor.recovery import recovery_findings
from kcompact.errors import CorruptDataError
from kcompact.log.directory import LogDir, read_log
from kcompact.questions.verify.log import verify_log
from tests.support import log_dsl, log_writer
from tests.support.command_line import LOG0, LOG3, LOG6, rewrite

FAR = 2**31 + 6
LOG = f"log lone now=10:00\n0: a=1 b=2\n3: c=3 d=4\n6: e=5\n{FAR}: f=6 g=7\n{2 * FAR}: h=8\n"
FAR_LOG, LAST_LOG = f"{FAR:020d}.log", f"{2 * FAR:020d}.log"
"""The offsets of the first cannot be in an index of the segment 0, 3 or 6."""


@pytest.mark.parametrize(
    ("changed", "parts", "offset"),
    [
        (LOG6, [LOG6], None),
        (LOG6, [LOG0], 0),
        (LOG6, [LOG6, LOG0], 0),
        (LOG6, [LOG0, LOG6], 0),
        (LOG3, [LOG0], 0),
        (LOG0, [LOG0, LOG3], None),
        # A broker splits the segment if its end is too far away.
        (LOG6, [LOG6, FAR_LOG], None),
        (LOG6, [LOG0, FAR_LOG], None),
        (LOG3, [LOG3, FAR_LOG, LOG3], FAR),
        # It cuts the segment off before that.
        (LOG6, [LOG6, b"torn", LOG0], None),
    ],
)
@pytest.mark.parametrize("recovers", ["log", "segment", "nothing"])
def test_a_recovery_ends_at_an_offset_that_no_index_can_have(
    changed: str, parts: list[str | bytes], offset: int | None, recovers: str, tmp_path: Path
) -> None:
    directory = log_writer.write(log_dsl.parse(LOG), tmp_path / "logs")
    contents = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    rewrite(directory / changed, b"".join(contents[each] if isinstance(each, str) else each for each in parts))
    if recovers == "segment":
        (directory / changed).with_suffix(".index").unlink()
    log_dir = LogDir(path=directory.parent, is_log_dir=True, is_clean_shutdown=recovers != "log")
    log = read_log(directory, log_dir=log_dir, as_recovered=True)
    problems = [each.error for each in verify_log(log).findings if each.error is not None]
    found = recovery_findings(log, [*log.damage, *problems])
    ends = [each for each in found if each.code.value == "unloadable-segment"]
    assert [each.offset for each in ends] == ([] if offset is None or recovers == "nothing" else [offset])


@pytest.mark.parametrize(
    ("name", "position", "is_cut_off"),
    [
        (LOG6, 0, False),
        (LOG6, 70, True),
        (LOG6, 71, True),
        (FAR_LOG, 0, True),
        (LOG3, 500, False),
        # What is missing is not cut off, and small files have nothing to do with the log.
        (FAR_LOG, None, False),
        ("leader-epoch-checkpoint", 2, False),
        ("partition.metadata", 70, False),
    ],
)
def test_what_a_recovery_cuts_off(name: str, position: int | None, is_cut_off: bool, tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log lone now=10:00\n0: a=1\n3: c=3\n6: e=5 f=6\n"), tmp_path / "logs")
    rewrite(directory / LOG6, (directory / LOG6).read_bytes()[:139])
    log = read_log(directory, log_dir=LogDir(path=directory.parent, is_log_dir=True), as_recovered=True)
    assert log.active_segment.size_bytes == 70
    assert log.is_cut_off(CorruptDataError(file=directory / name, position=position, problem="")) == is_cut_off
