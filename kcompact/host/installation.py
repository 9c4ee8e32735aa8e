"""What adds the libraries of an extra to this kcompact, whichever way it was installed.

    >>> how_to_add("report")
    "run: /opt/kcompact/bin/python -m pip install 'jinja2>=3.1' 'matplotlib>=3.9'"

A command names what kcompact was installed from: the checkout, the wheel, the URL. Where that is gone, or not known,
it names the packages of the extra themselves. Without `direct_url.json` kcompact comes from an index or from
`--find-links`, and the index that pip asks now may have no kcompact.
Sources: the standards on `direct_url.json` and on core metadata (packaging.python.org), the files that pipx and uv
keep in the environment of a tool.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kcompact.readable import shell_word
from kcompact.values import dataclass

PACKAGE = "kcompact"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An installed kcompact. `origin` is its `direct_url.json`, None if it has none.

    `requires` are the requirements of the metadata, those of all extras included. `is_archive`: the executable of an
    archive that brings its own Python.
    """

    python: str
    prefix: Path
    has_pip: bool = True
    is_archive: bool = False
    origin: Mapping[str, Any] | None = None
    requires: Sequence[str] = ()

    @classmethod
    def of_this_process(cls) -> Installation:
        """Return the installation that runs. Without metadata it is taken for a checkout that was not installed."""
        from importlib.metadata import distributions  # It loads slowly, and only an error needs it.

        origin: Mapping[str, Any] | None = None
        requires: Sequence[str] = ()
        root = Path(__file__).parents[2]
        # A build leaves metadata in a checkout that nobody has installed: it names no installer.
        installed = (each for each in distributions(name=PACKAGE) if each.read_text("INSTALLER"))
        if distribution := next(installed, None):
            text = distribution.read_text("direct_url.json")
            origin, requires = json.loads(text) if text else None, distribution.requires or ()
        elif (root / "pyproject.toml").exists():
            origin = {"url": root.as_uri(), "dir_info": {"editable": True}}
        return cls(
            python=sys.executable,
            prefix=Path(sys.prefix),
            has_pip=find_spec("pip") is not None,
            is_archive=bool(getattr(sys, "frozen", False)),
            origin=origin,
            requires=requires,
        )

    def command(self, extra: str) -> list[str]:
        """Return the command that adds the libraries of an extra."""
        source = self._source(extra)
        if (self.prefix / "pipx_metadata.json").exists():
            return ["pipx", "inject", self.prefix.name, *self._packages(extra)]
        by_name = [f"{PACKAGE}[{extra}]"]
        if (self.prefix / "uv-receipt.toml").exists() and (source or self.origin is None):
            return ["uv", "tool", "install", *(source or by_name)]
        # The environments of uv have no pip.
        pip = [self.python, "-m", "pip", "install"] if self.has_pip else ["uv", "pip", "install", "-p", self.python]
        return [*pip, *(source or self._packages(extra) or by_name)]

    def _source(self, extra: str) -> list[str]:
        """Return the arguments that name where this comes from, with the extra. Empty if that is gone or unknown."""
        if self.origin is None:
            return []
        url = str(self.origin["url"])
        if self._path is not None and not self._path.exists():
            return []
        if self._path is not None and self.origin.get("dir_info", {}).get("editable"):
            return ["-e", f"{self._path}[{extra}]"]
        if vcs := self.origin.get("vcs_info"):
            url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        return [f"{PACKAGE}[{extra}] @ {url}"]

    @cached_property
    def _path(self) -> Path | None:
        """The directory or the file that this was installed from, None for another URL."""
        url = urlsplit(str(self.origin["url"]) if self.origin else "")
        return Path(unquote(url.path)) if url.scheme == "file" else None

    def _packages(self, extra: str) -> list[str]:
        """Return the requirements of an extra, such as `pyarrow>=17`."""
        of_extra = re.compile(rf"""extra\s*==\s*['"]{extra}['"]""")
        requirements = [each.partition(";") for each in self.requires]
        return [requirement.strip() for requirement, _, marker in requirements if of_extra.search(marker)]


def how_to_add(extra: str, to: Installation | None = None) -> str:
    """Return the end of a sentence: what to type, so that the libraries of an extra can be imported."""
    installation = to or Installation.of_this_process()
    if installation.is_archive:
        return f"install {PACKAGE} with Python instead of this archive"
    return f"run: {' '.join(map(shell_word, installation.command(extra)))}"
