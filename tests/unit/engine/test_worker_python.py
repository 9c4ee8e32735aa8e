"""The Python of Spark's workers is asked for kcompact before a job starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles

from kcompact.engine.spark.worker_python import check_workers
from kcompact.errors import UnsupportedError


class Context:
    """What a SparkContext says of its workers."""

    def __init__(self, python: str, *, master: str = "local[2]", **environment: str) -> None:
        self.pythonExec = python
        self.master = master
        self.environment = environment


def check(context: Context, *, needs_arrow: bool = False) -> None:
    fake: Any = context
    check_workers(fake, path="kafka-log", needs_arrow=needs_arrow)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python without any package."""
    (tmp_path / "shipped").mkdir()
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "shipped"))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path / "empty")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def package(directory: Path, *names: str) -> str:
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").touch()
    return str(directory)


def test_the_python_without_kcompact_is_named(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError) as raised:
        check(Context(bare))
    assert raised.value.exit_code == 4
    assert str(raised.value) == (
        f"kafka-log: Spark has taken {bare} for its workers, and that Python has no kcompact\n"
        f"Set PYSPARK_PYTHON={sys.executable} before Spark starts, or activate its environment."
    )
    monkeypatch.setenv("PATH", str(Path(bare).parent), prepend=os.pathsep)
    with pytest.raises(UnsupportedError, match=rf"has taken python3 \({bare}\) for its workers"):
        check(Context("python3"))


def test_of_a_cluster_only_the_planning_is_here(bare: str) -> None:
    check(Context(bare, master="spark://host:7077"))
    with pytest.raises(UnsupportedError, match="no kcompact"):
        check(Context(bare, master="spark://host:7077"), needs_arrow=True)


@pytest.mark.parametrize("by", ["environment", "executorEnv", "shipped", "here"])
def test_kcompact_is_found_wherever_workers_import_it_from(
    by: str, bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # With it no Python has the current directory in its path.
    where = {"shipped": "shipped/one.zip", "here": "empty"}.get(by, "elsewhere")
    path = package(tmp_path / where, "kcompact")
    if by == "environment":
        monkeypatch.setenv("PYTHONPATH", path)
    context = Context(bare, **({"PYTHONPATH": path} if by == "executorEnv" else {}))
    check(context)
    with pytest.raises(UnsupportedError, match=r"no pyarrow\n.*pip install 'kcompact\[spark,arrow\]'"):
        check(context, needs_arrow=True)
    package(tmp_path / where, "pyarrow")
    if by != "here":  # The answer is kept.
        context.environment["PYTHONPATH"] = os.pathsep.join((path, "again"))
        check(context, needs_arrow=True)


def test_a_python_that_cannot_be_asked_is_left_to_spark(bare: str, tmp_path: Path) -> None:
    check(Context(str(tmp_path / "missing")))
    Path(bare).write_text("#!/bin/sh\nexit 3\n")
    check(Context(bare))


def test_the_python_of_this_process_is_not_started(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    check(Context(sys.executable), needs_arrow=True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match="no pyarrow"):
        check(Context(sys.executable), needs_arrow=True)
