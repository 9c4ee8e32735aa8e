"""`records --format`, `--output` and `--limit`: what is written where, what is refused, and lists of damaged logs."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from kcompact.format.batch import Record, build
from kcompact.host.installation import how_to_add
from tests.support import log_dsl, log_writer
from tests.support.command_line import COMPACT, ROOT, flip, kcompact, partition
from tests.support.forks import READING, Run, forked

LOG = """
log
0: a=1 [b=2 c=~](lz4) d=4
4: a=5 b=~ "e f"=6{h=x} number="\x00\x00\x00\x07"
8: a=9
"""
OFFSETS = [0, 1, 2, 3, 4, 5, 6, 7, 8]
FIRST = "00000000000000000000.log"
SUFFIXES = [".parquet", ".arrow", ".csv", ".jsonl"]


def log(tmp_path: Path) -> Path:
    return partition(tmp_path / "logs", LOG)


def offsets_in(path: Path) -> list[int]:
    match path.suffix:
        case ".parquet":
            return polars.read_parquet(path)["offset"].to_list()
        case ".arrow":
            return polars.read_ipc(path)["offset"].to_list()
        case ".csv":
            return [int(row["offset"]) for row in csv.DictReader(io.StringIO(path.read_text(), newline=""))]
        case _:
            rows = map(json.loads, path.read_text().splitlines())
            return [row["offset"] for row in rows if "offset" in row]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], OFFSETS),
        (["--print-data"], OFFSETS),
        (["--key", "a"], [0, 4, 8]),
        (["--tombstones"], [2, 5]),
        (["--limit", "5"], [0, 1, 2, 3, 4]),
        (["--limit", "2", "--key", "a"], [0, 4]),
        (["--from-offset", "3", "--until-offset", "5"], [3, 4]),
        (["--key", "nobody"], []),
        (["--from-offset", "5", "--until-offset", "5"], []),
    ],
)
def test_records_in_a_file(suffix: str, options: list[str], expected: list[int], tmp_path: Path) -> None:
    target = tmp_path / f"records{suffix}"
    ran = kcompact("records", "--output", target, *options, log(tmp_path))
    assert (ran.code, ran.out) == (0, "")
    assert f"{len(expected)} records written to {target}\n" in ran.err
    assert offsets_in(target) == expected


def test_several_partitions_and_single_files(tmp_path: Path) -> None:
    first = log(tmp_path)
    second = log_writer.write(log_dsl.parse("log name=users-3\n10: k=v"), tmp_path / "logs")
    lone = tmp_path / "lone" / FIRST
    lone.parent.mkdir()
    lone.write_bytes((first / FIRST).read_bytes())
    target = tmp_path / "records.parquet"
    assert kcompact("records", "--output", target, first, second, lone).code == 0
    frame = polars.read_parquet(target)
    found = frame.select("topic", "partition", "segment").unique(maintain_order=True).rows()
    assert sorted(found, key=str) == sorted(
        [(None, None, 0), ("orders", 0, 0), ("orders", 0, 4), ("orders", 0, 8), ("users", 3, 10)], key=str
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_decoded_columns(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"records{suffix}"
    ran = kcompact("records", "--output", target, "--value-decoder", "int", "--key-decoder", "utf8", log(tmp_path))
    assert ran.code == 0
    assert "6 values could not be decoded as int" in ran.err
    frame = polars.read_parquet(target) if suffix == ".parquet" else polars.read_csv(target)
    assert frame["value_decoded"].to_list() == [7 if offset == 7 else None for offset in OFFSETS]
    assert frame["key_decoded"].to_list() == ["a", "b", "c", "d", "a", "b", "e f", "number", "a"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_decoded_value_ends_an_export(suffix: str, tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    values = [b'"\\ud800"', b"[" * 100_000, b"9" * 5000, b"1e999", b'"\\u0000"', b"\xff", b""]
    batches = [build([Record(number, 1000, b"k", value)]) for number, value in enumerate(values)]
    (directory / FIRST).write_bytes(b"".join(batches))
    target = tmp_path / f"records{suffix}"
    ran = kcompact("records", "--output", target, "--value-decoder", "json", directory)
    assert ran.code == 0
    assert "6 values could not be decoded as json" in ran.err
    assert offsets_in(target) == list(range(len(values)))


def columns_in_docs() -> set[str]:
    """The names in the table of docs/records.md, without those of CSV."""
    table = (ROOT / "docs" / "records.md").read_text().partition("### Columns")[2].partition("Without")[0]
    return {name for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}


def test_the_docs_have_all_columns_and_their_query_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = log(tmp_path)
    decoders = ("--key-decoder", "utf8", "--value-decoder", "utf8")
    kcompact("records", "--output", tmp_path / "prices.parquet", *decoders, directory)
    kcompact("records", "--output", tmp_path / "sizes.parquet", directory)
    found = {*polars.read_parquet_schema(tmp_path / "prices.parquet")}
    assert found | {*polars.read_parquet_schema(tmp_path / "sizes.parquet")} == columns_in_docs()
    (query,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "records.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    rows = duckdb.connect().execute(query).fetchall()
    assert rows[:2] == [("a", "9", 3), ("b", "2", 2)]


# Layouts on standard output


def test_formulas_are_guarded_on_request_and_in_csv_only(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / FIRST).write_bytes(build([Record(0, 1000, b"=1+1", b"@x")]))
    (directory / FIRST).chmod(0o600)
    words = ("records", "--print-data", "--value-decoder", "utf8", "--guard-formulas")
    printed = kcompact(*words, "--format", "csv", directory)
    assert kcompact(*words, "--output", tmp_path / "x.csv", directory).code == 0
    assert (tmp_path / "x.csv").stat().st_mode & 0o777 == 0o600
    for text in (printed.out, (tmp_path / "x.csv").read_text()):
        (row,) = csv.DictReader(io.StringIO(text, newline=""))
        assert (row["key"], row["value"], row["value_decoded"]) == ("'=1+1", "'@x", "'@x")
    for options in ((), ("--json",), ("--output", tmp_path / "x.parquet")):
        refused = kcompact(*words, *options, directory)
        assert refused.code == 2
        assert "--guard-formulas is for CSV" in refused.err


def test_csv_on_standard_output(tmp_path: Path) -> None:
    ran = kcompact("records", "--format", "csv", "--print-data", log(tmp_path))
    rows = list(csv.DictReader(io.StringIO(ran.out, newline="")))
    assert [row["key"] for row in rows] == ["a", "b", "c", "d", "a", "b", "e f", "number", "a"]
    assert rows[2]["value_size"] == ""


def test_json_lines_are_those_of_json(tmp_path: Path) -> None:
    directory = log(tmp_path)
    by_format = kcompact("records", "--format", "jsonl", directory)
    assert by_format.out == kcompact("records", "--json", directory).out
    target = tmp_path / "records.jsonl"
    kcompact("records", "--output", target, directory)
    assert target.read_text() == by_format.out


def test_a_table(tmp_path: Path) -> None:
    ran = kcompact("records", "--format", "table", "--print-data", log(tmp_path))
    head, *rows = [line.split() for line in ran.out.splitlines()]
    assert head[:4] == ["partition", "offset", "time", "key"]
    assert [row[1] for row in rows] == [str(offset) for offset in OFFSETS]
    assert rows[2][-1] == "tombstone"
    assert "0x00000007" in ran.out


def test_a_table_is_bounded(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs", "log\n0: " + " ".join(f"k{number}=v" for number in range(150)))
    ran = kcompact("records", "--format", "table", directory)
    assert len(ran.out.splitlines()) == 101
    assert "--limit N shows more" in ran.err
    assert len(kcompact("records", "--format", "table", "--limit", "120", directory).out.splitlines()) == 121


# What is refused


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--output", "records.txt"], "--output needs a FILE that ends with"),
        (["--output", "records"], "--output needs a FILE that ends with"),
        (["--output", "a.csv", "--format", "csv"], "--output excludes --format"),
        (["--output", "a.parquet", "--batches"], "--batches is for text and JSON Lines"),
        (["--format", "csv", "--decode"], "--decode is for text and JSON Lines"),
        (["--format", "table", "--json"], "--json excludes --format table"),
        (["--limit", "0"], "0 is not in the range"),
    ],
)
def test_usage(arguments: list[str], problem: str, tmp_path: Path) -> None:
    ran = kcompact("records", *arguments, log(tmp_path))
    assert ran.code == 2
    assert problem in " ".join(ran.err.split())


def test_an_existing_file_and_a_file_in_a_log_are_refused(tmp_path: Path) -> None:
    directory = log(tmp_path)
    existing = tmp_path / "records.csv"
    existing.write_text("mine")
    for target, problem in ((existing, "exists already"), (directory / "records.csv", "directory of a log")):
        ran = kcompact("records", "--output", target, directory)
        assert ran.code == 4
        assert problem in ran.err
    assert existing.read_text() == "mine"
    assert not (directory / "records.csv").exists()


WITHOUT_PYARROW = """
if "--output" in sys.argv:
    sys.modules["pyarrow"] = None
