"""A new question is two modules and a name in a list: those of CONTRIBUTING.md are tried in a copy of the package."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import log_dsl, log_writer
from tests.support.command_line import COMPACT, IMPORTED_FROM, ROOT, environment
from tests.support.spark_runs import SPARK

MOST_LINES = 90
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MODULES = dict(re.findall(r"\*\*(kcompact/[\w/]*sizes\.py)\*\*[^`]*```python\n(.*?)```", GUIDE, re.DOTALL))
LOG = "log now=10:00\n0: a:1=x a:2=xxxx b:1=~\n3: [a:1=xx b:2=y] c=1\n6: a:1=x"
FOUND = [("a", 4, 20, 7), ("b", 2, 7, 4), ("c", 1, 2, 2)]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory with a copy of the package that has the two modules and the name."""
    package = tmp_path / "copy" / "kcompact"
    shutil.copytree(IMPORTED_FROM / "kcompact", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in MODULES.items():
        (package.parent / name).write_text(content)
    app = package / "cli" / "app.py"
    app.write_text(app.read_text().replace('        "groups",\n', '        "groups",\n        "sizes",\n'))
    return package.parent


def test_the_modules_are_short() -> None:
    assert list(MODULES) == ["kcompact/questions/sizes.py", "kcompact/cli/commands/sizes.py"]
    assert sum(len(content.splitlines()) for content in MODULES.values()) <= MOST_LINES


@pytest.mark.parametrize("engine", ["in-process", pytest.param("spark", marks=SPARK)])
def test_a_new_question(engine: str, package: Path, tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse(LOG), tmp_path / "logs")
    command = [sys.executable, "-m", "kcompact", "sizes", "--engine", engine, *COMPACT, str(directory)]
    env = {**environment(), "PYTHONPATH": str(package)}
    shown, listed = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout
        for more in ([], ["--json"])
    )
    (partition,) = json.loads(listed)["partitions"]
    assert [tuple(each.values()) for each in partition["sizes"]] == FOUND
    assert [line.split() for line in shown.splitlines() if line.strip()][2:] == [
        [prefix, *map(str, numbers)] for prefix, *numbers in FOUND
    ]
