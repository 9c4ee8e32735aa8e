"""The fixture `compact`, as a project uses it that has installed kcompact."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from kcompact.errors import CorruptDataError
from kcompact.pytest_plugin import Compact
from tests.support.command_line import COMPACTED, NOW, ROOT, flip, partition, settings, values

EXAMPLE = ROOT / "examples" / "compacted-topic"
MOMENT = datetime(2024, 1, 1, 10, tzinfo=UTC)


@pytest.mark.long
def test_the_example_project_finds_the_fixture_by_itself(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--basetemp", str(tmp_path / "scratch")]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


@pytest.mark.parametrize(
    "now",
    [
        1_704_103_200_000,
        NOW,
        "2024-01-01T10:00:00",
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.astimezone(timezone(timedelta(hours=5))),
        None,
    ],
    ids=str,
)
def test_the_time_has_several_forms(now: int | str | datetime | None, tmp_path: Path, compact: Compact) -> None:
    directory = partition(tmp_path)
    result = compact(tmp_path, now=now)
    plan = result.partitions[0].plan
    assert plan is not None
    assert now is None or plan.now_ms == 1_704_103_200_000
    assert values(directory) == COMPACTED


@pytest.fixture(scope="session")
def compacted(compact: Compact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that is compacted once for all tests: the fixture is of the session."""
    directory = tmp_path_factory.mktemp("once")
    partition(directory)
    compact(directory, now=NOW)
    return directory


def test_a_fixture_of_the_session_can_use_it(compacted: Path) -> None:
    assert values(compacted / "orders-0") == COMPACTED


def test_it_cleans_below_the_ratio_unless_told_otherwise(tmp_path: Path, compact: Compact) -> None:
    partition(tmp_path)
    ratio = {"min.cleanable.dirty.ratio": "1"}
    assert compact(tmp_path, now=NOW, config=ratio, force=False).partitions[0].status == "skipped"
    assert compact(str(tmp_path / "orders-0"), now=NOW, config=ratio).partitions[0].status == "cleaned"


def test_a_failure_is_raised(tmp_path: Path, compact: Compact) -> None:
    partition(tmp_path, settings("name=sound-0"))
    flip(partition(tmp_path) / f"{0:020d}.log", 100)
    with pytest.raises(CorruptDataError):
        compact(tmp_path, now=NOW)
