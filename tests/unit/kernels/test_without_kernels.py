"""What runs without compiled code: by choice, because it cannot be compiled, and because nothing may be compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from kcompact import kernels
from kcompact.clean import prepare
from kcompact.clean.executor import Progress, Reduced
from kcompact.clean.job import CleanJob, Split
from kcompact.clean.scan import Scanned
from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.options import CleanOptions
from kcompact.engine.in_process import InProcess
from kcompact.errors import ConfigError, KernelsUnavailableError
from kcompact.inspect import contents, verify
from kcompact.inspect.contents import file_contents
from kcompact.inspect.verify import verify_file
from kcompact.kernels import link, load
from kcompact.log import producer_state
from kcompact.plan.partition import plan_partition
from tests.support import command_line, log_dsl, log_writer, machine_code
from tests.support.command_line import COMPACT, Ran, kcompact
from tests.support.machine_code import Compiler

LOG = """\
log now=10:00 name={topic}-0 lone
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6
"""
NOTICE = "working without compiled code"


class FailingCompiler:
    """Stands in for `load.compiled_elsewhere`: fails, and counts its calls."""

    def __init__(self, problem: Exception) -> None:
        self.problem, self.calls = problem, 0

    def __call__(self) -> bytes:
        self.calls += 1
        raise self.problem


@pytest.fixture(autouse=True)
def new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded nothing, on a machine where nothing is compiled, for which any log is large."""
    machine_code.object_file()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "_process", load._Process())
    monkeypatch.setattr(prepare, "COMPILED_BYTES", 0)
    monkeypatch.setattr(producer_state, "COMPILED_BATCHES", 0)
    monkeypatch.setattr(verify, "COMPILED_BYTES", 0)
    monkeypatch.setattr(contents, "COMPILED_BATCHES", 0)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler(machine_code.object_file())
    monkeypatch.setattr(load, "compiled_elsewhere", compiler)
    return compiler


@pytest.fixture(
    params=[RuntimeError("LLVM ERROR: out of\nmemory"), ImportError("No module named 'numba'"), MemoryError()]
)
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FailingCompiler:
    compiler = FailingCompiler(request.param)
    monkeypatch.setattr(load, "compiled_elsewhere", compiler)
    return compiler


def logs(log_dir: Path) -> Path:
    """Write two partitions and return their log directory."""
    for topic in ("one", "two"):
        log_writer.write(log_dsl.parse(LOG.replace("{topic}", topic)), log_dir)
    return log_dir


def cleaned(log_dir: Path) -> Ran:
    return kcompact("clean", "--engine", "in-process", *COMPACT, "--yes", log_dir)


def files_of(log_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file()}


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_sync: None) -> dict[str, bytes]:
    """The two partitions as the kernels clean them."""
    with monkeypatch.context() as patch:
        patch.setattr(load, "_process", load._Process())
        patch.setattr(load, "compiled_elsewhere", Compiler(machine_code.object_file()))
        patch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
        log_dir = logs(tmp_path / "expected")
        assert cleaned(log_dir).code == 0
        assert load._process.kernels is not None
    return files_of(log_dir)


# The switch


@pytest.mark.parametrize(("value", "is_off"), [(None, False), ("", False), ("auto", False), ("off", True)])
def test_the_switch(value: str | None, is_off: bool, monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    monkeypatch.delenv("KCOMPACT_KERNELS", raising=False)
    if value is not None:
        monkeypatch.setenv("KCOMPACT_KERNELS", value)
    assert kernels.is_off() is is_off
    assert kernels.available() is not is_off
    assert kernels.is_compiled() is not is_off
    assert compiler.calls == (not is_off)
    if is_off:
        with pytest.raises(KernelsUnavailableError, match="turned off by KCOMPACT_KERNELS=off"):
            _ = kernels.crc32c


@pytest.mark.parametrize("value", ["on", "OFF", "0"])
@pytest.mark.parametrize("command", ["inspect", "plan", "clean"])
def test_a_switch_with_another_value_is_a_mistake(
    value: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = logs(tmp_path / "logs")
    before = files_of(log_dir)
    monkeypatch.setenv("KCOMPACT_KERNELS", value)
    with pytest.raises(ConfigError):
        kernels.is_off()
    with pytest.raises(ConfigError):
        kernels.available()
    ran = kcompact(command, *COMPACT, log_dir)
    assert ran.code == 2
    assert f"KCOMPACT_KERNELS: '{value}' is neither auto nor off" in ran.err
    assert files_of(log_dir) == before


def test_recover_does_not_ask_for_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_KERNELS", "on")
    assert kcompact("recover", logs(tmp_path / "logs")).code == 0


def test_turned_off_the_result_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Compiler, expected: dict[str, bytes]
) -> None:
    monkeypatch.setenv("KCOMPACT_KERNELS", "off")
    log_dir = logs(tmp_path / "logs")
    ran = cleaned(log_dir)
    assert (ran.code, compiler.calls) == (0, 0)
    assert "compil" not in ran.err  # It was asked for.
    assert files_of(log_dir) == expected
    assert kcompact("inspect", "--verify", *COMPACT, log_dir).code == 0
    assert load._process.kernels is None


# A compiler that fails


def test_without_a_compiler_the_result_is_the_same_and_one_line_says_so(
    tmp_path: Path, failing: FailingCompiler, expected: dict[str, bytes]
) -> None:
    log_dir = logs(tmp_path / "logs")
    ran = cleaned(log_dir)
    assert ran.code == 0
    assert files_of(log_dir) == expected
    lines = [line for line in ran.err.splitlines() if NOTICE in line]
    assert len(lines) == 1
    assert (str(failing.problem).partition("\n")[0] or type(failing.problem).__name__) in lines[0]
    assert ran.err.count("compiling for this processor") == 1
    assert failing.calls == 1


def test_the_notice_is_given_with_json_too(tmp_path: Path, failing: FailingCompiler) -> None:
    ran = command_line.clean(logs(tmp_path / "logs"))
    assert ran.code == 0
    assert ran.err.count(NOTICE) == 1
    assert len(ran.json["partitions"]) == 2


def test_verify_without_a_compiler(
    tmp_path: Path, failing: FailingCompiler, monkeypatch: pytest.MonkeyPatch, no_sync: None
) -> None:
    log_dir = logs(tmp_path / "logs")
    ran = kcompact("inspect", "--verify", *COMPACT, log_dir)
    assert ran.code == 0
    assert (ran.err.count(NOTICE), failing.calls) == (1, 1)
    monkeypatch.setenv("KCOMPACT_KERNELS", "off")
    assert kcompact("inspect", "--verify", *COMPACT, log_dir).out == ran.out


def test_code_that_does_not_link_is_the_same_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], compiler: Compiler
) -> None:
    def linked(code: bytes) -> dict[str, object]:
        raise RuntimeError("LLVM has no target for this processor")

    monkeypatch.setattr(link, "linked", linked)
    log_dir = logs(tmp_path / "logs")
    ran = cleaned(log_dir)
    assert ran.code == 0
    assert ran.err.count(NOTICE) == 1
    assert files_of(log_dir) == expected


