"""The machine code of the kernels: what it is linked to, and the cache that it comes from."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kcompact.host.user_cache import cache_directory
from kcompact.kernels import machine
from kcompact.kernels.declared import KERNELS


@pytest.fixture(scope="module")
def code() -> bytes:
    """The object file that this process runs, or one like it."""
    directory = cache_directory()
    found = None if directory is None else machine._read(directory / machine._file_name())
    return machine.compile_all() if found is None else found


class Compiler:
    """Stands for the compiler, which takes long: gives what it gave before, and counts."""

    def __init__(self, code: bytes) -> None:
        self.code, self.calls = code, 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.code


@pytest.fixture
def compiler(code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = Compiler(code)
    monkeypatch.setattr(machine, "compile_all", compiler)
    return compiler


def works() -> bool:
    """Load the kernels and call one."""
    kernels = machine.load()
    assert kernels.keys() == KERNELS.keys()
    return int(kernels["crc32c"](np.frombuffer(bytearray(b"123456789"), np.uint8), 0, 9)) == 0xE3069283


def cached(cache: Path) -> Path:
    (path,) = (cache / "kcompact").iterdir()
    return path


# --- What it is linked to -------------------------------------------------------------------------------------------


def symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Return the names that a relocatable ELF file with 64 bits lacks, and those that it offers to others."""
    assert code[:6] == b"\x7fELF\x02\x01"
    sections_at, section_bytes, count = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<2H", code, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", code, sections_at + number * section_bytes) for number in range(count)
    ]
    lacking, offered = set(), set()
    for _, kind, _, _, at, size, link, _, _, entry_bytes in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names_at = sections[link][4]
        for entry in range(at, at + size, entry_bytes):
            name_at, info, _, section = struct.unpack_from("<IBBH", code, entry)
            name = code[names_at + name_at : code.index(b"\0", names_at + name_at)].decode()
            if name and section == 0:
                lacking.add(name)
            elif name and info >> 4:
                offered.add(name)
    return lacking, offered


def test_it_needs_the_c_library_and_nothing_else(code: bytes) -> None:
    lacking, offered = symbols(code)
    assert lacking <= {"memcpy", "memset", "memmove", "pread", "_GLOBAL_OFFSET_TABLE_"}
    assert "pread" in lacking
    assert offered == {f"kcompact_{name}" for name in KERNELS}


# --- The cache ------------------------------------------------------------------------------------------------------


def test_compiled_once(compiler: Compiler, tmp_path: Path) -> None:
    assert not machine.is_compiled()
    assert works()
    assert machine.is_compiled()
    assert works()
    assert compiler.calls == 1
    assert stat.S_IMODE((tmp_path / "kcompact").stat().st_mode) == 0o700
    assert stat.S_IMODE(cached(tmp_path).stat().st_mode) == 0o600


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def given_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize(
    "damage",
    [
        cut_off,
        flipped,
        linked,
        given_away,
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o620),
        lambda path: path.chmod(0o602),
    ],
)
def test_a_file_that_is_not_as_it_was_is_made_anew(
    compiler: Compiler, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    assert works()
    path = cached(tmp_path)
    content = path.read_bytes()
    damage(path)
    assert works()
    assert compiler.calls == 2
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat(follow_symlinks=False).st_mode) == 0o600
    assert works()
    assert compiler.calls == 2


def test_what_cannot_be_replaced_is_done_without(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "kcompact").mkdir(mode=0o700)
    (tmp_path / "kcompact" / machine._file_name()).mkdir()
    assert works()
    assert works()
    assert compiler.calls == 2


def directory_of_others(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "kcompact").mkdir()
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)


def writable_by(mode: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def make(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (cache / "kcompact").mkdir()
        (cache / "kcompact").chmod(mode)

    return make


def link_to_a_directory(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "elsewhere").mkdir(mode=0o700)
    (cache / "kcompact").symlink_to("elsewhere")


def file_instead(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "kcompact").touch()


def nowhere(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")


def no_home(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/proc/self")


def read_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "kcompact").mkdir(mode=0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)


@pytest.mark.parametrize(
    "make",
    [
        directory_of_others,
        writable_by(0o770),
        writable_by(0o707),
        link_to_a_directory,
        file_instead,
        nowhere,
        no_home,
        read_only,
    ],
)
def test_without_a_directory_of_our_own_each_process_compiles(
    compiler: Compiler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    make(tmp_path, monkeypatch)
    before = sorted(tmp_path.rglob("*"))
    assert cache_directory() is None
    assert not machine.is_compiled()
    assert works()
    assert works()
    assert compiler.calls == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "kcompact"
    for given in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache_directory() == tmp_path / "home" / ".cache" / "kcompact"


def test_a_disk_that_is_full_is_no_error(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def full(path: str | Path, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, os.strerror(28))
        return really(path, flags, *rest)

    monkeypatch.setattr(os, "open", full)
    assert works()
    assert list((tmp_path / "kcompact").iterdir()) == []


TOGETHER = """
import sys, time
from pathlib import Path
from kcompact.kernels import machine
code = Path(sys.argv[1]).read_bytes()
def compile_all():
    time.sleep(0.3)  # The other one is here too.
    return code
machine.compile_all = compile_all
import numpy as np
assert machine.load()["crc32c"](np.zeros(3, np.uint8), 0, 3) == 0x6064A37A
assert "numba" not in sys.modules
"""


def test_two_processes_at_once(code: bytes, tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(code)
    cache = tmp_path / "cache"
    # Importing the package loads the kernels, so they are there already; `load` is what is called once more.
    environment = {**os.environ}
    script = "import os\nimport kcompact.kernels\nos.environ['XDG_CACHE_HOME'] = " + repr(str(cache)) + TOGETHER
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "code")],
            cwd=Path(__file__).parents[1],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for one in running:
        _, problem = one.communicate()
        assert one.returncode == 0, problem
    assert machine._read(cached(cache)) == code


# --- Who loads what -------------------------------------------------------------------------------------------------

CLEANED = """
import sys
from pathlib import Path
from kcompact import cleaner
from kcompact.clean import prepare
from kcompact.plan.partition import plan_partition
from kcompact.engine.in_process import InProcess
from tests import notation
spec = notation.parse("log now=10:00 min.cleanable.dirty.ratio=0\\n0: a=1 b=2 a=3\\n3: c=1")
directory = notation.write(spec, Path(sys.argv[1]))
prepare.COMPILED_BYTES = int(sys.argv[2])
plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
result = cleaner.clean_partition(plan, InProcess(), lock=None, options=cleaner.CleanOptions(dry_run=True))
assert (result.stats.messages_read, result.stats.messages_written) == (3, 2)
print(*sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


@pytest.mark.parametrize(("compiled_bytes", "loaded"), [(0, "llvmlite"), (1 << 20, "")])
def test_cleaning_loads_no_compiler(code: bytes, tmp_path: Path, compiled_bytes: int, loaded: str) -> None:
    cache = tmp_path / "cache" / "kcompact"
    cache.mkdir(parents=True, mode=0o700)
    machine._write(cache / machine._file_name(), code)
    done = subprocess.run(
        [sys.executable, "-c", CLEANED, str(tmp_path / "logs"), str(compiled_bytes)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == loaded
