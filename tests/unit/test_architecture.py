"""The architecture, checked on the syntax trees: who imports whom, who may do what, and how long code may be."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kcompact"

FOLDERS = [
    {"values", "exit_codes"},
    {"readable", "wording", "remarks", "release"},
    {"errors"},
    {"host"},
    {"failures"},
    {"format"},
    {"kernels"},
    {"bucket"},
    {"log"},
    {"config"},
    {"plan"},
    {"stages"},
    {"engine", "clean"},
    {"swap"},
    {"cleaner"},
    # Up to here it is the cleaning. What follows reads, shows and asks.
    {"questions", "export"},
    {"spark_source"},
    {"doctor"},
    {"views"},
    {"report"},
    {"cli", "pytest_plugin"},
]
"""The folders and modules of the package, in the order in which data flows. Each imports only from earlier ones."""


ONLY_IN = {
    "pyspark": {"engine.spark", "spark_source"},
    "py4j": {"engine.spark"},
    "click": {"cli"},
    "rich": {"cli"},
    "pytest": {"pytest_plugin"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "matplotlib": {"report"},
    "lz4": {"format.codec.lz4"},
    "snappy": {"format.codec.snappy"},
    "xxhash": {"format.codec.lz4"},
    "zstandard": {"format.codec.zstd"},
    "zlib": {"format.codec.gzip", "format.legacy"},
    "crc32c": {"format.checksum"},
    # Machine code can crash the process. Only `kernels` builds and calls it, and checks the arrays.
    "numba": {"kernels"},
    "llvmlite": {"kernels"},
    "ctypes": {"kernels.build", "kernels.machine_code", "kernels.libraries"},
    "kafka": {"config.admin_client"},
    "ssl": {"bucket.client", "config.client", "config.listener"},
    "cryptography": {"config.client.stores"},
    "urllib": {"bucket.answers", "bucket.client", "config.client.tokens", "host.installation"},
    "pyarrow": {"export.arrow", "spark_source.columns", "spark_source.damage"},
    "fcntl": {"log.lock", "host.access", "host.disk", "bucket.scratch", "engine.spark.scratch"},
    "platformdirs": {"host.user_directories"},
    "subprocess": {
        *("engine.spark.java", "engine.spark.jvm", "engine.spark.class_archive", "engine.spark.worker_pool"),
        *("engine.spark.worker_python", "kernels.build"),
    },
    "socket": {"engine.spark.worker_pool", "engine.spark.master", "config.listener"},
    "tempfile": {"host.user_directories", "engine.in_process", "kernels.build"},
    "pickle": {"engine.seals"},
    # An error of the disk ends the process: only for what goes to a bucket, from the scratch, without a copy of it.
    "mmap": {"bucket.remote", "bucket.upload"},
    "botocore": {"bucket.client", "bucket.remote", "bucket.answers"},
}

PYSPARK_PRIVATE = re.compile(r"PYSPARK_(GATEWAY|DRIVER|SUBMIT)|PythonGatewayServer|_active_spark_context|_jsc\b|_jvm\b")
"""Names with which PySpark and its JVM find each other: only `spark.pyspark_private` has them."""

MAY_RENAME_OR_DELETE = {
    "swap": {"os.rename", "os.replace", "os.unlink", "os.rmdir"},
    # Only unfinished or outdated copies, in the directory that marks its output as unfinished.
    "swap.copy": {"shutil.rmtree"},
    # Only its private scratch directories.
    "engine.spark": {"shutil.rmtree", ".unlink", ".rmdir", ".rename"},
    # Only parts that it has joined, in the staging directory.
    "clean.join": {"os.unlink"},
    # Only its own unfinished file.
    "export.files": {"os.rename", "os.unlink"},
    # Only its private scratch directories.
    "bucket.scratch": {"shutil.rmtree"},
    # Only its own files with holes, and the bytes in them.
    "bucket.mirror": {"os.ftruncate", "shutil.rmtree"},
    "bucket.mirrored_file": {"os.truncate"},
    # Only what it has built.
    "kernels.build": {".replace"},
}
MAY_CREATE_FILES = {
    *("clean.staged_files", "swap", "log.lock", "engine.spark"),
    *("host.user_directories", "kernels.build", "bucket"),
    "cli.commands.man",
    *("cleaner.journal", "export.files"),
}
MAY_OPEN_FILES = {
    "log.files",  # `open_regular`: every file of a log directory that is read by path
    "log.lock",
    # Through descriptors of directories that are held open.
    *("clean.staged_files", "clean.join", "swap.open_directory"),
    *("host.access", "host.disk"),  # Directories, to ask about them; `/proc`.
    *("cleaner.journal", "export.files"),  # Files of their own.
    "report.page",  # The template and the style sheet of the package.
    "host.installation",  # The metadata of the package.
    "bucket",  # Its private scratch directories.
    *("host.access", "host.machine", "host.other_processes"),  # `/proc` and `/sys`.
    *("engine.spark", "kernels", "cli.output.streams", "cli.commands.man"),  # Files of their own; streams.
}
"""Modules that open files themselves. A plain `open` follows links and waits for a pipe."""
MAY_READ_LOCAL_FILES = {
    "log",  # The seam: `log.files.Files`. Others read a partition through it, from wherever it is stored.
    # What writes is about renames and syncs of local files, and reads them through held descriptors.
    *("swap", "clean.join", "clean.staged_files", "cleaner.space"),
    # What the user or the shell names: arguments, directories to look for partitions in.
    *("plan.discovery", "plan.walk", "cli.question", "questions.search.files"),
    # The machine: its processes, who may read and write in a log directory, who owns it.
    *("host", "cleaner.in_use", "doctor.log_dirs", "cli.commands.clean"),
    *("config.server_properties", "config.properties_files", "config.client"),  # Files of the broker and of clients.
    *("cleaner.journal", "report.file", "engine", "kernels", "bucket"),  # Files of their own.
    "export.files",  # The mode of the logs, which the new file takes over.
    *("questions.search", "cli.commands.search_key"),  # Every file below the arguments, of any kind; the list of keys.
}
"""Modules that list, stat or open local files."""
MAY_EVALUATE = {"kernels.build"}
"""Makes the functions that numba compiles, from names in its own table."""
MAY_READ_WALL_CLOCK = {"host.machine"}
MAY_PRINT = {"cli"}

RENAMES_OR_DELETES = {
    *("os.rename", "os.renames", "os.replace", "os.unlink", "os.remove", "os.rmdir", "os.removedirs", "os.truncate"),
    *("os.ftruncate", "shutil.rmtree", "shutil.move", ".unlink", ".rmdir", ".rename"),
}
CREATES = {
    *("os.mkdir", "os.makedirs", "os.link", "os.symlink", "os.mkfifo", "os.mknod", "tempfile.mkdtemp"),
    *("tempfile.mkstemp", "tempfile.TemporaryDirectory", "tempfile.NamedTemporaryFile", "shutil.copy"),
    *("shutil.copy2", "shutil.copyfile", "shutil.copytree", ".mkdir", ".touch", ".write_text", ".write_bytes"),
    *(".symlink_to", ".hardlink_to"),
}
WALL_CLOCK = {
    *("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today", "time.localtime", "time.gmtime"),
}

SOURCES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted(each for folder in ("tests", "bench") for each in (PACKAGE.parent / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of the tree of a file. To walk them takes longer than most checks."""
    return tuple(ast.walk(tree_of(path)))


