"""The command `report`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kcompact.cli.commands import report as command
from kcompact.format.batch import Record, build
from kcompact.host.installation import how_to_add
from kcompact.questions.keys.counts import key_hash
from tests.support import log_dsl, log_writer, txn_log
from tests.support.command_line import COMPACT, LOG3, digest, flip, kcompact, partition, running_broker, settings
from tests.support.html_tags import Tags
from tests.support.log_writer import LogSpec, SegmentSpec

T = 1_704_100_000_000

pytestmark = pytest.mark.long
"""Importing matplotlib takes half a second."""


def test_a_page(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs" / "<script>alert('x')</script>&{{ 7*7 }}")
    before = digest(tmp_path / "logs")
    page = tmp_path / "report.html"
    ran = kcompact("report", *COMPACT, directory, "-o", page)
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert ran.err.startswith("note:" if "note" in ran.err else "wrote ")
    assert digest(tmp_path / "logs") == before
    html = page.read_text(encoding="utf-8")
    read = Tags(html)
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form"}
    assert "alert('x')</script>&{{ 7*7 }}" in read.text
    for tag, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
    assert not re.findall(r"https?://(?!www\.w3\.org)|url\((?!#)|@import", html)
    assert "To be cleaned" in read.text
    assert "dirty-ratio" in read.text
    assert "kcompact clean --dry-run" in read.text
    assert "The second bar is exact" in read.text
    assert "have a record (100.0 %), 0 are missing" in read.text
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    again = kcompact("report", *COMPACT, directory, "-o", "-")
    assert again.out.rstrip() == html.rstrip()


@pytest.mark.usefixtures("without_figures")
def test_several_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.report.reading.MOST_DETAILED", 1)
    for number in range(2):
        partition(tmp_path / "logs", settings(f"name=orders-{number}"))
    log_writer.write(log_dsl.parse("log now=10:00 name=empty-0\n0:"), tmp_path / "logs")
    ran = kcompact("report", "--json", *COMPACT, tmp_path / "logs", "-o", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    assert ran.json["command"] == "report"
    assert ran.json["file"] == str(tmp_path / "report.html")
    assert [each["topic"] for each in ran.json["partitions"]] == ["orders", "orders", "empty"]
    page = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert sum(tag == "article" for tag, _ in page.tags) == 1
    for word in ("orders-0", "orders-1", "empty-0", "Why partitions are not cleaned"):
        assert word in page.text


@pytest.mark.usefixtures("without_figures")
def test_damage_is_shown_and_sets_the_exit_code(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    flip(directory / LOG3, 16, 0x77)
    ran = kcompact("report", *COMPACT, directory, "-o", tmp_path / "report.html")
    assert ran.code == 3
    assert LOG3 in ran.err
    page = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "corrupt" in page.text
    assert "kcompact verify" in page.text
    assert "segment 3: read up to byte 0, 0 records" in page.text


@pytest.mark.usefixtures("without_figures")
def test_damage_that_only_the_dry_run_finds_decides(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    flip(directory / LOG3, -3, 0x77)
    ran = kcompact("report", *COMPACT, directory, "-o", tmp_path / "report.html")
    assert ran.code == 3
    page = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "uncleanable corrupt - blocks, decides the dry run found damage" in page.text
    assert page.text.count(", decides") == 1
    assert "where the log is damaged" in page.text


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("prints_data", [False, True])
def test_keys_are_hashed_unless_asked_for_and_always_escaped(prints_data: bool, tmp_path: Path) -> None:
    keys = [b"<script>alert(1)</script>:1", b"{{ 7*7 }}:2", b"\xff\x00\x1b]0;x\x07:3", b"k" * 5000 + b":4"]
    records = [Record(number, T, key, b"value") for number, key in enumerate(keys)]
    segments = (SegmentSpec(base_offset=0, batches=(build(records),)), SegmentSpec(base_offset=len(keys)))
    directory = log_writer.write(LogSpec(segments=segments), tmp_path / "logs")
    options = ["--print-data"] if prints_data else []
    ran = kcompact("report", *COMPACT, *options, directory, "-o", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Tags(html)
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert "Key prefixes with most bytes" in page.text
    shown = ("<script>alert(1)</script>:1", "{{ 7*7 }}", "\\xff\\x00\\x1b]0;x\\x07", "k" * 80 + "... (4,922 more)")
    for text, key in zip(shown, keys, strict=True):
        assert (text in page.text) == prints_data, text
        assert (key_hash(key) in page.text) != prints_data
    assert "\x1b" not in html


@pytest.mark.usefixtures("without_figures")
def test_what_a_page_says_about_a_log(tmp_path: Path) -> None:
    """One log with transactions, tombstones, horizons, codecs and producers."""
    directory = log_writer.write(txn_log.SPEC, tmp_path / "logs")
    now = ("--config", "cleanup.policy=compact", "--now", str(txn_log.NOW))
    ran = kcompact("report", *now, directory, "-o", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    text = Tags((tmp_path / "report.html").read_text(encoding="utf-8")).text
    for said in (
        "What decides Everything that Kafka's cleaner asks",
        "last-stable-offset",
        "records for each key",
        "What the records are",
        "Tombstones and delete horizons",
        "Tombstones that are the newest records of their keys",
        "over: the next cleaning may remove them",
        "Gaps, and what they prove",
        "Codecs",
        "lz4",
        "Producers",
        "last stable 19, below the high watermark",
        "Open transactions, and the largest and longest that have ended",
        "markers 3 until the data of their transactions is gone",
        "Settings",
    ):
        assert said in text, said


@pytest.mark.usefixtures("without_figures")
def test_beside_a_running_broker(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs", settings("hw=7"))
    with running_broker(tmp_path / "logs"):
        ran = kcompact("report", *COMPACT, directory, "-o", tmp_path / "report.html")
    assert ran.code == 0, ran.err
    text = Tags((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "a broker is running" in text
    assert "kcompact clean" not in text
    assert "The second bar is exact" in text


@pytest.mark.usefixtures("without_figures")
def test_paths_without_a_partition(tmp_path: Path) -> None:
    missing, page = tmp_path / "missing", tmp_path / "report.html"
    alone = kcompact("report", "--json", *COMPACT, missing, "-o", page)
    assert (alone.code, alone.json["file"], page.exists()) == (4, None, False)
    assert "no such directory" in alone.json["partitions"][0]["error"]
    both = kcompact("report", *COMPACT, missing, partition(tmp_path / "logs"), "-o", page)
    assert both.code == 4
    text = Tags(page.read_text(encoding="utf-8")).text
    assert "no such directory" in text
    assert "To be cleaned" in text


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    ran = kcompact("report", *COMPACT, partition(tmp_path / "logs"), "-o", tmp_path / "report.html")
    assert ran.code == 4
    assert f"a report needs jinja2 and matplotlib (import of {library}" in ran.err
    assert ran.err.endswith(f"; {how_to_add('report')}\n")
    assert not (tmp_path / "report.html").exists()


def test_json_and_the_page_exclude_each_other_on_standard_output(tmp_path: Path) -> None:
    ran = kcompact("report", "--json", *COMPACT, partition(tmp_path / "logs"), "-o", "-")
    assert ran.code == 2


def test_the_next_commands_have_no_options_of_the_report() -> None:
    typed = ("report", "-o", "x.html", "-oy.html", "--output=z.html", "--memory", "1g", "--topic", "a", "p", "--", "-o")
    assert command._shared_arguments(typed) == ["report", "--topic", "a", "p", "--", "-o"]
