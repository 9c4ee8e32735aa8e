"""`cli.output.record_lines`: the lines that a kernel writes are those of `cli.output.dump`."""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.cli.output import record_lines
from kcompact.cli.output.dump import LineForm, raw_field
from kcompact.cli.output.field_decoder import FieldDecoder
from kcompact.cli.output.record_lines import RunLines
from kcompact.format.batch import Record, build, empty, read_header
from kcompact.format.codec import Codec
from kcompact.kernels import FIELD_BINARY, FIELD_NULL, FIELD_TEXT, FIELD_UNDECIDED
from kcompact.log.files import LogFile
from kcompact.log.past_damage import LeftOutParts
from kcompact.log.records import RecordRun, record_parts, record_runs
from tests.support.dump_lines import dump_log
from tests.support.kernel_inputs import LOG_NAME, any_log_bytes
from tests.support.machine_code import switched
from tests.support.parameters import few_examples

LABEL = 'ü"\\/\n7770000000000000000.log'
FIELDS = [None, b"", b"text", b'"quoted\\"', "grün".encode(), b"\xff\0", b"tab\t", b"x" * 4095, b"y" * 5000, b"~ \x7f"]
FIELDS += [
    b"\xed\xa0\x80",
    "\x85\ue000\U0010ffff\u0378".encode(),
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"\n\r",
    b"\xff" * 3073,
]


def forms(path: Path) -> list[LineForm]:
    return [
        LineForm(label=LABEL, file=LogFile.at(path), with_batches=with_batches, print_data=print_data, as_json=as_json)
        for as_json in (False, True)
        for print_data in (False, True)
        for with_batches in ({True, as_json is False})
    ] + [
        LineForm(label=LABEL, file=LogFile.at(path), as_json=as_json, decoder=FieldDecoder(key, value, as_json=as_json))
        for as_json in (False, True)
        for key, value in (("hex", "base64"), ("base64", "utf8"), (None, "hex"), ("int", "json"), ("utf8", None))
    ]


def by_definition(form: LineForm) -> tuple[str, str]:
    left_out = LeftOutParts()
    return "".join(dump_log(form, left_out)), str(left_out.error())


def by_runs(form: LineForm, *, compiled: bool) -> tuple[str, str]:
    lines, left_out = form.heading().encode(), LeftOutParts()
    writer = RunLines()
    with switched(compiled=compiled):
        for part in record_parts(form.file):
            if isinstance(part, RecordRun):
                for piece in writer.of(form, part):
                    lines += piece
            else:
                left_out.add(part)
                lines += form.unreadable_lines(part).encode()
    return lines.decode(), str(left_out.error())


def assert_same(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / LOG_NAME
        path.write_bytes(data)
        for form in forms(path):
            expected = by_definition(form)
            assert by_runs(form, compiled=True) == expected
            assert by_runs(form, compiled=False) == expected


@pytest.mark.long
@few_examples()
@given(any_log_bytes)
def test_any_log(data: bytes) -> None:
    assert_same(data)


@st.composite
def printed_batches(draw: st.DrawFn) -> bytes:
    """Batches of which some records have contents, headers and numbers of every kind."""
    data, offset = b"", draw(st.sampled_from([0, 10**18]))
    for _ in range(draw(st.integers(1, 3))):
        records = [
            Record(
                offset + number,
                draw(st.sampled_from([0, -1, 9, 10, 10**12, 2**63 - 1, -(2**63)])),
                draw(st.sampled_from(FIELDS)),
                draw(st.sampled_from(FIELDS)),
                draw(st.sampled_from([(), (), (), ((b"name", None),)])),
            )
            for number in range(draw(st.integers(1, 6)))
        ]
        batch = build(
            records,
            codec=draw(st.sampled_from(Codec)),
            log_append_time=draw(st.booleans()),
            producer_id=draw(st.sampled_from([-1, 2**62])),
            base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 1])),
            transactional=draw(st.booleans()),
            partition_leader_epoch=draw(st.sampled_from([-1, 5])),
        )
        data += draw(st.sampled_from([batch, empty(read_header(batch, file="", position=0)), batch]))
        offset += 10
    return data