def module_of(path: Path) -> str:
    """`kcompact/format/batch.py` -> `format.batch`, `kcompact/cli/__init__.py` -> `cli`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    """Return the folder of a module: its first name."""
    return module.split(".")[0]


def and_above(module: str) -> set[str]:
    """`engine.spark.jvm` -> `engine.spark.jvm`, `engine.spark`, `engine`."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def imported_by(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the modules that the nodes of a tree import, by their full names; of `from a import b` both."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Return the modules that a file of the package imports."""
    return tuple(imported_by(nodes_of(path)))


@cache
def names_called(path: Path) -> tuple[tuple[str, ast.Call], ...]:
    """Return what a file calls: `os.rename`, and `.unlink` for a method of something that is not a module's name."""
    imported = {name.split(".")[0] for name in imports_of(path)} | {"datetime", "date"}
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            names = dotted(node.func)
            found.append((".".join(names) if names[0] in imported or len(names) == 1 else f".{names[-1]}", node))
    return tuple(found)


def dotted(node: ast.expr) -> list[str]:
    """Return the names of `a.b.c`; the first is empty for an attribute of anything else, such as of a call."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *names]


INNER = [path for path in SOURCES if module_of(path) not in ("", "__main__")]


def of_each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make a check of one module a test of all these modules, which names each module that fails.

    As a parameter of its test, each module and rule would be a test; reporting these takes longer than the checks.
    """

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            failed = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as problem:
                    failed.append(f"{path.relative_to(PACKAGE.parent)}: {problem}")
            assert not failed, "\n".join(failed)

        return test

    return decorate


