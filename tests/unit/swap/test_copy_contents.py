"""What is to be copied, and whether that has changed meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kcompact.errors import LogChangedError, RefusedError
from kcompact.swap.copy.contents import raised_as_changes
from kcompact.swap.open_directory import OpenDirectory


def test_a_source_that_may_no_longer_be_opened_has_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(RefusedError, match="cannot be opened: Permission denied"), raised_as_changes():
        OpenDirectory(tmp_path)
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(LogChangedError, match="was changed or replaced"), raised_as_changes():
        OpenDirectory(tmp_path / "file")