def test_what_the_compilers_process_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crashing, raising = tmp_path / "crashing", tmp_path / "raising"
    crashing.write_text("#!/bin/sh\necho LLVM ERROR: out of memory >&2\nkill -ABRT $$\n")
    raising.write_text("#!/bin/sh\nprintf 'Traceback\\nImportError: No module named numba\\n' >&2\nexit 1\n")
    for script in (crashing, raising):
        script.chmod(0o700)
    for interpreter, problem in (
        (str(crashing), "the compiler was killed by SIGABRT: LLVM ERROR: out of memory"),
        (str(raising), "the compiler ended with exit code 1: ImportError: No module named numba"),
        ("/bin/false", "ended with exit code 1"),
        ("/bin/true", "wrote no object file"),
        ("/dev/null/none", "Not a directory"),
    ):
        monkeypatch.setattr("sys.executable", interpreter)
        machine_code.forget()
        assert not kernels.available()
        assert problem in str(kernels.failure())
        with pytest.raises(KernelsUnavailableError, match=problem):
            load.loaded()


class WorkersWithoutKernels(InProcess):
    """An executor whose workers are on machines where the kernels cannot be compiled."""

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]]
    ) -> tuple[list[Scanned], Iterable[Reduced]]:
        if job.compiled:
            raise KernelsUnavailableError(problem="no compiler on the worker")
        return InProcess.scan_and_reduce(self, job, tasks)


def test_workers_without_kernels(tmp_path: Path, compiler: Compiler) -> None:
    heard: list[str] = []

    class Listening(Progress):
        def without_kernels(self, problem: str) -> None:
            heard.append(problem)

    spec = log_dsl.parse(LOG.replace("{topic}", "one"))
    directory = log_writer.write(spec, tmp_path / "logs")
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    results = [
        cleaner.clean_partition(plan, executor, lock=None, options=CleanOptions(dry_run=True), progress=Listening())
        for executor in (InProcess(), WorkersWithoutKernels())
    ]
    assert results[0].stats.messages_written == results[1].stats.messages_written == 4
    assert heard == ["no compiler on the worker"]


# Commands that compile nothing


def test_planning_and_inspecting_compile_nothing(tmp_path: Path, compiler: Compiler) -> None:
    log_dir = logs(tmp_path / "logs")
    for directory in log_dir.iterdir():
        for snapshot in directory.glob("*.snapshot"):
            snapshot.unlink()  # So that the state of the producers is read from the whole log.
    seen = [kcompact(command, *COMPACT, log_dir) for command in ("plan", "inspect")]
    assert [ran.code for ran in seen] == [0, 0]
    assert (compiler.calls, load._process.kernels) == (0, None)
    # With machine code in the cache they use it, and say the same.
    assert kernels.available()
    machine_code.forget()
    assert [kcompact(command, *COMPACT, log_dir).out for command in ("plan", "inspect")] == [ran.out for ran in seen]
    assert load._process.kernels is not None
    assert compiler.calls == 1


def test_inspecting_many_batches_compiles_nothing(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "COMPILING_FACTOR", 0)
    log_dir = logs(tmp_path / "logs")
    (segment, *_) = sorted((log_dir / "one-0").glob("*.log"))
    contents_by_definition = file_contents(segment, 0)
    assert compiler.calls == 0
    verify_file(segment, 0)
    assert compiler.calls == 1
    assert file_contents(segment, 0) == contents_by_definition


def test_compiling_is_announced_once(tmp_path: Path, compiler: Compiler, no_sync: None) -> None:
    ran = cleaned(logs(tmp_path / "logs"))
    assert ran.code == 0
    assert ran.err.count("compiling for this processor") == 1
    assert compiler.calls == 1
    assert ran.err.count(NOTICE) == 0
    again = cleaned(logs(tmp_path / "again"))
    assert "compiling for" not in again.err