@of_each(INNER)
def test_a_folder_imports_only_from_the_folders_before_it(path: Path) -> None:
    number_of = {name: number for number, names in enumerate(FOLDERS) for name in names}
    own = folder_of(module_of(path))
    assert own in number_of, f"{own} is not in FOLDERS"
    for name in imports_of(path):
        package, _, rest = name.partition(".")
        other = folder_of(rest)
        if package == "kcompact" and other != own and other in number_of:
            assert number_of[other] < number_of[own], f"{own} imports {other}"


def test_no_two_modules_import_each_other() -> None:
    modules = {module_of(path): path for path in SOURCES}
    imports = {
        module: {
            other
            for name in imports_of(path)  # Also those inside of functions, and those only for types.
            if (other := name.removeprefix("kcompact.")) in modules and not module.startswith(f"{other}.")
        }
        for module, path in modules.items()
    }
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above[above.index(module) :], module))
        if module not in done:
            for other in sorted(imports[module] - {module}):
                visit(other, (*above, module))
            done.add(module)

    for module in imports:
        visit(module, ())


def test_the_design_page_shows_the_same_order() -> None:
    page = (PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
    listed = re.search(r"^    (.*errors.* · .*)$", page, re.MULTILINE)
    assert listed is not None
    shown = [set(re.findall(r"\w+", words)) for words in listed[1].split(" · ")]
    assert shown == FOLDERS


@of_each([one for one in SOURCES if module_of(one).startswith("format.")])
def test_formats_are_pure(path: Path) -> None:
    forbidden = {"os", "pathlib", "time", "datetime", "logging", "sys", "io", "shutil"}
    assert not forbidden & {name.split(".")[0] for name in imports_of(path)}
    assert not {"open", "print", "input"} & {name for name, _ in names_called(path)}


PURE = "clean_plan passes deletion explanation conditions forecast remedies cost comparison".split()
PURE_PLAN = [one for one in SOURCES if module_of(one) in {f"plan.{name}" for name in PURE}]


@of_each(PURE_PLAN)
def test_the_plan_is_a_pure_function(path: Path) -> None:
    """Only `plan.discovery` and `plan.partition` read the disk."""
    imported = set(imports_of(path))
    assert not {"os", "pathlib", "time", "datetime", "logging", "sys", "io", "shutil"} & imported
    readers = {"log.files", "log.segment_reader", "log.batch_headers", "config.metadata_log"}
    assert not {f"kcompact.{module}" for module in readers} & imported
    assert not {"open", "print", "input"} & {name for name, _ in names_called(path)}
    assert not [name for name in imported if name.split(".")[-1].startswith(("read_", "load_"))]


@of_each(SOURCES)
def test_confinement(path: Path) -> None:
    module = module_of(path)
    for name in imports_of(path):
        allowed = ONLY_IN.get(name.split(".")[0])
        assert allowed is None or and_above(module) & allowed, f"{module} imports {name}"


@of_each([path for path in SOURCES if "bucket" not in module_of(path).split(".")[:1]])
def test_who_knows_how_paths_of_buckets_are_made(path: Path) -> None:
    """All others ask `is_in_bucket`: so another object store is a matter of `bucket` alone."""
    names = {node.id for node in nodes_of(path) if isinstance(node, ast.Name)}
    names |= {alias.name for node in nodes_of(path) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert "BucketPath" not in names


@of_each([path for path in SOURCES if module_of(path) != "engine.spark.pyspark_private"])
def test_private_names_of_others_are_in_one_module(path: Path) -> None:
    handles_pyspark = {"pyspark", "py4j"} & {name.split(".")[0] for name in imports_of(path)}
    if not handles_pyspark and "engine.spark" not in and_above(module_of(path)):
        return
    found = list(private_names(nodes_of(path)))
    assert not found, (
        f"{module_of(path)}: {found}; only kcompact/engine/spark/pyspark_private.py uses PySpark's private names"
    )


def private_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each name that may be a private name of another object: mypy has no types for PySpark's objects."""
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield ast.unparse(node)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in ("pyspark", "py4j"):
                yield from (one.name for one in names if is_private(one.name))
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr" | "delattr"), args=[_, name, *_]):
                if isinstance(name, ast.Constant) and is_private(str(name.value)):
                    yield ast.unparse(node)
            case ast.Constant(value=str(text)) if PYSPARK_PRIVATE.search(text):
                yield text


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    "source",
    [
        "sc._jsc.sc()",
        "SparkContext._gateway = None",
        "getattr(sc, '_accumulatorServer', None)",
        "from pyspark.accumulators import _accumulatorRegistry",
        "environment['PYSPARK_GATEWAY_PORT']",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert list(private_names(ast.walk(ast.parse(source))))


@of_each(SOURCES)
def test_who_renames_and_deletes(path: Path) -> None:
    found = {name for name, _ in names_called(path)} & RENAMES_OR_DELETES
    allowed = [MAY_RENAME_OR_DELETE.get(name, set()) for name in and_above(module_of(path))]
    assert found <= set[str]().union(*allowed)


@of_each(SOURCES)
def test_who_creates_files(path: Path) -> None:
    if and_above(module_of(path)) & MAY_CREATE_FILES:
        return
    assert not {name for name, _ in names_called(path)} & CREATES
    assert "O_CREAT" not in {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}
    for name, call in names_called(path):
        if name in ("open", ".open", "io.open"):
            modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            modes += [str(word.value.value) for word in call.keywords if isinstance(word.value, ast.Constant)]
            assert not any(re.fullmatch(r"[rbt]*[wax+][rwaxbt+]*", mode) for mode in modes), ast.unparse(call)


@of_each(SOURCES)
def test_who_opens_files(path: Path) -> None:
    if and_above(module_of(path)) & MAY_OPEN_FILES:
        return
    openers = {"open", "io.open", "os.open", "os.fdopen", ".read_text", ".read_bytes", ".write_text", ".write_bytes"}
    openers |= {"np.load", "np.fromfile", "np.memmap", "shutil.copyfile", "shutil.copy", "shutil.copystat"}
    found = {name for name, _ in names_called(path)} & openers
    assert not found, f"{sorted(found)}: use `log.files.open_regular` or `OpenDirectory.open`"


@of_each(SOURCES)
def test_who_reads_local_files(path: Path) -> None:
    """Everybody else reads the files of a partition through `log.files.Files`: the seam for another storage."""
    if and_above(module_of(path)) & MAY_READ_LOCAL_FILES:
        return
    of_paths = {"os.scandir", "os.listdir", "os.walk", "os.stat", "os.lstat"}
    of_paths |= {".iterdir", ".glob", ".rglob", ".stat", ".lstat"}
    found = {name for name, _ in names_called(path)} & of_paths
    local = ("open_regular", "read_file", "read_at", "LocalFiles", "OpenLocalFile", "require_regular")
    found |= {f"kcompact.log.files.{name}" for name in local} & set(imports_of(path))
    assert not found, f"{sorted(found)}: use `log.files.LogFile`"


@of_each(SOURCES)
def test_who_reads_the_wall_clock(path: Path) -> None:
    if module_of(path) not in MAY_READ_WALL_CLOCK:
        assert not {name for name, _ in names_called(path)} & WALL_CLOCK
        assert not {"time.time", "time.time_ns"} & set(imports_of(path))


@of_each(SOURCES)
def test_who_prints(path: Path) -> None:
    if folder_of(module_of(path)) not in MAY_PRINT:
        assert not {"print", "sys.stdout.write", "sys.stderr.write"} & {name for name, _ in names_called(path)}


@of_each(SOURCES)
def test_nothing_is_evaluated_or_swallowed(path: Path) -> None:
    if module_of(path) not in MAY_EVALUATE:
        assert not {"eval", "exec", "os.system"} & {name for name, _ in names_called(path)}
    for node in nodes_of(path):
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"line {node.lineno}: a bare except"


@of_each([one for one in INNER if one.name == "__init__.py"])
def test_a_folder_lists_its_modules(path: Path) -> None:
    docstring = (ast.get_docstring(tree_of(path)) or "").partition("**The idea.**")[0]
    listed = set(re.findall(r"^    (\w+)/?  +\S", docstring, re.MULTILINE))
    modules = {one.stem for one in path.parent.glob("*.py")} - {"__init__"}
    folders = {one.parent.name for one in path.parent.glob("*/__init__.py")}
    assert listed == modules | folders, f"listed or there, but not both: {sorted(listed ^ (modules | folders))}"


@of_each(INNER)
def test_modules_and_functions_say_what_they_are(path: Path) -> None:
    module = module_of(path)
    assert ast.get_docstring(tree_of(path)), "the module has no docstring"
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            name = f"{module}.{node.name}"
            assert ast.get_docstring(node), f"{name} has no docstring"
            assert node.name != module.split(".")[-1], f"{name}: its module's name"


def test_no_two_classes_have_the_same_name() -> None:
    names = [node.name for path in SOURCES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_no_value_is_named_by_a_word_that_says_nothing() -> None:
    named = {
        f"{module_of(path)}: {name}"
        for path in SOURCES
        for node in nodes_of(path)
        for name in (
            [node.id]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else [node.arg]
            if isinstance(node, ast.arg)
            else []
        )
        if name in {"found", "beside", "those", "said"}
    }
    assert named == {"plan.walk: found"}  # `Answer.found`


def test_no_module_is_named_for_nothing() -> None:
    names = {part for path in SOURCES for part in module_of(path).split(".")}
    assert not names & {"util", "utils", "helpers", "common", "misc", "manager", "data", "info"}


@of_each(SOURCES)
def test_no_path_of_somebodys_machine(path: Path) -> None:
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not re.search(r"/(home|Users|root|work|tmp)/\w", node.value), node.value


def test_the_tables_name_what_there_is() -> None:
    modules = {module_of(path) for path in SOURCES}
    assert {name for names in FOLDERS for name in names} == {folder_of(name) for name in modules} - {"", "__main__"}
    named = set[str]().union(*ONLY_IN.values())
    assert {
        *named,
        *MAY_RENAME_OR_DELETE,
        *MAY_CREATE_FILES,
        *MAY_OPEN_FILES,
        *MAY_READ_LOCAL_FILES,
        *MAY_EVALUATE,
        *MAY_READ_WALL_CLOCK,
    } <= modules


# --- Sizes ------------------------------------------------------------------------------------------------------

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAY_BE_LONG = {
    "kernels.loops.filter.filter_batches": "a kernel: numba compiles one flat loop over the bytes of a batch",
}
"""Functions with more than MAX_FUNCTION_LINES lines, each with the reason."""


def test_no_module_and_no_test_file_is_too_long() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (*SOURCES, *TEST_FILES)}
    assert {path: count for path, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_only_the_listed_functions_are_long() -> None:
    long = {
        f"{module_of(path)}.{node.name}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == set(MAY_BE_LONG)


# --- The tests --------------------------------------------------------------------------------------------------


def imported_test_modules(tree: ast.AST) -> list[str]:
    """Return the test modules that a file imports, also in programs that it holds as text."""
    return [name for name in imports_with_programs(tree) if re.search(r"^tests\..*\btest_\w+", name)]


def imports_with_programs(tree: ast.AST) -> Iterator[str]:
    """Yield what a syntax tree imports, and what the lines of its strings import."""
    nodes = list(ast.walk(tree))
    yield from imported_by(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in re.findall(r"^\s*(?:from|import) +(tests[\w.]*)(?: +import +(.*))?", node.value, re.M):
                yield module
                yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def test_no_test_module_imports_another() -> None:
    """Shared code belongs in `tests/support`."""
    texts = {path: path.read_text(encoding="utf-8") for path in TEST_FILES}
    # To parse them all takes seconds. Most files name tests only where they define them.
    naming = {path: text for path, text in texts.items() if re.search(r"(?<!def )\btest_\w", text)}
    found = {path: imported_test_modules(ast.parse(text)) for path, text in naming.items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tests.unit.X import FOLDERS",
        "from tests.unit import X",
        "import tests.unit.clean.X as other",
        "PROGRAM = 'import sys\\nfrom tests.unit.clean.X import LINE\\n'",
        "PROGRAM = f'from tests.unit.clean import X{sys.path}'",
    ],
)
def test_imports_of_test_modules_are_found(source: str) -> None:
    assert imported_test_modules(ast.parse(source.replace("X", "test_write")))
