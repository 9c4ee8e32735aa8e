"""The mark of an unfinished copy in an output that brokers may use."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from kcompact.swap.copy.unfinished import mark, remove_unfinished, unmark
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import Step


def test_a_complete_copy_is_never_taken_for_one_that_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run sweeps the log directory before each step of the end."""
    name = f"orders-0.{'0' * 32}-delete"
    (tmp_path / name).mkdir()
    really = OpenDirectory.apply_step
    swept: list[str] = []

    def sweep(directory: OpenDirectory, step: Step, present: set[str] | None = None) -> None:
        if directory.path.name == name:
            with OpenDirectory(tmp_path) as log_dir:
                swept.extend(remove_unfinished(log_dir))
        really(directory, step, present)

    with OpenDirectory(tmp_path / name) as directory, ExitStack() as stack:
        mark(directory, stack)
        monkeypatch.setattr(OpenDirectory, "apply_step", sweep)
        unmark(directory)
    assert swept == []
    assert list((tmp_path / name).iterdir()) == []
