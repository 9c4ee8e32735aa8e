"""`questions.verify.indexes`: where a `.txnindex` contradicts the markers of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcompact.format import batch
from kcompact.format.batch import HEADER_BYTES, parse_batches
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.questions.verify.findings import FileSeverity
from kcompact.questions.verify.indexes import log_transaction_findings, transaction_findings
from kcompact.questions.verify.log import findings, verify_file
from tests.support import log_dsl, log_writer
from tests.support.command_line import kcompact
from tests.support.wrong_transaction_indexes import SPEC, WRONG


def damage(directory: Path) -> list[tuple[str, str]]:
    found = findings(read_log(directory))
    return [(finding.file, finding.problem) for finding in found if finding.severity is FileSeverity.DAMAGE]


@pytest.mark.parametrize("wrong", WRONG)
def test_each_contradiction_is_damage(wrong: str, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    assert damage(directory) == []
    path = WRONG[wrong].apply(directory)
    found = damage(directory)
    if WRONG[wrong].is_harmless:
        assert found == []
        return
    assert any(file == path.name and WRONG[wrong].message in problem for file, problem in found), found
    assert {file for file, _ in found} == {path.name}
    for command in ("inspect", "verify"):
        shown = kcompact(command, "--json", directory)
        assert shown.code == 3
        assert json.loads(shown.out)["partitions"][0]["reason"] == "corrupt"


SOUND = {
    # name: log, and what makes it remarkable
    "log start inside a transaction": """log start=2
        0: a=1(pid=7 txn) b=1(pid=7 txn) c=1 d=1(pid=7 txn)
        4: abort(pid=7) e=1
        txnindex 4: pid=7 first=3 last=4 stable=5""",
    "begun below the log": """log start=10
        10: a=1 abort(pid=7)
        txnindex 10: pid=7 first=4 last=11 stable=12""",
    "deleted data, marker below the log start": "log start=2\n0: a=1(pid=7 txn) abort(pid=7) b=1",
    "marker of a transaction without data": "log\n0: a=1 abort(pid=7) b=1",
    "marker without data, with an entry": """log
        0: a=1 abort@5(pid=7) b=1
        txnindex 0: pid=7 first=2 last=5 stable=6""",
    "marker of a newer epoch": """log
        0: a=1(pid=7 txn epoch=1) abort(pid=7 epoch=2) b=1(pid=7 txn epoch=2) abort(pid=7 epoch=3) commit(pid=7 epoch=3)
        txnindex 0: pid=7 first=0 last=1 stable=2
        txnindex 0: pid=7 first=2 last=3 stable=4""",
    "a retry of a marker": """log
        0: a=1(pid=7 txn) abort(pid=7) abort(pid=7)
        txnindex 0: pid=7 first=0 last=1 stable=2""",
    "emptied batch of an aborted transaction": """log
        0: []@0..1(pid=7 txn) abort(pid=7) b=1
        txnindex 0: pid=7 first=0 last=2 stable=3""",
    "emptied control batch": "log\n0: a=1 []@1..1(pid=7 control) b=1",
    "an open transaction": "log\n0: a=1(pid=7 txn) b=1",
    "several transactions appended at once by a replica": """log
        0: a=1(pid=7 txn) abort(pid=7) b=1(pid=7 txn) abort(pid=7) c=1 d=1(pid=8 txn) abort(pid=8)
        txnindex 0: pid=7 first=0 last=1 stable=5
        txnindex 0: pid=7 first=2 last=3 stable=5
        txnindex 0: pid=8 first=5 last=6 stable=7""",
    "a snapshot that forgot nothing": """log
        0: a=1(pid=7 txn) b=1(pid=8 txn)
        2: abort(pid=7) commit(pid=8)
        txnindex 2: pid=7 first=0 last=2 stable=1""",
    "data of a producer without transactions": "log\n0: a=1(pid=7) abort(pid=7)",
}


@pytest.mark.parametrize("name", SOUND)
def test_what_a_broker_leaves_is_sound(name: str, tmp_path: Path) -> None:
    assert damage(log_writer.write(log_dsl.parse(SOUND[name]), tmp_path)) == []


def test_a_damaged_log_is_blamed_alone(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    log = directory / f"{7:020d}.log"
    content = bytearray(log.read_bytes())
    marker = next(one for one in parse_batches(bytes(content), file="") if one.header.is_control)
    content[marker.position + HEADER_BYTES + 8] ^= 1
    log.write_bytes(content)
    assert {file for file, _ in damage(directory)} == {log.name}


def test_a_marker_of_another_kind_needs_its_checksum_too(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    log = directory / f"{7:020d}.log"
    content = bytearray(log.read_bytes())
    marker = next(one for one in parse_batches(bytes(content), file="") if one.header.is_control)
    kind = marker.position + HEADER_BYTES + 8
    assert content[kind] == 0
    content[kind] = 1  # A COMMIT marker, with a checksum that is right for it.
    end = marker.position + marker.header.size_bytes
    content[marker.position + 17 : marker.position + 21] = batch.computed_crc(content[marker.position : end]).to_bytes(
        4
    )
    log.write_bytes(content)
    assert [file for file, _ in damage(directory)] == [log.with_suffix(".txnindex").name]


def test_a_single_file_is_compared_with_the_index_beside_it(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = WRONG["missing file"].apply(directory)
    (found,) = verify_file(LogFile.at(path.with_suffix(".log")), 7).findings
    assert (found.severity, found.offset) == (FileSeverity.DAMAGE, 10)


def test_what_is_appended_meanwhile_is_not_judged(tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    log = read_log(directory)
    offset = log.log_end_offset
    with (directory / log.active_segment.log_name).open("ab") as active:
        active.write(batch.build([batch.Record(offset, 0, b"k", b"v")], transactional=True, producer_id=99))
        marker = batch.Record(offset + 1, 0, bytes(4), bytes(6))
        active.write(batch.build([marker], control=True, transactional=True, producer_id=99))
    assert list(log_transaction_findings(log, ())) == []
    assert list(log_transaction_findings(read_log(directory), ())) != []


def test_a_damaged_marker_ends_the_judgement(tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log\n0: a=1(pid=7 txn) commit(pid=7)\n2: b=1"), tmp_path)
    log = directory / f"{0:020d}.log"
    data, marker = list(parse_batches(log.read_bytes(), file=""))
    no_key = batch.Record(marker.header.base_offset, 0, b"", b"")
    log.write_bytes(bytes(data.data) + batch.build([no_key], control=True, transactional=True, producer_id=7))
    assert len(list(transaction_findings([(LogFile.at(log), log.stat().st_size)]))) == 1
    assert kcompact("inspect", directory).code in (0, 3)
