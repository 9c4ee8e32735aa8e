"""Print a pip constraints file that pins each dependency of pyproject.toml, extras included, to its lower bound."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lower_bounds(text: str) -> Iterator[str]:
    """Yield `name==version` for each requirement. Raises SystemExit for one without a lower bound.

    An extra may name others of the same project, whose own requirements are in the list.
    """
    project = tomllib.loads(text)["project"]
    for requirements in (project["dependencies"], *project["optional-dependencies"].values()):
        for requirement in requirements:
            if requirement.startswith(f"{project['name']}["):
                continue
            bound = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?\s*>=\s*([\w.]+)", requirement)
            if bound is None:
                sys.exit(f"pyproject.toml: {requirement} has no lower bound; write name>=version")
            yield f"{bound[1]}=={bound[2]}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in sorted(set(lower_bounds(PYPROJECT.read_text(encoding="utf-8")))))
