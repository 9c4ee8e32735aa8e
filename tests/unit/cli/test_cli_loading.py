"""What a command loads: Spark, the kernels, rich and the Kafka client only where they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kcompact as package
from fixtures.checkout import LOGS
from kcompact import __version__, kernels
from tests.support.command_line import ASSUMED, COMPACT, IMPORTED_FROM, ROOT, environment, kcompact, partition
from tests.support.forks import MAIN, READING, Run, forked

LOADED = """
try:
    main()
except SystemExit:
    pass
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
IMPORTED_BY_THREADS = """
import sys, threading

def watch(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print("imported:", arguments[0])

sys.addaudithook(watch)
main()
"""
HEAVY = {"pyspark", "py4j", "numba", "llvmlite", "snappy", "cramjam", "lz4", "xxhash", "zstandard", "pandas"}
HEAVY |= {"matplotlib", "jinja2"}
READERS = [["--help"], ["inspect"], ["verify"], ["plan"], ["recover"], ["clean", "--help"]]
LATE = [("rich", ["plan", "--json"])]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The packages that each command has loaded, by its words. They share a start of Python."""
    runs = {}
    for arguments in (*READERS, *(arguments for _, arguments in LATE)):
        directory = partition(tmp_path_factory.mktemp("logs"))
        target = directory.parent if arguments == ["doctor"] else directory
        runs[" ".join(arguments)] = Run(arguments=arguments if "--help" in arguments else [*arguments, target])
    done = forked([*runs.values()], warm=READING, program=LOADED)
    return {words: {*ran.stdout.splitlines()[-1].split()} for words, ran in zip(runs, done, strict=True)}


@pytest.mark.long
@pytest.mark.parametrize("arguments", READERS)
def test_reading_commands_load_no_engine_and_no_compiler(arguments: list[str], loaded: dict[str, set[str]]) -> None:
    found = loaded[" ".join(arguments)]
    assert "click" in found
    assert not found & HEAVY


@pytest.mark.parametrize(("heavy", "arguments"), LATE)
def test_what_takes_long_to_load_is_not_loaded(heavy: str, arguments: list[str], loaded: dict[str, set[str]]) -> None:
    found = loaded[" ".join(arguments)]
    assert "click" in found
    assert heavy not in found
    assert not found & (HEAVY - {"pyspark"})


def test_help_loads_no_numpy() -> None:
    program = f"import sys; sys.argv = ['kcompact', '--help']; from kcompact.__main__ import main; {LOADED}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment())
    assert "numpy" not in ran.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_threads_do_not_load_the_same_modules(command: str) -> None:
    (done,) = forked([Run(arguments=[command, LOGS / "mixed" / "before"])], warm=MAIN, program=IMPORTED_BY_THREADS)
    assert done.returncode == 0, done.stderr
    imported = {line.removeprefix("imported: ") for line in done.stdout.splitlines() if line.startswith("imported: ")}
    assert {name for name in imported if not name.startswith("numpy.")} == set()


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
import errno
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
NOT_LOADED = [
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
]


@pytest.fixture(scope="module")
def not_loaded(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]]:
    """What `plan` leaves without each of these modules, and what `plan --debug`. They share a start of Python."""
    directory = partition(tmp_path_factory.mktemp("logs"))
    runs = [
        Run(arguments=[module, number, "plan", *debug, directory])
        for module, number, *_ in NOT_LOADED
        for debug in ([], ["--debug"])
    ]
    done = iter(forked(runs, warm=MAIN, program=CANNOT_LOAD))
    return {module: (next(done), next(done)) for module, *_ in NOT_LOADED}


@pytest.mark.parametrize(("module", "number", "code", "message"), NOT_LOADED)
def test_a_module_that_cannot_be_loaded(
    module: str,
    number: str,
    code: int,
    message: str,
    not_loaded: dict[str, tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]],
) -> None:
    plain, debug = not_loaded[module]
    assert "Traceback" not in plain.stderr
    assert (plain.returncode, plain.stderr[: len(message)]) == (code, message)
    assert "Traceback" in debug.stderr
