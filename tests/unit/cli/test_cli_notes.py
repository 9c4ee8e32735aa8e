"""Notes and hints on a whole run: once for all partitions, on standard error and in the JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import (
    NOW,
    digest,
    kcompact,
    partition,
)

POLICY = ("--config", "cleanup.policy=compact")


@pytest.mark.parametrize(("now", "doubts"), [("2023-06-01T00:00:00Z", 1), (NOW, 0)])
def test_the_question_starts_with_the_doubt(
    now: str, doubts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    monkeypatch.setattr("kcompact.cli.consent.is_needed", lambda *_, **__: True)
    ran = kcompact("clean", "--engine", "in-process", *POLICY, "--now", now, directory)
    assert ran.code == 130
    above, question, _ = ran.err.partition("Clean 1 partition")
    assert question
    assert above.count("note: --now is ") == doubts
    assert above.rstrip().splitlines()[-1:] != [] or not doubts
    assert digest(tmp_path) == before
