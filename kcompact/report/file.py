"""The file of a report. Nothing but an older report is replaced."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kcompact.errors import UnsupportedError
from kcompact.export.files import new_file, require_new
from kcompact.format.names import Suffix
from kcompact.host.installation import how_to_add
from kcompact.log.files import open_regular

MARK = '<meta name="generator" content="kcompact report">'
"""Stands near the start of each report, and in no other file."""
_MARK_WITHIN = 512


def require_libraries(file: Path) -> None:
    """Raise UnsupportedError for a file if the libraries of the extra `report` are not installed."""
    try:
        import jinja2
        import matplotlib

        del jinja2, matplotlib
    except ImportError as problem:
        raise UnsupportedError(
            path=file,
            problem=f"a report needs jinja2 and matplotlib ({problem}); {how_to_add('report')}",
        ) from problem


def require_writable(file: Path, directories: Collection[Path]) -> None:
    """Raise an error if a report cannot be written to a file, as far as is known before it is written.

    Raises RefusedError for a file in a log, and for one that exists and is no report; StorageError.
    """
    require_new(file.absolute(), directories, may_replace=_is_report)


def write_report(file: Path, content: str, directories: Collection[Path]) -> None:
    """Write a report to a file, all of it or nothing. Raises as `require_writable`, and NotEnoughSpaceError."""
    logs = [log for directory in directories for log in directory.glob(f"*{Suffix.LOG}")]
    with new_file(file.absolute(), directories, logs, may_replace=_is_report) as written:
        written.write(content.encode())


def _is_report(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    with open_regular(file) as opened:
        return MARK.encode() in opened.read(_MARK_WITHIN, 0)
