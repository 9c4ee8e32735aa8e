"""Values as text for a terminal: foreign text is escaped, sizes, times and numbers have one form."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import readable
from kcompact.views import outcome
from tests.support.command_line import CONTROL, kcompact, partition


@given(st.text() | st.binary())
def test_safe_text_has_no_control_character(foreign: str | bytes) -> None:
    shown = readable.safe(foreign)
    assert not CONTROL.search(shown)
    assert "\n" not in shown
    shown.encode()


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("plain ünïcode", "plain ünïcode"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("tab\tline\n", "tab\\x09line\\x0a"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\ud800", "\\ud800"),
        ("[bold]:smile:", "[bold]:smile:"),
    ],
)
def test_safe(foreign: str | bytes, shown: str) -> None:
    assert readable.safe(foreign) == shown


NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=40)


@given(name=NAMES)
def test_names_on_the_disk_cannot_speak_to_the_terminal(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if name in (".", "..") or name.startswith("0000"):
        return
    directory = partition(tmp_path_factory.mktemp("names"))
    try:
        (directory / name).write_bytes(b"")
    except OSError:
        return  # Too long in UTF-8.
    for arguments in (["verify"], ["plan"], ["inspect", "--json"], ["recover"]):
        ran = kcompact(*arguments, directory)
        assert not CONTROL.search(ran.out + ran.err)
    for where in (directory / name, tmp_path_factory.mktemp("no") / name):
        ran = kcompact("inspect", where)
        assert not CONTROL.search(ran.out + ran.err)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1288490189, "1.2 GiB"), (1048575, "1.0 MiB")],
)
def test_sizes(count: int, shown: str) -> None:
    assert readable.size(count) == shown


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (-1, "-"),
        (None, "-"),
        (0, "1970-01-01T00:00:00Z"),
        (1700000000123, "2023-11-14T22:13:20.123Z"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_times(timestamp: int | None, shown: str) -> None:
    assert readable.time(timestamp) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.05, "0.1"),
        (0.25, "0.3"),
        (1234.5678, "1,234.6"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-0.04, "-0.0"),
    ],
)
def test_numbers_are_rounded_as_in_java(value: float, shown: str) -> None:
    assert outcome.java_number(value) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("error: HERE/orders-0: damaged", "error: orders-0: damaged"),
        ("cp 'HERE/a b' (HERE/c) --to=HERE/d", "cp 'a b' (c) --to=d"),
        ("pip install 'k @ file://HERE/k.whl'", "pip install 'k @ file://HERE/k.whl'"),
        ("/mnt-HERE/x /mntHERE/x", "/mnt-HERE/x /mntHERE/x"),
        ("HERE HEREx/y", "HERE HEREx/y"),
    ],
)
def test_paths_below_the_working_directory_are_relative(
    message: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    assert readable.relative_to_here(message.replace("HERE", here)) == shown.replace("HERE", here)
