"""The cache of the kernels' machine code: who may have written it, and that nothing is compiled twice."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from kcompact import kernels
from kcompact.host.user_directories import cache_directory
from kcompact.kernels import load
from kcompact.kernels.target import cache_key
from tests.support import machine_code
from tests.support.machine_code import Compiler, works


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler(machine_code.object_file())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(load, "compiled_elsewhere", compiler)
    monkeypatch.setattr(load, "_process", load._Process())
    return compiler


def cached(cache: Path) -> Path:
    (path,) = (cache / "kcompact").glob("*.o")
    return path


def test_compiled_once(compiler: Compiler, tmp_path: Path) -> None:
    assert not kernels.is_compiled()
    assert works()
    machine_code.forget()
    assert kernels.is_compiled()
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
    (tmp_path / "kcompact" / machine_code.file_name()).mkdir()
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
    assert not kernels.is_compiled()
    assert works()
    assert works()
    assert compiler.calls == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "kcompact"
    for given in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache_directory() == tmp_path / "home" / ".cache" / "kcompact"


@pytest.fixture(params=[0o000, 0o002, 0o077, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_umask_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    """A cache directory that a group can write to would be refused, and every process would compile again."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == home / ".cache" / "kcompact"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home / ".cache", home / ".cache" / "kcompact")]
    assert modes == [0o700, 0o700]
    assert cache_directory() == home / ".cache" / "kcompact"


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o755)
    assert cache_directory() is not None
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o755
    (tmp_path / "cache").chmod(0o775)  # Others of the group could replace it by a directory of their own.
    assert cache_directory() is None


def test_a_disk_that_is_full_is_no_error(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def full(path: str | Path, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, os.strerror(28))
        return really(path, flags, *rest)

    monkeypatch.setattr(os, "open", full)
    assert works()
    assert list((tmp_path / "kcompact").iterdir()) == []


# --- Several at once ------------------------------------------------------------------------------------------------

TOGETHER = """
import sys, time
from pathlib import Path
import numpy as np
from kcompact.kernels import load
from kcompact.kernels.target import cache_key
code, counted = Path(sys.argv[1]), Path(sys.argv[2])
def compiled_elsewhere():
    with counted.open("a") as file:
        file.write("compiled\\n")
    time.sleep(1.5)  # The others are here too.
    return code.read_bytes()
load.compiled_elsewhere = compiled_elsewhere
assert load.loaded()["crc32c"](np.zeros(3, np.uint8), 0, 3) == 0x6064A37A
assert "numba" not in sys.modules
"""


@pytest.mark.long
def test_of_processes_that_load_at_once_one_compiles(tmp_path: Path) -> None:
    code = machine_code.object_file()
    (tmp_path / "code").write_bytes(code)
    cache = tmp_path / "cache"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(tmp_path / "code"), str(tmp_path / "counted")],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for one in running:
        _, problem = one.communicate()
        assert one.returncode == 0, problem
    assert load.read_cached(cached(cache)) == code
    assert (tmp_path / "counted").read_text() == "compiled\n"


def test_of_threads_that_load_at_once_one_compiles(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")  # Without a directory there is no file lock.
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: kernels.available(), range(4)))
    assert compiler.calls == 1


def test_a_process_that_compiles_for_ever_is_not_waited_for(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kcompact").mkdir(mode=0o700)
    monkeypatch.setattr(load, "LOCK_WAIT_S", 0.05)
    with FileLock(tmp_path / "kcompact" / machine_code.file_name().replace(".o", ".lock")):
        assert works()
    assert compiler.calls == 1
    assert works()
    assert compiler.calls == 1


# --- Workers without a cache ----------------------------------------------------------------------------------------


def test_a_worker_without_a_cache_runs_the_drivers_code(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    key, code = kernels.exported()
    assert (key, code) == (cache_key(), compiler.code)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    machine_code.forget()
    assert not kernels.is_compiled()
    kernels.provide(key, code)
    assert kernels.is_compiled()
    assert kernels.available()
    assert compiler.calls == 1


def test_code_for_another_processor_is_not_run(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    kernels.provide("of another processor", b"which would crash here")
    assert not kernels.is_compiled()
    assert kernels.available()
    assert compiler.calls == 1