@pytest.mark.long
@few_examples()
@given(printed_batches())
def test_any_content(data: bytes) -> None:
    assert_same(data)


@given(st.binary(max_size=6) | st.text(max_size=4).map(str.encode) | st.text("a\t\n\r\x7f\x85~").map(str.encode))
def test_the_kinds_of_fields(data: bytes) -> None:
    array, sizes, kinds = np.frombuffer(data, np.uint8), np.array([len(data), -1, 1 << 40]), np.empty(3, np.uint8)
    kernels.field_kinds(array, np.array([0, 1, 2]), np.zeros(3, np.int64), sizes, kinds)
    assert kinds[1:].tolist() == [FIELD_NULL, FIELD_UNDECIDED]
    is_binary = "keyBase64" in raw_field("key", data)
    if kinds[0] == FIELD_UNDECIDED:
        assert data.decode()
        assert not (data.isascii() and is_binary)
    else:
        assert kinds[0] == (FIELD_BINARY if is_binary else FIELD_TEXT)
        assert is_binary or data.isascii()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_kernel_writes_binary_keys_and_values(as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / LOG_NAME
    contents = [None, b"", b"text", b"\xff", b"tab\t\0", b"\x7f" * 2048, bytes(range(256))]
    path.write_bytes(build([Record(at, 0, key, value) for at, (key, value) in enumerate(product(contents, contents))]))
    form = LineForm(label="a.log", file=LogFile.at(path), print_data=True, as_json=as_json, with_batches=not as_json)
    expected = by_definition(form)
    monkeypatch.delattr(record_lines, "_defined")
    assert by_runs(form, compiled=True) == expected


def test_logs_share_the_programs_of_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, made = tmp_path / LOG_NAME, list[LineForm]()
    path.write_bytes(build([Record(0, 0, b"k", b"v")]))
    (run,) = record_runs(LogFile.at(path))
    writer, program = RunLines(), record_lines._program

    def counted(form: LineForm) -> object:
        made.append(form)
        return program(form)

    monkeypatch.setattr(record_lines, "_program", counted)
    forms = [
        LineForm(label=label, file=LogFile.at(tmp_path / label), as_json=True, with_batches=False)
        for label in ("a", LABEL)
    ]
    lines = [b"".join(map(bytes, writer.of(form, run))) for form in forms]
    assert [json.loads(line)["file"] for line in lines] == ["a", LABEL]
    assert len(made) == 1


def test_a_marker_that_is_too_short_is_listed_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    path.write_bytes(build([Record(0, 0, b"k", b"v")]) + build([Record(1, 0, b"k", b"v")], control=True))
    form = LineForm(label="a.log", file=LogFile.at(path))
    for found in (by_definition(form), by_runs(form, compiled=True), by_runs(form, compiled=False)):
        assert found[0].count("\n") == 6
        assert found[0].endswith("decodeError: the key or value of the control record is too short\n")


def test_a_line_longer_than_the_space_and_full_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / LOG_NAME
    path.write_bytes(build([Record(number, 0, b"k", b"v" * (600 * (number % 3))) for number in range(40)]))
    form = LineForm(label="a.log", file=LogFile.at(path), print_data=True)
    monkeypatch.setattr(record_lines, "_OUT_BYTES", 1000)
    assert by_runs(form, compiled=True) == by_definition(form)


def test_chosen_records_come_with_their_batches(compiled: bool, tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME
    path.write_bytes(b"".join(build([Record(at, 0, b"k", b"v"), Record(at + 1, 0, b"k", b"v")]) for at in (0, 2, 4)))
    writer, form = RunLines(), LineForm(label="a.log", file=LogFile.at(path))
    (run,) = record_runs(LogFile.at(path))
    chosen = np.isin(run.offset, [1, 4, 5])
    lines = b"".join(writer.of(form, run, chosen)).decode().splitlines()
    assert [line.split()[:3][-2:] for line in lines] == [
        *(["0", "lastOffset:"], ["offset:", "1"]),
        *(["4", "lastOffset:"], ["offset:", "4"], ["offset:", "5"]),
    ]
