"""The machine code of the kernels: what it is linked to, who loads it, and what is said when it does not load."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kcompact import kernels
from kcompact.errors import KernelsUnavailableError
from kcompact.kernels import build, machine_code
from kcompact.kernels.machine_code import BuildRecord, library_path
from kcompact.kernels.signatures import KERNELS
from kcompact.kernels.target import FITS, TARGETS
from tests.support import command_line, log_dsl, log_writer
from tests.support.command_line import COMPACT, environment, kcompact
from tests.support.copies import read_files
from tests.support.machine_code import forget, switched

MACHINE = platform.machine()
LOG = """\
log now=10:00 name={topic}-0 lone
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6
"""


def names(code: bytes) -> tuple[set[str], set[str]]:
    """Return the names that a shared ELF library with 64 bits lacks, and those that it offers to others."""
    assert code[:6] == b"\x7fELF\x02\x01"
    sections_at, section_bytes, count = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<2H", code, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", code, sections_at + number * section_bytes) for number in range(count)
    ]
    lacking: set[str] = set()
    offered: set[str] = set()
    for _, kind, _, _, at, size, link, _, _, entry_bytes in sections:
        assert kind != 2, "a symbol table that was not stripped"
        if kind != 11:  # SHT_DYNSYM
            continue
        names_at = sections[link][4]
        for entry in range(at, at + size, entry_bytes):
            name_at, _, _, section = struct.unpack_from("<IBBH", code, entry)
            name = code[names_at + name_at : code.index(b"\0", names_at + name_at)].decode()
            if name:
                (offered if section else lacking).add(name)
    return lacking, offered


def test_it_needs_the_c_library_and_nothing_else() -> None:
    lacking, offered = names(library_path(MACHINE).read_bytes())
    assert lacking <= {"memcpy", "memset", "memmove", "pread", "getauxval"}
    assert "pread" in lacking
    assert offered == {FITS, *(f"kcompact_{name}" for name in KERNELS)}


def test_it_is_that_of_the_present_sources() -> None:
    assert build.is_current(MACHINE), "run: make .venv/.installed"


def test_what_is_current_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compiled_ir", None)
    assert build.build_libraries([MACHINE]) == [library_path(MACHINE)]
    monkeypatch.setattr(build, "is_current", lambda machine: False)
    with pytest.raises(TypeError):
        build.build_libraries([MACHINE])


def test_a_processor_without_kernels_is_refused_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compiled_ir", None)
    with pytest.raises(
        SystemExit, match=r"^kcompact has kernels for the processors x86_64 and aarch64, and none for s390x$"
    ):
        build.build_libraries([MACHINE, "s390x"])


CLEANED = """
import sys
from pathlib import Path
from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.plan.partition import plan_partition
from kcompact.engine.in_process import InProcess
from tests.support import log_dsl, log_writer
spec = log_dsl.parse("log now=10:00 min.cleanable.dirty.ratio=0\\n0: a=1 b=2 a=3\\n3: c=1")
directory = log_writer.write(spec, Path(sys.argv[1]))
plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
result = cleaner.clean_partition(plan, InProcess(), lock=None, options=CleanOptions(dry_run=True))
assert (result.stats.messages_read, result.stats.messages_written) == (3, 2)
print(*sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


def test_cleaning_loads_no_compiler(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLEANED, str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n"


# Readers that confirm nothing


def logs(log_dir: Path) -> Path:
    """Write two partitions and return their log directory."""
    for topic in ("one", "two"):
        log_writer.write(log_dsl.parse(LOG.replace("{topic}", topic)), log_dir)
    return log_dir


def test_where_the_kernels_confirm_nothing_the_result_is_the_same(tmp_path: Path) -> None:
    found = []
    for compiled in (True, False):
        log_dir = logs(tmp_path / str(compiled))
        with switched(compiled=compiled):
            ran = command_line.clean(log_dir)
            found.append((read_files(log_dir), ran.code, kcompact("verify", *COMPACT, log_dir).code))
    assert found[0] == found[1]
    assert found[0][1:] == (0, 0)


# Machine code that does not load


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine code of a process that has loaded none, where it can be damaged."""
    copy = tmp_path / "machine_code"
    shutil.copytree(machine_code.DIRECTORY, copy)
    monkeypatch.setattr(machine_code, "DIRECTORY", copy)
    forget()
    return copy


@pytest.fixture(autouse=True)
def _forgotten() -> object:
    yield
    forget()


def cut(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:20_000])


def record(library: Path) -> None:
    library.with_suffix(".json").write_bytes(build._record(library.read_bytes()).to_json())


def of_other_processors(library: Path) -> None:
    library.rename(library.with_name("sparc64.so"))
    for other in library.parent.glob("*.so"):
        if other.stem != "sparc64":
            other.unlink()


def of_another_kind(library: Path) -> None:
    code = bytearray(library.read_bytes())
    code[18:20] = (243).to_bytes(2, "little")  # RISC-V
    library.write_bytes(code)
    record(library)


def without_any(library: Path) -> None:
    shutil.rmtree(library.parent)


DAMAGES = {
    "cut": (cut, r"x\.so is damaged, its SHA-256 is not that of its record: install kcompact again"),
    "no record": (
        lambda library: library.with_suffix(".json").unlink(),
        r"x\.so cannot be checked: .*No such file.*: install kcompact again",
    ),
    "not a record": (
        lambda library: library.with_suffix(".json").write_text("{}"),
        r"x\.so cannot be checked: not a record",
    ),
    "of other processors": (
        of_other_processors,
        r"this kcompact has machine code for sparc64, and this processor is \w+: install the wheel for this",
    ),
    "of another kind": (of_another_kind, r"x\.so: "),
    "none": (without_any, r"x\.so is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["inspect", "plan", "clean"])
def test_what_does_not_load_is_said_in_one_sentence(damage: str, command: str, directory: Path, tmp_path: Path) -> None:
    apply, expected = DAMAGES[damage]
    apply(directory / f"{MACHINE}.so")
    log_dir = logs(tmp_path / "logs")
    before = read_files(log_dir)
    expected = expected.replace("x", MACHINE, 1) if expected.startswith("x") else expected
    with pytest.raises(KernelsUnavailableError, match=expected):
        kernels.library()
    ran = kcompact(command, *COMPACT, log_dir)
    assert (ran.code, read_files(log_dir)) == (4, before)
    first, *rest = ran.err.splitlines()
    assert first.startswith("error: machine code: ")
    assert rest == ["kcompact doctor examines the files without it."]
    assert "Traceback" not in ran.err
    assert kcompact("recover", log_dir).code == 0


ON_NOEXEC = """
import sys
from pathlib import Path
from kcompact import kernels
from kcompact.kernels import machine_code
machine_code.DIRECTORY = Path(sys.argv[1])
print(kernels.state())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_file_system_mounted_noexec(tmp_path: Path) -> None:
    place = tmp_path / "noexec"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", place], check=False).returncode:
        pytest.skip("mount is forbidden here")
    try:
        shutil.copytree(machine_code.DIRECTORY, place, dirs_exist_ok=True)
        command = [sys.executable, "-c", ON_NOEXEC, str(place)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    finally:
        subprocess.run(["umount", place], check=True)
    assert done.stdout.endswith(": its file system is mounted noexec, install kcompact on another one\n")
    assert done.stdout.startswith("none: machine code: ")


def test_a_processor_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()

    class Library:
        """Machine code whose check of the processor fails."""

        def __init__(self, path: str) -> None:
            setattr(self, FITS, lambda: 0)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    instructions = TARGETS[MACHINE].instructions.partition(" ")[0]
    with pytest.raises(KernelsUnavailableError, match=f"this processor lacks the instructions of {instructions}"):
        kernels.library()


def test_a_record_is_read_as_it_was_written() -> None:
    written = BuildRecord(library_sha256="a", sources_sha256="b")
    assert BuildRecord.from_json(written.to_json()) == written
    assert json.loads(written.to_json()) == {"library_sha256": "a", "sources_sha256": "b"}


def test_a_kernel_loaded_anew_works() -> None:
    forget()
    assert kernels.crc32c(np.frombuffer(bytearray(b"123456789"), np.uint8), 0, 9) == 0xE3069283
