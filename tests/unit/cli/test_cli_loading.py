"""What a command loads: Spark, the kernels, rich and the Kafka client only where they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kcompact as package
from kcompact import __version__, kernels
from tests.support.command_line import ASSUMED, COMPACT, IMPORTED_FROM, ROOT, environment, kcompact, partition

LOADED = """
import sys
from kcompact.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = {"pyspark", "py4j", "numba", "llvmlite", "snappy", "cramjam", "lz4", "xxhash", "zstandard", "pandas"}
heavy |= {"matplotlib", "jinja2"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--help"], ["inspect"], ["verify"], ["plan"], ["recover"], ["clean", "--help"]])
def test_reading_commands_load_neither_spark_nor_numba(arguments: list[str], tmp_path: Path) -> None:
    target = [] if "--help" in arguments else [str(partition(tmp_path))]
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments, *target],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("heavy", "arguments"),
    [("rich", ["plan", "--json"]), ("numpy", ["plan"]), ("numpy", ["inspect"]), ("numpy", ["doctor"])],
)
def test_what_takes_long_to_load_is_not_loaded(heavy: str, arguments: list[str], tmp_path: Path) -> None:
    directory = partition(tmp_path)
    target = directory.parent if arguments == ["doctor"] else directory
    ran = subprocess.run(
        [sys.executable, "-c", LOADED.replace("pyspark", heavy), *arguments, str(target)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert ran.stdout.splitlines()[-1] == "[]"


def test_other_processes_import_the_package_that_is_tested(tmp_path: Path) -> None:
    """Otherwise the tests of an installed wheel would test the checkout, wherever they start a process."""
    program = "import kcompact; print(kcompact.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment()
    )
    assert Path(ran.stdout.strip()) == Path(package.__file__)


@pytest.mark.parametrize("module", ["kcompact", "kcompact.errors"])
def test_importing_the_package_loads_nothing_of_others(module: str) -> None:
    program = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment())
    loaded = {name.partition(".")[0] for name in ran.stdout.split()} - sys.stdlib_module_names
    assert loaded == {"kcompact"}


def test_the_version_is_the_packages() -> None:
    ran = kcompact("--version")
    assert (ran.code, ran.out) == (0, f"kcompact {__version__}\nkernels: {kernels.state()}\n")
    assert kernels.state().startswith("machine code for ")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"] == {"path": "kcompact/__init__.py"}


PLANTED = ("click", "numpy", "sitecustomize", "signal", "typing", "pathlib")
"""Python itself imports a few others for `-m`, such as `contextlib`, before kcompact can prevent it."""


@pytest.mark.parametrize("python_path", [str(IMPORTED_FROM), f":{IMPORTED_FROM}"])
def test_nothing_is_imported_from_the_current_directory(python_path: str, tmp_path: Path) -> None:
    """An empty entry in PYTHONPATH is the current directory, too; Python imports from it before kcompact starts."""
    directory = partition(tmp_path)
    for name in PLANTED[:2] if python_path.startswith(":") else PLANTED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} from the current directory')")
    for arguments in (["verify"], ["clean", "--quiet", "--engine", "in-process", *COMPACT]):
        ran = subprocess.run(
            [sys.executable, "-m", "kcompact", *arguments, directory.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": python_path},
        )
        assert (ran.returncode, ASSUMED.sub("", ran.stderr)) == (0, "")


def test_no_core_dump_is_left() -> None:
    program = (
        "import resource, sys\nfrom kcompact.__main__ import main\nsys.argv[1:] = ['--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    print(resource.getrlimit(resource.RLIMIT_CORE))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment())
    assert ran.stdout.splitlines()[-1] == "(0, 0)"


CANNOT_LOAD = """
import errno, os, sys
from kcompact.__main__ import main
module, number, *sys.argv[1:] = sys.argv[1:]
class Finder:
    def find_spec(self, name, path, target=None):
        if name == module and number:
            raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))
        if name == module:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize(
    ("module", "number", "code", "message"),
    [
        ("kcompact.cli.app", "EIO", 1, "error: Input/output error\n"),
        ("kcompact.cli.signals", "EACCES", 4, "error: Permission denied\n"),
        ("kcompact.errors", "EIO", 1, "error: a part of kcompact cannot be loaded: [Errno 5] Input/output error\n"),
        ("kcompact.cli.commands.plan", "EDQUOT", 7, "error: Disk quota exceeded\n"),
        ("kcompact.plan.partition", "", 1, "error: a part of kcompact cannot be loaded: No module named 'kcompact.pl"),
        (
            "kcompact.cli.output.streams",
            "",
            1,
            "error: a part of kcompact cannot be loaded: cannot import name 'streams'",
        ),
    ],
)
def test_a_module_that_cannot_be_loaded(module: str, number: str, code: int, message: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    for debug in ([], ["--debug"]):
        ran = subprocess.run(
            [sys.executable, "-c", CANNOT_LOAD, module, number, "plan", *debug, str(directory)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert ("Traceback" in ran.stderr) == bool(debug)
        if not debug:
            assert (ran.returncode, ran.stderr[: len(message)]) == (code, message)
