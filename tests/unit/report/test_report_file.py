"""Where a report may be written, and that it is written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kcompact.errors import KcompactError, RefusedError
from kcompact.report.file import MARK, write_report
from tests.support.command_line import partition

PAGE = f"<!doctype html>\n{MARK}\nnew"


def test_a_report_replaces_an_older_one_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_report(target, PAGE.replace("new", "old"), [])
    write_report(target, PAGE, [])
    assert target.read_text() == PAGE
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def status_of(path: Path) -> dict[str, int]:
    """Return the status of a path, without the time of the last access: to read a file is no change."""
    status = os.lstat(path)
    names = [name for name in dir(status) if name.startswith("st_") and not name.startswith("st_atime")]
    return {name: getattr(status, name) for name in names}


@pytest.mark.parametrize("kind", ["text", "empty", "directory", "link", "pipe"])
def test_what_is_no_report_is_not_replaced(kind: str, tmp_path: Path) -> None:
    target, other = tmp_path / "report.html", tmp_path / "other.html"
    other.write_text(PAGE)
    match kind:
        case "text":
            target.write_text("<!doctype html>\nmine")
        case "empty":
            target.touch()
        case "directory":
            target.mkdir()
        case "link":
            target.symlink_to(other)
        case "pipe":
            os.mkfifo(target)
    before = status_of(target)
    with pytest.raises(RefusedError, match="exists already") as refused:
        write_report(target, PAGE, [])
    assert "Pass another FILE" in str(refused.value)
    assert status_of(target) == before


@pytest.mark.parametrize("where", [".", "orders-0", "orders-0/below", "linked"])
def test_no_report_is_written_into_a_log(where: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    (directory / "below").mkdir()
    (tmp_path / "logs" / "linked").symlink_to(directory)
    with pytest.raises(RefusedError, match="lies in a directory of a log"):
        write_report(tmp_path / "logs" / where / "report.html", PAGE, [directory])


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="is in no directory"):
        write_report(tmp_path / "missing" / "report.html", PAGE, [])


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_the_older_report(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    write_report(target, PAGE.replace("new", "old"), [])

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(KcompactError) as failed:
        write_report(target, PAGE, [])
    monkeypatch.undo()
    assert failed.value.exit_code == 7
    assert target.read_text().endswith("old")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
