"""Print what a build of the package needs, from pyproject.toml, for `pip install`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    sys.stdout.write(" ".join(project["build-system"]["requires"]))