try:
    main()
finally:
    if "--output" not in sys.argv:
        print(sorted({"pyarrow", "rich"} & sys.modules.keys()))
"""
FEW = [["--print-data"], ["--key", "a", "--since", "0", "--limit", "1", "--json"]]


def test_what_is_loaded_and_what_needs_pyarrow(tmp_path: Path) -> None:
    """A list of few records loads nothing of others. Without pyarrow, the formats that need it are refused."""
    directory = log(tmp_path)
    targets = [tmp_path / f"records{suffix}" for suffix in SUFFIXES]
    runs = [Run(arguments=["records", *options, directory]) for options in FEW]
    runs += [Run(arguments=["records", "--output", target, directory], cwd=tmp_path) for target in targets]
    done = forked(runs, warm=READING, program=WITHOUT_PYARROW)
    for ran in done[: len(FEW)]:
        assert (ran.returncode, len(ran.stdout.splitlines()) > 1) == (0, True)
        assert ran.stdout.splitlines()[-1] == "[]"
    for target, ran in zip(targets, done[len(FEW) :], strict=True):
        if target.suffix in (".csv", ".jsonl"):
            assert (ran.returncode, target.exists()) == (0, True)
        else:
            assert ran.returncode == 4
            assert ran.stderr.endswith(f"; use .csv or .jsonl, or {how_to_add('arrow')}\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["logs", "records.csv", "records.jsonl"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    directory = log(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    ran = kcompact("records", "--output", tmp_path / f"records{suffix}", directory)
    assert ran.code == 7
    assert [each.name for each in tmp_path.iterdir()] == ["logs"]


# Damage


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_log_is_written_without_the_damage(suffix: str, tmp_path: Path) -> None:
    directory = log(tmp_path)
    flip(directory / FIRST, 65)
    target = tmp_path / f"records{suffix}"
    ran = kcompact("records", "--output", target, directory)
    assert ran.code == 3
    assert "position 0, offset 0" in ran.err
    assert "bytes up to position" in ran.err
    assert offsets_in(target) == OFFSETS[1:]


@pytest.mark.parametrize("options", [[], ["--key", "d"], ["--limit", "100"]])
def test_parts_that_cannot_be_read_are_listed(options: list[str], tmp_path: Path) -> None:
    directory = log(tmp_path)
    data = (directory / FIRST).read_bytes()
    (directory / FIRST).write_bytes(data[:65] + b"?" + data[66:-5])
    ran = kcompact("records", "--json", *options, *COMPACT, directory)
    assert ran.code == 3
    parts = [line for line in ran.lines if "unreadable" in line]
    assert [(each["afterOffset"], each["endPosition"]) for each in parts] == [(None, 70), (2, len(data) - 5)]
    assert "2 parts with" in ran.err
    text = kcompact("records", directory)
    assert f"invalid bytes at the end of {FIRST}" in text.out


@pytest.mark.parametrize("options", [[], ["--from-offset", "1"], ["--transaction", "none"]])
def test_what_the_disk_does_not_give_back_is_damage(
    options: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    batches = [build([Record(number, 1000, b"k", bytes([97 + number]) * 5000)]) for number in range(5)]
    (directory / FIRST).write_bytes(b"".join(batches))
    start = 2 * len(batches[0])
    bad_page = range(-(-start // 4096) * 4096, -(-start // 4096) * 4096 + 4096)  # It has the end of 2 and some of 3.
    for name, length_of in (("pread", int), ("preadv", lambda buffers: sum(map(len, buffers)))):
        monkeypatch.setattr(os, name, failing(getattr(os, name), bad_page, length_of))
    ran = kcompact("records", "--json", *options, directory)
    assert ran.code == 3
    assert [line["offset"] for line in ran.lines if "offset" in line] == [0, 1, 4][
        1 if "--from-offset" in options else 0 :
    ]
    assert {line["unreadable"] for line in ran.lines if "unreadable" in line} == {
        f"position {bad_page.start}: Input/output error"
    }
    assert f"position {bad_page.start}: Input/output error; " in ran.err
    if not compiled:  # The kernels read headers by the system's own calls.
        assert ("may have ended otherwise" in ran.err) == ("--transaction" in options)


def failing(read: Any, bad: range, length_of: Any) -> Any:
    def fails_there(descriptor: int, what: Any, position: int, *rest: Any) -> Any:
        if position < bad.stop and position + length_of(what) > bad.start and os.fstat(descriptor).st_size > bad.stop:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, what, position, *rest)

    return fails_there


def test_the_offsets_of_a_segment_end_where_the_next_one_starts(tmp_path: Path) -> None:
    directory = log(tmp_path)
    with (directory / FIRST).open("ab") as file:
        file.write(build([Record(6, 1000, b"k", b"v")]))
    ran = kcompact("records", "--json", directory)
    assert ran.code == 3
    assert "last offset 6, but the next segment starts at 4" in ran.err
    assert [line["offset"] for line in ran.lines if "offset" in line] == OFFSETS
    assert kcompact("records", directory / FIRST).code == 0


def test_a_directory_without_a_log_ends_no_list(tmp_path: Path) -> None:
    directory = log(tmp_path)
    (directory.parent / "empty-0").mkdir()
    ended = kcompact("records", "--json", directory.parent)
    assert [json.loads(line)["offset"] for line in ended.out.splitlines()] == OFFSETS
    assert ended.code == 4
    assert "empty-0: not a partition directory: it contains no .log file" in ended.err


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_file_is_written_when_no_path_is_a_log(tmp_path: Path, suffix: str) -> None:
    directory = log(tmp_path)
    index, output = directory / "00000000000000000000.index", tmp_path / f"records{suffix}"
    ended = kcompact("records", "--output", output, index, tmp_path / "logs" / "empty-0")
    assert ended.code == 4
    assert "only .log files and partition directories have batches and records" in ended.err
    assert not output.exists()
